/* The processes of a job: their births and deaths, and their readings at each tick. */
#include "proc/tree.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "proc/command.h"
#include "proc/node.h"

/* Number of fds left for the rest of the program: the recording, sockets, the job's pipes. */
enum { FDS_FOR_OTHERS = 128 };

int proc_raise_nofile(struct rlimit *ret_old)
{
    struct rlimit old;
    if (getrlimit(RLIMIT_NOFILE, &old) < 0)
        return -errno;
    struct rlimit raised = {old.rlim_max, old.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) < 0)
        return -errno;
    *ret_old = old;
    return 0;
}

static size_t fds_allowed(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur <= FDS_FOR_OTHERS)
        return 0;
    rlim_t left = limit.rlim_cur - FDS_FOR_OTHERS;
    return left > INT32_MAX ? INT32_MAX : (size_t)left; /* RLIM_INFINITY is capped too */
}

int proc_tree_new(const struct proc_root *root, proc_event_fn *fn, void *user,
                  struct proc_tree **ret)
{
    struct proc_tree *tree = calloc(1, sizeof *tree);
    if (!tree)
        return -ENOMEM;
    tree->root = root;
    tree->fn = fn;
    tree->user = user;
    tree->fds.max = fds_allowed();
    if (proc_helper_new(&tree->helper) < 0)
        tree->helper = NULL;
    *ret = tree;
    return 0;
}

void proc_tree_free(struct proc_tree *tree)
{
    if (!tree)
        return;
    for (size_t i = 0; i < tree->count; i++)
        node_free(&tree->fds, tree->nodes[i]);
    for (size_t i = 0; i < tree->below_count; i++)
        node_free(&tree->fds, tree->below[i]);
    free(tree->nodes);
    free(tree->table);
    free(tree->below);
    free(tree->kin.pid);
    free(tree->scan);
    struct proc_helper *helper = tree->helper;
    if (!proc_helper_keeps(helper, tree))
        free(tree);
    proc_helper_free(helper);
}

struct proc_helper *proc_tree_helper(struct proc_tree *tree)
{
    return tree->helper;
}

void proc_tree_set_fd_budget(struct proc_tree *tree, size_t max)
{
    tree->fds.max = max;
}

void tree_emit(struct proc_tree *tree, struct tree_node *n, enum process_event_kind kind,
               uint64_t now_ns)
{
    const struct proc_event event = {kind, now_ns, &n->pub};
    if (tree->fn)
        tree->fn(tree->user, &event);
}

/* ---- hash table by pid ---- */

static size_t table_slot(const struct proc_tree *tree, int32_t pid)
{
    return (uint32_t)pid * UINT32_C(2654435769) & (tree->table_size - 1);
}

static void table_put(struct proc_tree *tree, struct tree_node *n)
{
    size_t i = table_slot(tree, n->pub.info.id.pid);
    while (tree->table[i] && tree->table[i]->pub.info.id.pid != n->pub.info.id.pid)
        i = (i + 1) & (tree->table_size - 1);
    tree->table[i] = n; /* the new process replaces a dead process with the same pid */
}

static void table_fill(struct proc_tree *tree)
{
    memset(tree->table, 0, tree->table_size * sizeof(struct tree_node *));
    for (size_t i = 0; i < tree->count; i++)
        if (tree->nodes[i]->pub.alive)
            table_put(tree, tree->nodes[i]);
}

/* Doubles the size of the hash table when it is half full. */
static int table_grow(struct proc_tree *tree)
{
    if (tree->count * 2 < tree->table_size)
        return 0;
    size_t size = tree->table_size == 0 ? 64 : tree->table_size * 2;
    struct tree_node **table = calloc(size, sizeof(struct tree_node *));
    if (!table)
        return -ENOMEM;
    free(tree->table);
    tree->table = table;
    tree->table_size = size;
    table_fill(tree);
    return 0;
}

struct tree_node *tree_find(const struct proc_tree *tree, int32_t pid)
{
    if (tree->table_size == 0)
        return NULL;
    for (size_t i = table_slot(tree, pid); tree->table[i]; i = (i + 1) & (tree->table_size - 1))
        if (tree->table[i]->pub.info.id.pid == pid)
            return tree->table[i]->pub.alive ? tree->table[i] : NULL;
    return NULL;
}

/* ---- births and deaths ---- */

static void put_status(struct tree_node *n, const struct proc_status *st)
{
    const struct {
        uint32_t bit;
        unsigned field;
        uint64_t bytes;
    } parts[] = {
        {STATUS_ANON, SAMPLE_ANON, st->anon_bytes},    {STATUS_FILE, SAMPLE_FILE, st->file_bytes},
        {STATUS_SHMEM, SAMPLE_SHMEM, st->shmem_bytes}, {STATUS_SWAP, SAMPLE_SWAP, st->swap_bytes},
        {STATUS_HWM, SAMPLE_PEAK, st->hwm_bytes},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (st->has & parts[i].bit)
            sample_put(&n->pub.sample, parts[i].field, parts[i].bytes);
    if (st->has & STATUS_UID)
        n->pub.info.uid = st->uid;
}

/* Stores the memory reading M. Also called at birth, so that a process that dies before the next
 * tick has a reading. */
static void put_statm(const struct proc_tree *tree, struct tree_node *n, const struct proc_statm *m)
{
    uint64_t anon = m->rss_pages > m->shared_pages ? m->rss_pages - m->shared_pages : 0;
    sample_put(&n->pub.sample, SAMPLE_RSS, pages_to_bytes(tree->root, m->rss_pages));
    n->anon_bytes = pages_to_bytes(tree->root, anon);
}

static void first_readings(struct proc_tree *tree, struct tree_node *n)
{
    struct proc_status status;
    struct proc_statm m;
    if (node_read_status(tree->root, n, &status) == 0)
        put_status(n, &status);
    if (node_read_statm(tree->root, n, &m) == 0 && m.size_pages > 0)
        put_statm(tree, n, &m);
}

/* ---- reads that may wait for a lock of the process ---- */

int tree_read_slowly(struct proc_tree *tree, const struct tree_node *n, const char *name,
                     proc_helper_fn *fn)
{
    enum { WALK_MS = 200 };
    const uint64_t began_ns = clock_mono_ns();
    if (tree->waited_ns > WALK_MS * NS_PER_MS || proc_helper_is_busy(tree->helper))
        return -EAGAIN;
    tree->slow.fd = node_open(tree->root, n, name, O_RDONLY);
    if (tree->slow.fd < 0)
        return tree->slow.fd;
    int r = proc_helper_call(tree->helper, fn, &tree->slow, NULL);
    tree->waited_ns += clock_mono_ns() - began_ns;
    return r;
}

static void read_cmdline(void *arg)
{
    struct slow_read *slow = arg;
    slow->len = read(slow->fd, slow->text, sizeof slow->text);
    close(slow->fd);
}

/* Names a Ray worker after its actor or task, without the method that is running. Between two calls
 * the title is "ray::IDLE", and the worker keeps its previous name. */
static void name_after_ray_title(struct process_info *info, const struct process_info *before)
{
    struct span name, old;
    if (!command_ray_title(info->cmdline, info->cmdline_len, &name))
        return;
    if (span_is(name, "ray::IDLE") &&
        command_ray_title(before->cmdline, before->cmdline_len, &old)) {
        *info = *before;
        return;
    }
    info->cmdline_len = (uint16_t)name.len;
    info->comm_len = (uint16_t)(name.len < PROCESS_COMM_MAX ? name.len : PROCESS_COMM_MAX);
    memcpy(info->comm, name.p, info->comm_len);
}

void tree_read_names(struct proc_tree *tree, struct tree_node *n)
{
    struct process_info *info = &n->pub.info;
    const struct process_info before = *info;
    struct proc_stat st;
    if (node_read_stat(tree->root, n, &st) == 0) {
        n->comm_seen_len = st.comm_len;
        memcpy(n->comm_seen, st.comm, sizeof n->comm_seen);
        info->comm_len = st.comm_len;
        memcpy(info->comm, st.comm, sizeof info->comm);
    }
    int r = tree_read_slowly(tree, n, "cmdline", read_cmdline);
    n->names_due = r == -EAGAIN || r == -EINPROGRESS;
    if (n->names_due)
        return;
    ssize_t len = r < 0 ? 0 : tree->slow.len;
    while (len > 0 && tree->slow.text[len - 1] == '\0')
        /* remove NULs at the end: the terminator of the last argument, or the padding of a title */
        len--;
    info->cmdline_len = len > 0 ? (uint16_t)len : 0;
    if (len > 0)
        memcpy(info->cmdline, tree->slow.text, (size_t)len);
    name_after_ray_title(info, &before);
}

int tree_birth(struct proc_tree *tree, int32_t pid, bool is_root, uint64_t now_ns)
{
    int r = ARRAY_ROOM(tree->nodes, tree->count, tree->cap) ? table_grow(tree) : -ENOMEM;
    if (r < 0)
        return r;
    struct tree_node *n;
    r = node_new(tree->root, &tree->fds, pid, tree->all && !is_root, &n);
    if (r < 0)
        return r;
    n->pub.slot = tree->next_slot++;
    n->pub.is_root = is_root;
    n->pub.born_ns = now_ns;
    n->walk = tree->walk;
    first_readings(tree, n);
    tree_read_names(tree, n);
    tree->nodes[tree->count++] = n;
    table_put(tree, n);
    settle_newborn(tree, n, now_ns);
    tree_emit(tree, n, PROCESS_BORN, now_ns);
    return 0;
}

void tree_death(struct proc_tree *tree, struct tree_node *n, uint64_t now_ns)
{
    n->pub.alive = false;
    n->pub.died_ns = now_ns;
    tree->dead++;
    tree->kin_dirty = true;
    tree_emit(tree, n, PROCESS_DIED, now_ns);
}

void tree_bury(struct proc_tree *tree)
{
    if (tree->dead == 0)
        return;
    size_t kept = 0;
    for (size_t i = 0; i < tree->count; i++) {
        struct tree_node *n = tree->nodes[i];
        if (n->pub.alive)
            tree->nodes[kept++] = n;
        else
            node_free(&tree->fds, n);
    }
    tree->count = kept;
    tree->dead = 0;
    table_fill(tree);
}

/* ---- the tick ---- */

static void tick_node(struct proc_tree *tree, struct tree_node *n, uint64_t now_ns)
{
    struct sample *s = &n->pub.sample;
    struct proc_statm m;
    int r = node_read_statm(tree->root, n, &m);
    if (r == -ESRCH || (r == 0 && m.size_pages == 0)) {
        if (node_is_gone(tree->root, &tree->fds, n)) {
            tree_death(tree, n, now_ns);
            return;
        }
        if (n->tid != 0)
            r = node_read_statm(tree->root, n, &m);
    }
    if (r == 0 && m.size_pages > 0)
        put_statm(tree, n, &m);
    else if (r < 0)
        s->stale |= 1u << SAMPLE_RSS;
}

void proc_tree_tick(struct proc_tree *tree, uint64_t now_ns)
{
    for (size_t i = 0; i < tree->count; i++)
        tick_node(tree, tree->nodes[i], now_ns);
    tree_bury(tree);
}

void proc_tree_clear_read(struct proc_tree *tree)
{
    for (size_t i = 0; i < tree->count; i++)
        tree->nodes[i]->pub.sample.read = 0;
}

int proc_node_read_status(struct proc_tree *tree, struct proc_node *node)
{
    struct tree_node *n = node_of(node);
    struct proc_status st;
    int r = node_read_status(tree->root, n, &st);
    if (r < 0)
        return r;
    if (!(st.has & STATUS_ANON) && node_is_gone(tree->root, &tree->fds, n))
        return -ESRCH;
    put_status(n, &st);
    return 0;
}

int proc_node_read_pss(struct proc_tree *tree, struct proc_node *node)
{
    AUTO_CLOSE int fd = proc_node_open(tree, node, "smaps_rollup", O_RDONLY);
    if (fd < 0)
        return fd;
    char text[4096];
    ssize_t len = pread(fd, text, sizeof text, 0);
    if (len <= 0)
        return len < 0 ? -errno : -ESRCH;
    uint64_t bytes;
    int r = proc_smaps_rollup_parse(text, (size_t)len, &bytes);
    if (r == 0)
        sample_put(&node->sample, SAMPLE_PSS, bytes);
    return r;
}

int proc_node_open(struct proc_tree *tree, struct proc_node *node, const char *name, int flags)
{
    return node_open(tree->root, node_of(node), name, flags);
}

size_t proc_tree_count(const struct proc_tree *tree)
{
    return tree->count;
}

struct proc_node *proc_tree_at(struct proc_tree *tree, size_t i)
{
    assert(i < tree->count && "stale index: nodes move at each walk, tick and add");
    return &tree->nodes[i]->pub;
}

struct proc_node *proc_tree_find(struct proc_tree *tree, int32_t pid)
{
    struct tree_node *n = tree_find(tree, pid);
    return n ? &n->pub : NULL;
}

void proc_tree_note_step(struct proc_tree *tree, int32_t pid)
{
    struct tree_node *n = tree_find(tree, pid);
    if (!n || n->sends_steps)
        return;
    n->sends_steps = n->role_dirty = true;
}

const struct proc_root *proc_tree_root(const struct proc_tree *tree)
{
    return tree->root;
}
