/* Converts records to items, and tracks the entities and last readings that records refer to. */
#include "trace/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/span.h"

struct replay_entity {
    enum sample_entity_kind kind;
    uint32_t id;
    bool alive; /* for processes: false after the process has exited */
    bool seen;  /* the list at the beginning of this block contains the entity */
    /* description of the process; NULL until an event provides it */
    struct process_info *process;
    char *name; /* NULL if unnamed */
    struct sample sample;
};

/* An event that happened in a lost block. It is reconstructed by comparing the entities known
 * before that block with the list at the beginning of the next block. */
struct replay_pending {
    struct replay_entity *entity;
    enum process_event_kind event; /* for processes only */
};

/* ---- entities ---- */

static void entity_free(struct replay_entity *e)
{
    free(e->process);
    free(e->name);
    free(e);
}

static uint64_t replay_key(uint32_t kind, uint32_t id)
{
    return (uint64_t)kind << 32 | id;
}

static struct replay_entity *entity_find(const struct replay *r, uint32_t kind, uint32_t id)
{
    uint32_t i;
    return numbers_get(&r->map, replay_key(kind, id), &i) ? r->entities[i] : NULL;
}

/* Finds or adds an entity. Returns 0, -ENOMEM, or -EBADMSG if there are more entities than a valid
 * recording can contain. */
static int entity_get(struct replay *r, uint32_t kind, uint32_t id, struct replay_entity **ret)
{
    struct replay_entity *e = entity_find(r, kind, id);
    if (e) {
        *ret = e;
        return 0;
    }
    if (r->entity_count >= RECORD_ENTITIES_MAX * 2)
        return -EBADMSG;
    if (!ARRAY_ROOM(r->entities, r->entity_count, r->entity_cap))
        return -ENOMEM;
    e = calloc(1, sizeof *e);
    if (!e || numbers_put(&r->map, replay_key(kind, id), (uint32_t)r->entity_count) < 0) {
        free(e);
        return -ENOMEM;
    }
    e->kind = (enum sample_entity_kind)kind;
    e->id = id;
    r->entities[r->entity_count++] = e;
    *ret = e;
    return 0;
}

/* Removes processes that have exited. This happens only when a new block begins, because the last
 * sample of a process may follow its exit within a block. */
static int drop_dead(struct replay *r)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->entity_count; i++) {
        struct replay_entity *e = r->entities[i];
        if (e->kind == ENTITY_PROCESS && !e->alive)
            entity_free(e);
        else
            r->entities[kept++] = e;
    }
    if (kept == r->entity_count)
        return 0;
    r->entity_count = kept;
    numbers_clear(&r->map);
    for (size_t i = 0; i < kept; i++) {
        const struct replay_entity *e = r->entities[i];
        if (numbers_put(&r->map, replay_key(e->kind, e->id), (uint32_t)i) < 0)
            return -ENOMEM;
    }
    return 0;
}

static bool same_process(const struct replay_entity *e, const struct process_info *info)
{
    return e->alive && e->process && e->process->id.pid == info->id.pid &&
           e->process->id.start_ticks == info->id.start_ticks;
}

static int set_process(struct replay_entity *e, const struct process_info *info)
{
    if (!e->process && !(e->process = malloc(sizeof *e->process)))
        return -ENOMEM;
    *e->process = *info;
    e->alive = true;
    return 0;
}

/* Reads an entity other than a process, and its name. Returns 1 if the name changed, 0 if it did
 * not change, -EBADMSG or -ENOMEM. If the kind is unknown, returns 0 and sets *ret to NULL. */
static int read_entity(struct replay *r, struct cur *c, struct replay_entity **ret)
{
    struct span name;
    uint64_t kind = cur_varint(c), id = cur_varint(c);
    name.p = cur_blob(c, &name.len);
    *ret = NULL;
    if (c->bad || id > UINT32_MAX)
        return -EBADMSG;
    if (kind >= ENTITY_KINDS || kind == ENTITY_PROCESS)
        return 0;
    int result = entity_get(r, (uint32_t)kind, (uint32_t)id, ret);
    if (result < 0 || ((*ret)->name && span_is(name, (*ret)->name)))
        return result;
    char *copy = span_copy(name);
    if (!copy)
        return -ENOMEM;
    free((*ret)->name);
    (*ret)->name = copy;
    return 1;
}

/* ---- the beginning of a block ---- */

static int push_pending(struct replay *r, struct replay_entity *e, enum process_event_kind event)
{
    if (!ARRAY_ROOM(r->pending, r->pending_count, r->pending_cap))
        return -ENOMEM;
    r->pending[r->pending_count++] = (struct replay_pending){e, event};
    return 0;
}

/* Returns the event that happened to a process in a lost block, or PROCESS_EVENTS if there was
 * none. */
static enum process_event_kind missed_event(const struct replay_entity *e,
                                            const struct process_info *now)
{
    if (!same_process(e, now))
        return PROCESS_BORN;
    const struct process_info *was = e->process;
    if (was->comm_len != now->comm_len || was->cmdline_len != now->cmdline_len ||
        memcmp(was->comm, now->comm, now->comm_len) != 0 ||
        memcmp(was->cmdline, now->cmdline, now->cmdline_len) != 0)
        return PROCESS_EXECED;
    if (was->ppid != now->ppid)
        return PROCESS_REPARENTED;
    return was->role != now->role ? PROCESS_ROLE : PROCESS_EVENTS;
}

static int begin_process(struct replay *r, struct cur *c)
{
    struct process_info info;
    struct replay_entity *e;
    uint64_t slot = cur_varint(c);
    if (record_get_process(c, &info) < 0 || slot > UINT32_MAX)
        return -EBADMSG;
    int result = entity_get(r, ENTITY_PROCESS, (uint32_t)slot, &e);
    if (result < 0)
        return result;
    enum process_event_kind event = missed_event(e, &info);
    e->seen = true;
    if (event == PROCESS_BORN)
        e->sample = (struct sample){0};
    result = set_process(e, &info);
    if (result == 0 && event != PROCESS_EVENTS)
        result = push_pending(r, e, event);
    return result;
}

static int begin_entity(struct replay *r, struct cur *c)
{
    struct replay_entity *e;
    int result = read_entity(r, c, &e);
    return result > 0 ? push_pending(r, e, PROCESS_EVENTS) : result;
}

/* Replaces all live entities by the list at the beginning of a block. Afterwards the state is
 * complete, even if earlier blocks were lost. */
static int apply_begin(struct replay *r, const struct record *record)
{
    struct cur c = record->body;
    r->pending_count = r->pending_at = 0;
    r->pending_t_ns = record->t_ns;
    int result = drop_dead(r);
    for (size_t i = 0; i < r->entity_count; i++)
        r->entities[i]->seen = false;
    uint64_t n = cur_varint(&c);
    while (result == 0 && n-- > 0)
        result = c.bad ? -EBADMSG : begin_process(r, &c);
    n = result == 0 ? cur_varint(&c) : 0;
    while (result == 0 && n-- > 0)
        result = c.bad ? -EBADMSG : begin_entity(r, &c);
    for (size_t i = 0; result == 0 && i < r->entity_count; i++) {
        struct replay_entity *e = r->entities[i];
        if (e->kind != ENTITY_PROCESS || !e->alive || e->seen)
            continue;
        e->alive = false;
        result = push_pending(r, e, PROCESS_DIED);
    }
    return result;
}

static void item_of_process(const struct replay_entity *e, enum process_event_kind event,
                            uint64_t t_ns, struct trace_item *ret)
{
    *ret = (struct trace_item){.kind = TRACE_PROCESS, .t_ns = t_ns};
    ret->process.event = event;
    ret->process.slot = e->id;
    ret->process.info = e->process;
}

static void item_of_entity(const struct replay_entity *e, uint64_t t_ns, struct trace_item *ret)
{
    *ret = (struct trace_item){.kind = TRACE_ENTITY, .t_ns = t_ns};
    ret->entity.kind = e->kind;
    ret->entity.id = e->id;
    ret->entity.name = e->name;
}

bool replay_pending(struct replay *r, struct trace_item *ret)
{
    if (r->pending_at >= r->pending_count)
        return false;
    const struct replay_pending *p = &r->pending[r->pending_at++];
    if (p->entity->kind == ENTITY_PROCESS)
        item_of_process(p->entity, p->event, r->pending_t_ns, ret);
    else
        item_of_entity(p->entity, r->pending_t_ns, ret);
    return true;
}

/* ---- converting one record to an item ----
 * Each function returns 1 for an item, 0 for none, -EBADMSG or -ENOMEM. */

static int apply_process(struct replay *r, const struct record *record, struct trace_item *ret)
{
    struct cur c = record->body;
    struct process_info info;
    struct replay_entity *e;
    uint64_t event = cur_varint(&c), slot = cur_varint(&c);
    if (c.bad || slot > UINT32_MAX)
        return -EBADMSG;
    if (event >= PROCESS_EVENTS)
        return 0;
    if (event == PROCESS_DIED) {
        e = entity_find(r, ENTITY_PROCESS, (uint32_t)slot);
        if (!e || !e->process || !e->alive)
            return 0;
        e->alive = false;
    } else {
        if (record_get_process(&c, &info) < 0)
            return -EBADMSG;
        int result = entity_get(r, ENTITY_PROCESS, (uint32_t)slot, &e);
        if (result < 0)
            return result;
        if (event == PROCESS_BORN)
            e->sample = (struct sample){0};
        result = set_process(e, &info);
        if (result < 0)
            return result;
    }
    item_of_process(e, (enum process_event_kind)event, record->t_ns, ret);
    return 1;
}

static int apply_entity(struct replay *r, const struct record *record, struct trace_item *ret)
{
    struct cur c = record->body;
    struct replay_entity *e;
    int result = read_entity(r, &c, &e);
    if (result < 0 || !e)
        return result;
    item_of_entity(e, record->t_ns, ret);
    return 1;
}

/* Converts a mark. If it cannot be parsed, for instance because a later version of ebb wrote it,
 * its kind is MARK_OTHER and its text is kept. */
static int apply_mark(const struct record *record, struct trace_item *ret)
{
    struct cur c = record->body;
    size_t len;
    int64_t pid = cur_zigzag(&c);
    const char *text = cur_blob(&c, &len);
    if (c.bad || pid < INT32_MIN || pid > INT32_MAX)
        return -EBADMSG;
    *ret = (struct trace_item){.kind = TRACE_MARK, .t_ns = record->t_ns};
    if (mark_parse(text, len, &ret->mark) < 0)
        ret->mark = (struct mark){.kind = MARK_OTHER, .text = text, .len = len};
    ret->mark.t_ns = record->t_ns;
    ret->mark.pid = (int32_t)pid;
    return 1;
}

static int apply_note(struct replay *r, const struct record *record, struct trace_item *ret)
{
    struct cur c = record->body;
    size_t kind_len, text_len;
    const char *kind = cur_blob(&c, &kind_len), *text = cur_blob(&c, &text_len);
    if (c.bad)
        return -EBADMSG;
    buf_clear(&r->text);
    buf_add(&r->text, kind, kind_len);
    buf_add_byte(&r->text, 0);
    buf_add(&r->text, text, text_len);
    buf_add_byte(&r->text, 0);
    if (r->text.failed)
        return -ENOMEM;
    *ret = (struct trace_item){.kind = TRACE_NOTE, .t_ns = record->t_ns};
    ret->note.kind = r->text.data;
    ret->note.text = r->text.data + kind_len + 1;
    ret->note.len = text_len;
    return 1;
}

static const struct process_info nobody;

static void row_of_entity(struct replay_entity *e, const struct record_row *row,
                          struct trace_row *ret)
{
    struct sample *s = &e->sample;
    for (uint32_t left = row->read; left; left &= left - 1) {
        unsigned f = (unsigned)__builtin_ctz(left);
        s->v[f] = row->v[f];
    }
    s->read = row->read;
    s->known |= row->read;
    s->stale = row->stale;
    ret->kind = e->kind;
    ret->id = e->id;
    ret->process = e->kind != ENTITY_PROCESS ? NULL : e->process ? e->process : &nobody;
    ret->name = e->name ? e->name : "";
    ret->sample = *s;
}

static int apply_tick(struct replay *r, const struct record *record, struct trace_item *ret)
{
    size_t count = 0;
    if (record->count > r->rows_cap) {
        struct trace_row *rows = realloc(r->rows, record->count * sizeof *rows);
        if (!rows)
            return -ENOMEM;
        r->rows = rows;
        r->rows_cap = record->count;
    }
    for (size_t i = 0; i < record->count; i++) {
        const struct record_row *row = &record->rows[i];
        struct replay_entity *e;
        if (row->kind >= ENTITY_KINDS || (row->read == 0 && row->stale == 0))
            continue;
        int result = entity_get(r, row->kind, row->id, &e);
        if (result < 0)
            return result;
        row_of_entity(e, row, &r->rows[count++]);
    }
    *ret = (struct trace_item){.kind = TRACE_TICK, .t_ns = record->t_ns};
    ret->tick.rows = r->rows;
    ret->tick.count = count;
    return 1;
}

int replay_apply(struct replay *r, const struct record *record, struct trace_item *ret)
{
    switch (record->type) {
    case RECORD_BEGIN:
        return apply_begin(r, record);
    case RECORD_PROCESS:
        return apply_process(r, record, ret);
    case RECORD_ENTITY:
        return apply_entity(r, record, ret);
    case RECORD_MARK:
        return apply_mark(record, ret);
    case RECORD_NOTE:
        return apply_note(r, record, ret);
    case RECORD_TICK:
        return apply_tick(r, record, ret);
    default:
        return 0; /* a later minor version of the format has added this record type */
    }
}

void replay_fini(struct replay *r)
{
    for (size_t i = 0; i < r->entity_count; i++)
        entity_free(r->entities[i]);
    free(r->entities);
    numbers_fini(&r->map);
    free(r->pending);
    free(r->rows);
    buf_fini(&r->text);
    *r = (struct replay){0};
}
