/* Adds events, samples, marks and notes to the model of one run. */
#include "run/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/number.h"

enum {
    /* initial bucket width, equal to the shortest interval between samples */
    FIRST_WIDTH_MS = 50,
    LIVED_S = 3, /* dead entities that lived less than this are dropped before all others */
};

#define BIT(field) (1u << (field))
#define ALL_SIGNALS ((1u << SAMPLE_FIELDS_MAX) - 1)

const struct run_settings run_settings_read = {
    .signals = {ALL_SIGNALS, ALL_SIGNALS, ALL_SIGNALS, ALL_SIGNALS, ALL_SIGNALS},
    .buckets = {1000, 500, 1000, 500, 1000},
    .dead = RUN_DEAD_READ,
    .marks = 16384,
    .guard_notes = 200,
};
const struct run_settings run_settings_live = {
    .signals = {[RUN_JOB] = BIT(JOB_MEMORY), [RUN_PROCESS] = BIT(SAMPLE_RSS)},
    .buckets = {[RUN_JOB] = 128, [RUN_PROCESS] = 32},
    .dead = RUN_DEAD_LIVE,
};

/* ---- creating and freeing ---- */

int run_new(const struct run_settings *options, uint64_t start_mono_ns, struct run **ret)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return -ENOMEM;
    run->options = *options;
    if (!run->options.width_ns)
        run->options.width_ns = FIRST_WIDTH_MS * NS_PER_MS;
    if (!run->options.to_ns)
        run->options.to_ns = UINT64_MAX;
    run->start_mono_ns = start_mono_ns;
    run->machine.kind = RUN_MACHINE;
    *ret = run;
    return 0;
}

static void entity_fini(struct run *run, struct run_entity *e)
{
    RUN_NOTIFY(run, forget, run, e);
    for (size_t i = 0; i < SAMPLE_FIELDS_MAX; i++) {
        if (e->signal[i])
            series_fini(e->signal[i]);
        free(e->signal[i]);
    }
}

static void entity_free(struct run *run, struct run_entity *e)
{
    entity_fini(run, e);
    free(e);
}

void run_free(struct run *run)
{
    if (!run)
        return;
    for (size_t i = 0; i < run->living.count; i++)
        entity_free(run, run->living.at[i]);
    for (size_t i = 0; i < run->dead.count; i++)
        entity_free(run, run->dead.at[i]);
    entity_fini(run, &run->job);
    entity_fini(run, &run->machine);
    for (size_t i = 0; i < MARK_KIND_COUNT; i++)
        free(run->marks[i].at);
    for (size_t i = 0; i < run->guard_count; i++)
        json_decref(run->guard_notes[i].doc);
    free(run->guard_notes);
    free(run->living.at);
    free(run->dead.at);
    free(run->phases);
    json_decref(run->header);
    json_decref(run->end);
    free(run);
}

void run_observe(struct run *run, struct run_observer *observer)
{
    observer->next = run->observers;
    run->observers = observer;
}

/* Converts to time since the start of the run; times before it become 0. */
static uint64_t run_clock(struct run *run, uint64_t mono_ns)
{
    uint64_t t_ns = mono_ns > run->start_mono_ns ? mono_ns - run->start_mono_ns : 0;
    if (t_ns > run->now_ns)
        run->now_ns = t_ns;
    return t_ns;
}

static bool is_in_window(const struct run *run, uint64_t t_ns)
{
    return t_ns >= run->options.from_ns && t_ns <= run->options.to_ns;
}

/* ---- entities ---- */

static int entity_order(const struct run_entity *e, enum run_kind kind, uint32_t id)
{
    return e->kind != kind ? (e->kind > kind) - (e->kind < kind) : (e->id > id) - (e->id < id);
}

/* Returns the index of an entity in `living`, or the index at which to insert it. */
static size_t living_place(const struct run *run, enum run_kind kind, uint32_t id)
{
    const struct run_entities *l = &run->living;
    if (run->hint < l->count && entity_order(l->at[run->hint], kind, id) == 0)
        return run->hint;
    return ARRAY_SEARCH(i, l->count, entity_order(l->at[i], kind, id) < 0);
}

struct run_entity *run_find(const struct run *run, enum run_kind kind, uint32_t id)
{
    size_t at = living_place(run, kind, id);
    return at < run->living.count && entity_order(run->living.at[at], kind, id) == 0
               ? run->living.at[at]
               : NULL;
}

/* Returns the entity, adding it if it does not exist. */
static struct run_entity *entity_insert(struct run *run, enum run_kind kind, uint32_t id,
                                        uint64_t t_ns)
{
    size_t at = living_place(run, kind, id);
    if (at < run->living.count && entity_order(run->living.at[at], kind, id) == 0)
        return run->living.at[at];
    struct run_entity *e = calloc(1, sizeof *e);
    if (!e || !ARRAY_ROOM(run->living.at, run->living.count, run->living.cap)) {
        free(e);
        run->has_failed = true;
        return NULL;
    }
    e->kind = kind;
    e->id = id;
    e->segment = run->segment_count;
    e->born_ns = e->execed_ns = t_ns;
    memmove(run->living.at + at + 1, run->living.at + at,
            (run->living.count - at) * sizeof(struct run_entity *));
    run->living.at[at] = e;
    run->living.count++;
    return e;
}

static bool lived_long(const struct run_entity *e)
{
    return e->died_ns - e->born_ns >= LIVED_S * NS_PER_S;
}

/* Adds E to the dead entities. A job may start a million short processes, so only the largest dead
 * entities are kept; those that lived long enough to be judged take precedence. */
static void entity_bury(struct run *run, struct run_entity *e)
{
    struct run_entity **least = &e;
    size_t count = 0;
    for (size_t i = 0; i < run->dead.count; i++) {
        const struct run_entity *one = run->dead.at[i];
        if (one->kind != e->kind)
            continue;
        count++;
        if (lived_long(one) != lived_long(*least) ? lived_long(*least)
                                                  : one->peak_bytes < (*least)->peak_bytes)
            least = &run->dead.at[i];
    }
    if (count < run->options.dead && ARRAY_ROOM(run->dead.at, run->dead.count, run->dead.cap)) {
        run->dead.at[run->dead.count++] = e;
        return;
    }
    struct run_entity *smallest = *least;
    *least = e;
    entity_free(run, smallest);
}

static void living_remove(struct run *run, const struct run_entity *e)
{
    size_t at = living_place(run, e->kind, e->id);
    memmove(run->living.at + at, run->living.at + at + 1,
            (run->living.count - at - 1) * sizeof(struct run_entity *));
    run->living.count--;
}

void run_drop_marked(struct run *run)
{
    size_t kept = 0;
    for (size_t i = 0; i < run->living.count; i++)
        if (run->living.at[i]->is_dead)
            entity_free(run, run->living.at[i]);
        else
            run->living.at[kept++] = run->living.at[i];
    run->living.count = kept;
}

static void entity_die(struct run *run, struct run_entity *e, uint64_t t_ns)
{
    living_remove(run, e);
    e->is_dead = true;
    e->died_ns = t_ns;
}

static void figures_die(struct run *run, int32_t pid, uint64_t t_ns)
{
    for (size_t i = run->living.count; i-- > 0 && run->living.at[i]->kind == RUN_FIGURE;) {
        struct run_entity *e = run->living.at[i];
        if (e->info.id.pid != pid)
            continue;
        entity_die(run, e, t_ns);
        entity_bury(run, e);
    }
}

static void entity_describe(struct run_entity *e, const struct process_info *info)
{
    size_t len = info->comm_len < RUN_NAME_MAX ? info->comm_len : RUN_NAME_MAX - 1;
    e->info = *info;
    memcpy(e->name, info->comm, len);
    e->name[len] = '\0';
}

struct run_entity *run_process(struct run *run, uint64_t mono_ns, enum process_event_kind event,
                               uint32_t slot, const struct process_info *info)
{
    uint64_t t_ns = run_clock(run, mono_ns);
    struct run_entity *e = run_find(run, RUN_PROCESS, slot);
    if (event == PROCESS_BORN && e)
        return e;
    if (event == PROCESS_BORN) {
        e = entity_insert(run, RUN_PROCESS, slot, t_ns);
        if (e)
            e->parent = info->ppid;
        run->processes_seen++;
    }
    if (!e)
        return NULL;
    entity_describe(e, info);
    if (event == PROCESS_EXECED)
        e->execed_ns = t_ns;
    if (event == PROCESS_DIED)
        entity_die(run, e, t_ns);
    RUN_NOTIFY(run, process, run, e, event);
    if (event == PROCESS_DIED) {
        struct run_role *role = &run->dead_roles[info->role < ROLE_COUNT ? info->role : 0];
        role->count++;
        if (e->peak_bytes > role->peak_bytes)
            role->peak_bytes = e->peak_bytes;
        if (info->id.pid > 0)
            figures_die(run, info->id.pid, t_ns);
        entity_bury(run, e);
        return NULL;
    }
    return e;
}

/* ---- ticks ---- */

void run_tick_begin(struct run *run, uint64_t mono_ns)
{
    run->tick_ns = run_clock(run, mono_ns);
    if (run->ticks++ == 0)
        run->first_tick_ns = run->tick_ns;
    run->hint = 0;
}

bool run_was_read(const struct run *run, const struct run_entity *e, unsigned field)
{
    return e->last_ns == run->tick_ns && e->last.read >> field & 1u;
}

static void signal_add(struct run *run, struct run_entity *e, unsigned field, uint64_t v)
{
    if (!(run->options.signals[e->kind] & BIT(field)) || !is_in_window(run, run->tick_ns))
        return;
    if (!e->signal[field]) {
        bool is_fine = field == 0 || e->kind == RUN_JOB;
        uint32_t buckets = run->options.buckets[e->kind];
        e->signal[field] = malloc(sizeof(struct series));
        if (!e->signal[field]) {
            run->has_failed = true;
            return;
        }
        series_init(e->signal[field], is_fine ? buckets : buckets / 2, run->options.width_ns,
                    run->options.from_ns);
    }
    if (series_add(e->signal[field], run->tick_ns, v) < 0)
        run->has_failed = true;
}

static void entity_sample(struct run *run, struct run_entity *e, const struct sample *s)
{
    e->last = *s;
    e->last_ns = run->tick_ns;
    for (unsigned field = 0; field < SAMPLE_FIELDS_MAX && s->read >> field; field++)
        if (s->read & BIT(field))
            signal_add(run, e, field, s->v[field]);
    if (s->read & 1u && s->v[0] > e->peak_bytes)
        e->peak_bytes = s->v[0];
}

void run_add_value(struct run *run, struct run_entity *e, unsigned field, uint64_t v)
{
    e->last.read = 0;
    sample_put(&e->last, field, v);
    e->last_ns = run->tick_ns;
    signal_add(run, e, field, v);
    if (field == 0 && v > e->peak_bytes)
        e->peak_bytes = v;
}

static void process_sample(struct run *run, struct run_entity *e, const struct sample *s)
{
    entity_sample(run, e, s);
    if (s->read & BIT(SAMPLE_PEAK) && s->v[SAMPLE_PEAK] > e->peak_bytes)
        e->peak_bytes = s->v[SAMPLE_PEAK];
    if (s->read & BIT(SAMPLE_GPU) && s->v[SAMPLE_GPU] > e->gpu_peak_bytes)
        e->gpu_peak_bytes = s->v[SAMPLE_GPU];
}

static void gpu_sample(struct run *run, uint32_t id, const char *name, const struct sample *s)
{
    struct run_entity *e = id < RUN_GPUS ? entity_insert(run, RUN_GPU, id, run->tick_ns) : NULL;
    if (!e)
        return;
    if (name && name[0] && !e->name[0])
        memcpy(e->name, name, strnlen(name, RUN_NAME_MAX - 1));
    entity_sample(run, e, s);
    if (s->read & BIT(GPU_JOB) && s->v[GPU_JOB] > e->gpu_peak_bytes)
        e->gpu_peak_bytes = s->v[GPU_JOB];
}

static struct run_entity *figure_find(struct run *run, uint32_t id, const char *full)
{
    struct run_entity *const *figures, *e = run_find(run, RUN_FIGURE, id);
    char name[RUN_NAME_MAX];
    int32_t pid;
    if (e || !full || !mark_figure_parse(full, name, sizeof name, &pid) ||
        run_living(run, RUN_FIGURE, &figures) >= RUN_FIGURES)
        return e;
    e = entity_insert(run, RUN_FIGURE, id, run->tick_ns);
    if (e) {
        memcpy(e->name, name, sizeof name);
        e->info.id.pid = pid;
    }
    return e;
}

void run_sample(struct run *run, enum sample_entity_kind kind, uint32_t id, const char *name,
                const struct sample *sample)
{
    struct run_entity *e = NULL;
    if (kind == ENTITY_MACHINE) {
        entity_sample(run, &run->machine, sample);
    } else if (kind == ENTITY_GPU) {
        gpu_sample(run, id, name, sample);
    } else if (kind == ENTITY_SERIES && sample->read & 1u) {
        e = figure_find(run, id, name);
        if (e)
            entity_sample(run, e, sample);
    } else if (kind == ENTITY_PROCESS) {
        run->hint = living_place(run, RUN_PROCESS, id);
        e = run_find(run, RUN_PROCESS, id);
        if (e)
            process_sample(run, e, sample);
        run->hint++;
    }
}

static void sample_add(struct sample *s, unsigned field, uint64_t v)
{
    sample_put(s, field, (s->read & BIT(field) ? s->v[field] : 0) + v);
}

/* Computes the job's sample: totals from the machine's sample, and sums over the job's processes
 * and GPUs. */
static void job_sample(struct run *run, struct sample *s)
{
    static const struct {
        unsigned job, machine;
    } totals[] = {{JOB_TREE, MACHINE_TREE_LOW},
                  {JOB_TREE_HIGH, MACHINE_TREE_HIGH},
                  {JOB_CHARGE, MACHINE_CHARGE},
                  {JOB_LIMIT, MACHINE_LIMIT},
                  {JOB_LIMIT_USED, MACHINE_LIMIT_USED}};
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++)
        if (run_was_read(run, &run->machine, totals[i].machine))
            sample_put(s, totals[i].job, run->machine.last.v[totals[i].machine]);
    /* memory that is still charged after all processes have exited does not belong to the job */
    struct run_entity *const *processes;
    if (s->read & (BIT(JOB_CHARGE) | BIT(JOB_TREE)) && run_living(run, RUN_PROCESS, &processes))
        sample_put(s, JOB_MEMORY, s->v[s->read & BIT(JOB_CHARGE) ? JOB_CHARGE : JOB_TREE]);
    for (size_t i = 0; i < run->living.count; i++) {
        const struct run_entity *e = run->living.at[i];
        if (e->last_ns != run->tick_ns)
            continue;
        if (e->kind == RUN_PROCESS && sample_has(&e->last, SAMPLE_UNIQUE))
            sample_add(s, JOB_UNIQUE, e->last.v[SAMPLE_UNIQUE]);
        if (e->kind == RUN_PROCESS && run_was_read(run, e, SAMPLE_RSS))
            sample_add(s, JOB_RSS_SUM, e->last.v[SAMPLE_RSS]);
        if (e->kind == RUN_GPU && sample_has(&e->last, run_gpu_field(e)))
            sample_add(s, JOB_GPU, e->last.v[run_gpu_field(e)]);
    }
}

unsigned run_gpu_field(const struct run_entity *gpu)
{
    return sample_has(&gpu->last, GPU_ALLOCATED) ? GPU_ALLOCATED : GPU_JOB;
}

/* Returns the memory in the cache of PyTorch's allocator that exceeds the peak of allocated
 * memory. */
static uint64_t gpu_spare(const struct sample *s)
{
    return sample_has(s, GPU_RESERVED) && sample_has(s, GPU_PEAK)
               ? u64_minus(s->v[GPU_RESERVED], s->v[GPU_PEAK])
               : 0;
}

bool run_gpu_used(const struct run_entity *gpu, uint64_t *ret)
{
    const struct sample *s = &gpu->last;
    if (!sample_has(s, GPU_USED))
        return false;
    *ret = u64_minus(s->v[GPU_USED], gpu_spare(s));
    return true;
}

bool run_gpu_job(const struct run_entity *gpu, uint64_t *ret)
{
    const struct sample *s = &gpu->last;
    /* GPU_JOB is 0 if the driver cannot identify the job's processes, for example in a pid
     * namespace */
    if (sample_has(s, GPU_JOB) && s->v[GPU_JOB] > 0)
        *ret = u64_minus(s->v[GPU_JOB], gpu_spare(s));
    else if (sample_has(s, GPU_PEAK))
        *ret = s->v[GPU_PEAK];
    else
        return run_gpu_used(gpu, ret);
    return true;
}

void run_tick_end(struct run *run)
{
    struct sample s = run->job.last;
    s.read = 0;
    job_sample(run, &s);
    entity_sample(run, &run->job, &s);
    RUN_NOTIFY(run, tick, run);
}

/* ---- marks ---- */

static uint64_t mark_count_of(const struct run_mark *m, uint64_t otherwise)
{
    return m->has & MARK_HAS_STEP && m->step >= 0 ? (uint64_t)m->step : otherwise;
}

/* Drops the marks of every second step. Several ranks report the same steps, so either all marks of
 * a step are kept or none. */
static void marks_thin(struct run_marks *l)
{
    size_t n = 0;
    l->stride *= 2;
    for (size_t i = 0; i < l->count; i++)
        if (mark_count_of(&l->at[i], i * l->stride / 2) % l->stride == 0)
            l->at[n++] = l->at[i];
    l->count = n;
}

static int marks_add(struct run_marks *l, const struct run_mark *m, size_t most)
{
    uint64_t number = mark_count_of(m, l->seen++);
    l->stride = l->stride ? l->stride : 1;
    while (l->count >= most && l->stride < UINT64_MAX / 2)
        marks_thin(l);
    if (number % l->stride || l->count >= most)
        return 0;
    if (!ARRAY_ROOM(l->at, l->count, l->cap))
        return -ENOMEM;
    l->at[l->count++] = *m;
    return 0;
}

static void mark_keep(struct run *run, const struct mark *mark)
{
    struct run_mark m = {.t_ns = mark->t_ns,
                         .number = run->marks_seen,
                         .kind = mark->kind,
                         .pid = mark->pid,
                         .has = mark->has,
                         .step = mark->step,
                         .steps_per_epoch = mark->steps_per_epoch,
                         .max_steps = mark->max_steps,
                         .rank = mark->rank,
                         .examples = mark->examples,
                         .effective_batch = mark->effective_batch,
                         .epoch = mark->epoch};
    size_t len = 0;
    const char *word = mark_get(mark, "KIND", &len);
    if (word)
        memcpy(m.word, word, len < sizeof m.word ? len : sizeof m.word - 1);
    if (marks_add(&run->marks[mark->kind], &m, run->options.marks) < 0)
        run->has_failed = true;
}

static void phase_mark(struct run *run, const struct mark *m)
{
    struct run_phase p = {.pid = m->pid, .is_open = true, .from_ns = m->t_ns};
    size_t len = 0, state_len = 0;
    const char *name = mark_get(m, "NAME", &len), *state = mark_get(m, "STATE", &state_len);
    if (!name || !state)
        return;
    memcpy(p.name, name, len < sizeof p.name ? len : sizeof p.name - 1);
    for (size_t i = run->phase_count; i-- > 0 && run->phases_open;) {
        struct run_phase *open = &run->phases[i];
        if (!open->is_open || open->pid != p.pid || strcmp(open->name, p.name) != 0)
            continue;
        open->is_open = false;
        open->until_ns = m->t_ns;
        run->phases_open--;
        break;
    }
    if (state_len != 5 || memcmp(state, "begin", 5) != 0 || run->phases_open == RUN_PHASES_OPEN)
        return;
    if (!run->phases)
        run->phases = calloc(RUN_PHASES, sizeof *run->phases);
    if (!run->phases || run->phase_count == RUN_PHASES)
        return;
    run->phases[run->phase_count++] = p;
    run->phases_open++;
}

static void versions_mark(struct run *run, const struct mark *m)
{
    static const char ending[] = "_VERSION";
    struct mark_line line;
    size_t at = 0, n = sizeof ending - 1;
    while (mark_next(m, &at, &line)) {
        struct run_version v = {.name = ""};
        if (line.key_len <= n || line.key_len - n >= sizeof v.name ||
            memcmp(line.key + line.key_len - n, ending, n) != 0)
            continue;
        for (size_t i = 0; i < line.key_len - n; i++)
            v.name[i] =
                (char)(line.key[i] >= 'A' && line.key[i] <= 'Z' ? line.key[i] + 32 : line.key[i]);
        memcpy(v.text, line.value,
               line.value_len < sizeof v.text ? line.value_len : sizeof v.text - 1);
        size_t k = 0;
        while (k < run->version_count && strcmp(run->versions[k].name, v.name) != 0)
            k++;
        if (k < RUN_VERSIONS)
            run->versions[k] = v;
        run->version_count += k == run->version_count && k < RUN_VERSIONS;
    }
}

void run_add_mark(struct run *run, const struct mark *given)
{
    struct mark mark = *given;
    mark.t_ns = run_clock(run, given->t_ns);
    run->marks_seen++;
    /* Each step is counted once, although it may be reported several times: by every rank, and by
     * both the job itself and the ebb package. */
    if (mark.kind == MARK_STEP && (!(mark.has & MARK_HAS_RANK) || mark.rank == 0))
        run->steps_seen += !(mark.has & MARK_HAS_STEP) || !run->has_step || mark.step != run->step;
    if (mark.kind == MARK_STEP && mark.has & MARK_HAS_STEP) {
        run->has_step = true;
        run->step = mark.step;
    }
    if (run->options.marks && is_in_window(run, mark.t_ns)) {
        versions_mark(run, &mark);
        if (mark.kind == MARK_PHASE)
            phase_mark(run, &mark);
        if (mark.kind != MARK_SERIES && mark.kind != MARK_HELLO && mark.kind != MARK_ACK)
            mark_keep(run, &mark);
    }
    RUN_NOTIFY(run, mark, run, &mark);
}

const struct run_mark *run_mark_next(const struct run *run, struct run_mark_cursor *cursor)
{
    const struct run_mark *next = NULL;
    for (size_t kind = 0; kind < MARK_KIND_COUNT; kind++) {
        const struct run_marks *l = &run->marks[kind];
        const struct run_mark *m = cursor->at[kind] < l->count ? &l->at[cursor->at[kind]] : NULL;
        if (m && (!next || m->number < next->number))
            next = m;
    }
    if (next)
        cursor->at[next->kind]++;
    return next;
}

/* ---- notes ---- */

static void guard_note(struct run *run, uint64_t t_ns, json_t *doc)
{
    const size_t most = run->options.guard_notes;
    if (!run->guard_notes)
        run->guard_notes = calloc(most, sizeof *run->guard_notes);
    if (!run->guard_notes) {
        json_decref(doc);
        return;
    }
    if (run->guard_count == most) {
        json_decref(run->guard_notes[0].doc);
        memmove(run->guard_notes, run->guard_notes + 1, (most - 1) * sizeof *run->guard_notes);
        run->guard_count--;
    }
    run->guard_notes[run->guard_count++] = (struct run_note){t_ns, doc};
    run->guard_seen++;
}

static void end_note(struct run *run, json_t *doc)
{
    const json_t *peak = json_object_get(doc, "peak_bytes");
    json_decref(run->end);
    run->end = doc;
    if (json_is_integer(peak) && json_integer_value(peak) > 0)
        run->peak_bytes = (uint64_t)json_integer_value(peak);
}

void run_add_note(struct run *run, uint64_t mono_ns, const char *kind, const char *text, size_t len)
{
    uint64_t t_ns = run_clock(run, mono_ns);
    bool is_guard = strcmp(kind, "guard") == 0 && run->options.guard_notes;
    bool is_end = strcmp(kind, "end") == 0;
    json_t *doc = is_guard || is_end ? json_parse(text, len, NULL) : NULL;
    if (doc && !json_is_object(doc))
        json_decref(doc);
    else if (doc && is_guard)
        guard_note(run, t_ns, doc);
    else if (doc)
        end_note(run, doc);
    run->gaps += strcmp(kind, "gap") == 0;
    if (strcmp(kind, "segment") == 0) {
        if (run->segment_count < RUN_SEGMENTS)
            run->segments[run->segment_count++] = t_ns;
        run->has_step = false;
    }
    RUN_NOTIFY(run, note, run, kind, text, len);
}

/* ---- reading ---- */

bool run_value(const struct run_entity *e, unsigned field, uint64_t *ret)
{
    if (!sample_has(&e->last, field))
        return false;
    *ret = e->last.v[field];
    return true;
}

size_t run_living(const struct run *run, enum run_kind kind, struct run_entity *const **ret)
{
    size_t from = living_place(run, kind, 0);
    size_t to = from;
    while (to < run->living.count && run->living.at[to]->kind == kind)
        to++;
    *ret = run->living.at ? run->living.at + from : NULL;
    return to - from;
}

struct run_entity *run_find_pid(const struct run *run, int32_t pid)
{
    struct run_entity *found = NULL;
    for (size_t i = run->living.count; pid > 0 && i-- > 0;)
        if (run->living.at[i]->kind == RUN_PROCESS && run->living.at[i]->info.id.pid == pid)
            return run->living.at[i];
    for (size_t i = 0; pid > 0 && i < run->dead.count; i++)
        if (run->dead.at[i]->kind == RUN_PROCESS && run->dead.at[i]->info.id.pid == pid &&
            (!found || run->dead.at[i]->died_ns > found->died_ns))
            found = run->dead.at[i];
    return found;
}

static int larger_first(const void *a, const void *b)
{
    const struct run_entity *x = *(struct run_entity *const *)a,
                            *y = *(struct run_entity *const *)b;
    if (x->peak_bytes != y->peak_bytes)
        return x->peak_bytes < y->peak_bytes ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

size_t run_list(const struct run *run, enum run_kind kind, struct run_entity ***ret)
{
    struct run_entity *const *living;
    size_t n = run_living(run, kind, &living);
    *ret = calloc(n + run->dead.count + 1, sizeof(struct run_entity *));
    if (!*ret)
        return 0;
    if (living)
        memcpy(*ret, living, n * sizeof(struct run_entity *));
    for (size_t i = 0; i < run->dead.count; i++)
        if (run->dead.at[i]->kind == kind)
            (*ret)[n++] = run->dead.at[i];
    qsort(*ret, n, sizeof(struct run_entity *), larger_first);
    return n;
}

const struct run_entity *run_figure_beside(const struct run *run, const struct run_entity *of,
                                           const char *prefix)
{
    const struct run_entities *all = of->is_dead ? &run->dead : &run->living;
    const char *name = strchr(of->name, ':');
    size_t len = strlen(prefix);
    for (size_t i = 0; name && i < all->count; i++) {
        const struct run_entity *e = all->at[i];
        if (e->kind == RUN_FIGURE && e->info.id.pid == of->info.id.pid &&
            strncmp(e->name, prefix, len) == 0 && strcmp(e->name + len, name) == 0)
            return e;
    }
    return NULL;
}

uint64_t run_peak(const struct run *run)
{
    return run->peak_bytes ? run->peak_bytes : run->job.peak_bytes;
}

int64_t run_planned_steps(const struct run *run)
{
    const struct run_marks *steps = run ? &run->marks[MARK_STEP] : NULL;
    for (size_t i = steps ? steps->count : 0; i > 0; i--)
        if (steps->at[i - 1].has & MARK_HAS_MAX_STEPS)
            return steps->at[i - 1].max_steps;
    return 0;
}
