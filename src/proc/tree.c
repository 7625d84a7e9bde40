/* The set of processes of a job: who joins, who leaves, and what is read of each at a tick. */
#include "proc/tree.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "proc/node.h"

/* Left for the rest of the program: the recording, sockets, the job's pipes. */
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
    return left > INT32_MAX ? INT32_MAX : (size_t)left; /* RLIM_INFINITY */
}

int proc_tree_new(const struct proc_root *root, proc_event_fn *fn, void *user,
                  struct proc_tree **ret)
{
    struct proc_tree *tree = calloc(1, sizeof(*tree));
    if (tree == NULL)
        return -ENOMEM;
    tree->root = root;
    tree->fn = fn;
    tree->user = user;
    tree->fds.max = fds_allowed();
    tree->meminfo_fd = openat(root->proc_fd, "meminfo", O_RDONLY | O_CLOEXEC);
    *ret = tree;
    return 0;
}

void proc_tree_free(struct proc_tree *tree)
{
    if (tree == NULL)
        return;
    for (size_t i = 0; i < tree->count; i++)
        node_free(&tree->fds, tree->nodes[i]);
    for (size_t i = 0; i < tree->below_count; i++)
        node_free(&tree->fds, tree->below[i]);
    if (tree->meminfo_fd >= 0)
        close(tree->meminfo_fd);
    free(tree->nodes);
    free(tree->table);
    free(tree->below);
    free(tree->kin.pid);
    free(tree->scan);
    free(tree);
}

void proc_tree_set_fd_budget(struct proc_tree *tree, size_t max)
{
    tree->fds.max = max;
}

void tree_emit(struct proc_tree *tree, struct tree_node *n, enum process_event_kind kind,
               int32_t old_ppid, uint64_t now_ns)
{
    const struct proc_event event = {kind, now_ns, &n->pub, old_ppid};
    if (tree->fn != NULL)
        tree->fn(tree->user, &event);
}

/* The table by pid. */

static size_t slot_of(const struct proc_tree *tree, int32_t pid)
{
    return (uint32_t)pid * UINT32_C(2654435769) & (tree->table_size - 1);
}

static void table_put(struct proc_tree *tree, struct tree_node *n)
{
    size_t i = slot_of(tree, n->pub.info.id.pid);
    while (tree->table[i] != NULL && tree->table[i]->pub.info.id.pid != n->pub.info.id.pid)
        i = (i + 1) & (tree->table_size - 1);
    tree->table[i] = n; /* a dead one of the same pid gives way */
}

static void table_fill(struct proc_tree *tree)
{
    memset(tree->table, 0, tree->table_size * sizeof(struct tree_node *));
    for (size_t i = 0; i < tree->count; i++)
        if (tree->nodes[i]->pub.alive)
            table_put(tree, tree->nodes[i]);
}

/* At most half full. */
static int table_grow(struct proc_tree *tree)
{
    if (tree->count * 2 < tree->table_size)
        return 0;
    size_t size = tree->table_size == 0 ? 64 : tree->table_size * 2;
    struct tree_node **table = calloc(size, sizeof(struct tree_node *));
    if (table == NULL)
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
    for (size_t i = slot_of(tree, pid); tree->table[i] != NULL;
         i = (i + 1) & (tree->table_size - 1))
        if (tree->table[i]->pub.info.id.pid == pid)
            return tree->table[i]->pub.alive ? tree->table[i] : NULL;
    return NULL;
}

/* Births and deaths. */

static int make_room(struct proc_tree *tree)
{
    if (tree->count == tree->cap) {
        size_t cap = tree->cap == 0 ? 32 : tree->cap * 2;
        struct tree_node **nodes = reallocarray(tree->nodes, cap, sizeof(struct tree_node *));
        if (nodes == NULL)
            return -ENOMEM;
        tree->nodes = nodes;
        tree->cap = cap;
    }
    return table_grow(tree);
}

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
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (st->has & parts[i].bit)
            sample_put(&n->pub.sample, parts[i].field, parts[i].bytes);
    if (st->has & STATUS_UID)
        n->pub.info.uid = st->uid;
}

/* So that one that dies before the next tick has left some reading behind. */
static void first_readings(struct proc_tree *tree, struct tree_node *n)
{
    struct proc_status status;
    struct proc_statm m;
    if (node_read_status(tree->root, n, &status) == 0)
        put_status(n, &status);
    if (node_read_statm(tree->root, n, &m) == 0 && m.size_pages > 0)
        sample_put(&n->pub.sample, SAMPLE_RSS, pages_to_bytes(tree->root, m.rss_pages));
}

static int give_birth(struct proc_tree *tree, int32_t pid, bool is_root, uint64_t now_ns,
                      struct tree_node **ret)
{
    int r = make_room(tree);
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
    tree->nodes[tree->count++] = n;
    table_put(tree, n);
    settle_newborn(tree, n, now_ns);
    tree_emit(tree, n, PROCESS_BORN, 0, now_ns);
    if (ret != NULL)
        *ret = n;
    return 0;
}

static void die(struct proc_tree *tree, struct tree_node *n, uint64_t now_ns)
{
    n->pub.alive = false;
    n->pub.died_ns = now_ns;
    tree->dead++;
    tree->kin_dirty = true;
    tree_emit(tree, n, PROCESS_DIED, 0, now_ns);
}

static void bury(struct proc_tree *tree)
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

/* The walk. */

/* Another program, or only another name? The stack of a new program begins elsewhere; where that
 * is not told (no rights), or not so (no address randomisation), a new name together with a new
 * file, or with a new command line where the file is secret, is taken for one. */
/* The kernel moves the start of the stack twice during one exec. A look in between has found no
 * arguments yet, and already the program that is still there. */
static bool was_midway(const struct proc_tree *tree, const struct tree_node *n,
                       const struct process_info *before)
{
    dev_t dev;
    ino_t ino;
    return before->cmdline_len == 0 && (n->exe_dev != 0 || n->exe_ino != 0) &&
           node_read_exe(tree->root, n, &dev, &ino) && dev == n->exe_dev && ino == n->exe_ino;
}

static bool has_execed(const struct proc_tree *tree, const struct tree_node *n,
                       const struct proc_stat *st, const struct process_info *before)
{
    const struct process_info *now = &n->pub.info;
    if (st->start_stack != 0 && n->start_stack != 0 && st->start_stack != n->start_stack)
        return !was_midway(tree, n, before);
    if (now->comm_len == before->comm_len && memcmp(now->comm, before->comm, now->comm_len) == 0)
        return false;
    dev_t dev;
    ino_t ino;
    if ((n->exe_dev != 0 || n->exe_ino != 0) && node_read_exe(tree->root, n, &dev, &ino))
        return dev != n->exe_dev || ino != n->exe_ino;
    return now->cmdline_len != before->cmdline_len ||
           memcmp(now->cmdline, before->cmdline, now->cmdline_len) != 0;
}

static void note_names(struct proc_tree *tree, struct tree_node *n, const struct proc_stat *st,
                       uint64_t now_ns)
{
    const struct process_info *info = &n->pub.info;
    bool renamed =
        st->comm_len != info->comm_len || memcmp(st->comm, info->comm, info->comm_len) != 0;
    bool new_stack =
        st->start_stack != 0 && n->start_stack != 0 && st->start_stack != n->start_stack;
    if (!renamed && !new_stack) {
        if (n->start_stack == 0)
            n->start_stack = st->start_stack;
        return;
    }
    const struct process_info before = *info;
    node_read_names(tree->root, n);
    n->role_dirty = true;
    bool execed = has_execed(tree, n, st, &before);
    if (new_stack)
        n->start_stack = st->start_stack;
    if (!execed)
        return;
    n->start_stack = st->start_stack;
    if (!node_read_exe(tree->root, n, &n->exe_dev, &n->exe_ino))
        n->exe_dev = 0, n->exe_ino = 0;
    /* what was counted belongs to a program that is no more */
    n->pub.sample.known &= ~(1u << SAMPLE_UNIQUE | 1u << SAMPLE_HUGE | 1u << SAMPLE_HEAP |
                             1u << SAMPLE_STACK | 1u << SAMPLE_PSS | 1u << SAMPLE_PEAK);
    n->unique_due_ns = n->unique_done_ns = 0;
    n->unique_failures = 0;
    settle_execed(n, now_ns);
    tree_emit(tree, n, PROCESS_EXECED, 0, now_ns);
}

static void refresh(struct proc_tree *tree, struct tree_node *n, uint64_t now_ns)
{
    n->walk = tree->walk;
    struct proc_stat st;
    int r = node_read_stat(tree->root, n, &st);
    if (r == -ESRCH || (r == 0 && st.size_bytes == 0)) {
        if (r == -ESRCH || node_is_gone(tree->root, &tree->fds, n)) {
            die(tree, n, now_ns);
            return;
        }
    }
    if (r < 0)
        return; /* no fd to be had just now: not a death */
    n->threads = st.threads;
    n->size_bytes = st.size_bytes;
    node_keep_fds(tree->root, &tree->fds, n);
    note_names(tree, n, &st, now_ns);
    if (st.ppid != n->pub.info.ppid) {
        int32_t old = n->pub.info.ppid;
        n->pub.info.ppid = st.ppid;
        tree->kin_dirty = true;
        n->role_dirty = true;
        tree_emit(tree, n, PROCESS_REPARENTED, old, now_ns);
    }
}

/* PID was seen where processes of the job are: known, or reused, or new. */
static int meet(struct proc_tree *tree, int32_t pid, uint64_t now_ns)
{
    struct tree_node *n = tree_find(tree, pid);
    if (n != NULL && n->walk != tree->walk)
        refresh(tree, n, now_ns);
    if (n != NULL && n->pub.alive)
        return 0;
    int r = give_birth(tree, pid, false, now_ns, NULL);
    return r == -ENOMEM ? r : 0; /* gone again, or not to be read now: the next walk will tell */
}

static int meet_children(struct proc_tree *tree, const struct tree_node *n, uint64_t now_ns)
{
    int r = kin_children(tree, n);
    for (size_t i = 0; r != -ENOMEM && i < tree->kin.count; i++) {
        int met = meet(tree, tree->kin.pid[i], now_ns);
        if (met < 0)
            r = met;
    }
    return r == -ENOMEM ? r : 0;
}

/* Nodes from FROM on, those that join on the way included. */
static int walk_nodes(struct proc_tree *tree, size_t from, uint64_t now_ns)
{
    int r = 0;
    for (size_t i = from; r == 0 && i < tree->count; i++) {
        struct tree_node *n = tree->nodes[i];
        if (n->pub.alive && n->walk != tree->walk)
            refresh(tree, n, now_ns);
        if (n->pub.alive && !tree->all)
            r = meet_children(tree, n, now_ns);
    }
    return r;
}

static int walk_machine(struct proc_tree *tree, uint64_t now_ns)
{
    struct pid_dir pids;
    int r = pid_dir_open(&pids, tree->root->proc_fd, ".");
    if (r < 0)
        return r;
    int32_t pid;
    while (r == 0 && pid_dir_next(&pids, &pid))
        r = meet(tree, pid, now_ns);
    pid_dir_close(&pids);
    return r;
}

static int walk_below(struct proc_tree *tree, uint64_t now_ns)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < tree->below_count; i++) {
        struct tree_node *n = tree->below[i];
        struct proc_stat st;
        if (node_read_stat(tree->root, n, &st) < 0)
            continue;
        n->threads = st.threads;
        r = meet_children(tree, n, now_ns);
    }
    return r;
}

static void begin_walk(struct proc_tree *tree)
{
    tree->walk++;
}

static void end_walk(struct proc_tree *tree, uint64_t now_ns)
{
    settle_roles(tree, now_ns);
    bury(tree);
}

int proc_tree_walk(struct proc_tree *tree, uint64_t now_ns)
{
    begin_walk(tree);
    int r = tree->all ? walk_machine(tree, now_ns) : 0;
    if (r == 0)
        r = walk_below(tree, now_ns);
    if (r == 0)
        r = walk_nodes(tree, 0, now_ns);
    end_walk(tree, now_ns);
    return r;
}

/* Adding roots. */

static const char *user_name(uint32_t uid, char *buf, size_t size)
{
    char text[1024];
    struct passwd pw, *found = NULL;
    if (getpwuid_r(uid, &pw, text, sizeof(text), &found) == 0 && found != NULL)
        snprintf(buf, size, "%s", pw.pw_name);
    else
        snprintf(buf, size, "uid %u", uid);
    return buf;
}

static int say_why_not(struct err *err, int code, int32_t pid)
{
    switch (code) {
    case -ESRCH:
        return err_set(err, code,
                       "there is no process %d (any more): `ps -e` lists those there are", pid);
    case -EPERM:
    case -EACCES:
        return err_set(err, -EACCES,
                       "process %d may not be looked at: /proc hides the processes of other users "
                       "here; run ebb as root",
                       pid);
    default:
        return err_set(err, code, "cannot look at process %d: %s", pid, strerror(-code));
    }
}

/* Memory is private to a user: whoever may not open maps gets neither unique memory nor PSS. */
static int check_root(struct proc_tree *tree, struct tree_node *n, struct err *err)
{
    int32_t pid = n->pub.info.id.pid;
    struct proc_status st = {0};
    if (node_read_status(tree->root, n, &st) == 0 && (st.has & STATUS_TGID) && st.tgid != pid)
        return proc_refuse_thread(tree->root, pid, st.tgid, err);
    AUTO_CLOSE int maps = node_open(tree->root, n, "maps", O_RDONLY);
    if (maps == -EACCES || maps == -EPERM) {
        char name[64];
        return err_set(err, -EACCES,
                       "process %d belongs to %s and its memory may not be looked at: run ebb as "
                       "that user or as root",
                       pid, user_name(st.uid, name, sizeof(name)));
    }
    if (n->size_bytes == 0 && n->tid == 0)
        return err_set(err, -EINVAL, "%d is a thread of the kernel: it has no memory of its own",
                       pid);
    return 0;
}

/* A look before anything is added, so that a refusal leaves no trace in the recording. */
static int check_pid(struct proc_tree *tree, int32_t pid, struct err *err)
{
    struct tree_node *n = NULL;
    int r = pid > 0 ? node_new(tree->root, &tree->fds, pid, false, &n) : -ESRCH;
    if (r < 0)
        return say_why_not(err, r, pid);
    r = check_root(tree, n, err);
    node_free(&tree->fds, n);
    return r;
}

int proc_tree_add(struct proc_tree *tree, int32_t pid, uint64_t now_ns, struct err *err)
{
    int r = check_pid(tree, pid, err);
    if (r < 0)
        return r;
    begin_walk(tree);
    size_t from = tree->count;
    struct tree_node *n = tree_find(tree, pid);
    if (n != NULL)
        refresh(tree, n, now_ns);
    if (n != NULL && n->pub.alive)
        n->pub.is_root = true;
    else
        r = give_birth(tree, pid, true, now_ns, NULL);
    if (r < 0)
        return say_why_not(err, r, pid);
    r = walk_nodes(tree, from, now_ns);
    for (size_t i = from; i < tree->count; i++)
        tree->nodes[i]->maps_due_ns = now_ns; /* it may have been running for long */
    end_walk(tree, now_ns);
    return r < 0 ? say_why_not(err, r, pid) : 0;
}

int proc_tree_add_below(struct proc_tree *tree, int32_t pid, uint64_t now_ns, struct err *err)
{
    struct tree_node **below =
        reallocarray(tree->below, tree->below_count + 1, sizeof(struct tree_node *));
    if (below == NULL)
        return say_why_not(err, -ENOMEM, pid);
    tree->below = below;
    struct tree_node *n;
    int r = pid > 0 ? node_new(tree->root, &tree->fds, pid, false, &n) : -ESRCH;
    if (r < 0)
        return say_why_not(err, r, pid);
    tree->below[tree->below_count++] = n;
    begin_walk(tree);
    size_t from = tree->count;
    r = walk_below(tree, now_ns);
    if (r == 0)
        r = walk_nodes(tree, from, now_ns);
    end_walk(tree, now_ns);
    return r < 0 ? say_why_not(err, r, pid) : 0;
}

int proc_tree_add_all(struct proc_tree *tree, uint64_t now_ns, struct err *err)
{
    tree->all = true;
    int r = proc_tree_walk(tree, now_ns);
    return r < 0 ? err_set(err, r, "cannot list the processes of this machine: %s", strerror(-r))
                 : 0;
}

/* The tick. */

static void tick_node(struct proc_tree *tree, struct tree_node *n, uint64_t now_ns)
{
    struct sample *s = &n->pub.sample;
    struct proc_statm m;
    int r = node_read_statm(tree->root, n, &m);
    if (r == -ESRCH || (r == 0 && m.size_pages == 0)) {
        if (node_is_gone(tree->root, &tree->fds, n)) {
            die(tree, n, now_ns);
            return;
        }
        if (n->tid != 0)
            r = node_read_statm(tree->root, n, &m);
    }
    if (r == 0 && m.size_pages > 0)
        sample_put(s, SAMPLE_RSS, pages_to_bytes(tree->root, m.rss_pages));
    else if (r < 0)
        s->stale |= 1u << SAMPLE_RSS;
}

int proc_tree_tick(struct proc_tree *tree, uint64_t now_ns)
{
    for (size_t i = 0; i < tree->count; i++)
        tick_node(tree, tree->nodes[i], now_ns);
    bury(tree);
    return 0;
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
    ssize_t len = pread(fd, text, sizeof(text), 0);
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
    assert(i < tree->count && "an index from before the last walk, tick or add");
    return &tree->nodes[i]->pub;
}

struct proc_node *proc_tree_find(struct proc_tree *tree, int32_t pid)
{
    struct tree_node *n = tree_find(tree, pid);
    return n != NULL ? &n->pub : NULL;
}

const struct proc_root *proc_tree_root(const struct proc_tree *tree)
{
    return tree->root;
}
