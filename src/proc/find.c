/* Finds training processes by adding up weighted evidence, and finds the training process below a
 * launcher. */
#include "proc/find.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/number.h"
#include "proc/command.h"
#include "proc/node.h"

/* Evidence about one process of the tree. */
struct finding {
    bool is_excluded; /* the process is ebb itself or one of its ancestors */
    bool is_denied;   /* permission to read the process's mappings is missing */
    int score;
    char device[32]; /* the GPU device file that the process has open; "" if there is none */
    bool device_is_nvidia;
};

struct machine_scan {
    struct proc_tree *tree;
    /* one entry per process; the `user` pointer of the process's tree node points to it */
    struct finding *findings;
};

enum { MAPS_BYTES_MAX = 16 << 20 };

static void machine_scan_fini(struct machine_scan *s)
{
    proc_tree_free(s->tree);
    free(s->findings);
}

static int machine_scan_read(const struct proc_root *root, struct machine_scan *ret,
                             struct err *err)
{
    struct machine_scan s = {0};
    int r = proc_tree_new(root, NULL, NULL, &s.tree);
    if (r < 0) {
        err_set(err, r, "cannot list processes: %s", strerror(-r));
        return r;
    }
    /* no fds need to stay open, because every file is read only once */
    proc_tree_set_fd_budget(s.tree, 0);
    r = proc_tree_add_all(s.tree, 0, err);
    if (r == 0) {
        s.findings = calloc(s.tree->count + 1, sizeof *s.findings);
        r = s.findings ? 0 : err_set(err, -ENOMEM, "not enough memory to list processes");
    }
    for (size_t i = 0; r == 0 && i < s.tree->count; i++)
        s.tree->nodes[i]->pub.user = &s.findings[i];
    if (r < 0)
        machine_scan_fini(&s);
    else
        *ret = s;
    return r;
}

static struct finding *finding_of(const struct tree_node *n)
{
    return n->pub.user;
}

/* Returns the parent of N, or NULL. If the process with the parent's pid is younger than N, it is
 * not the parent: the pid was reused. Ignoring such a process also guarantees that chains of
 * parents contain no cycle, even if the files of /proc are inconsistent. */
static struct tree_node *older_parent(const struct proc_tree *tree, const struct tree_node *n)
{
    struct tree_node *parent = tree_find(tree, n->pub.info.ppid);
    const struct process_id *id = &n->pub.info.id;
    if (!parent || parent->pub.info.id.start_ticks > id->start_ticks ||
        (parent->pub.info.id.start_ticks == id->start_ticks && parent->pub.info.id.pid >= id->pid))
        return NULL;
    return parent;
}

static bool is_descendant(const struct proc_tree *tree, const struct tree_node *n,
                          const struct tree_node *of)
{
    while (n && n != of)
        n = older_parent(tree, n);
    return n;
}

static uint64_t rss_of(const struct tree_node *n)
{
    return n->pub.sample.v[SAMPLE_RSS];
}

/* Stores the device PATH if it is stronger evidence than the stored device. /dev/nvidia0 is the
 * strongest, followed by /dev/nvidiactl and DRM nodes. */
static bool note_device(struct finding *f, const char *path)
{
    bool nvidia = strncmp(path, "/dev/nvidia", 11) == 0;
    bool numbered = nvidia && path[11] >= '0' && path[11] <= '9';
    if (!nvidia && strncmp(path, "/dev/dri/render", 15) != 0)
        return false;
    if (f->device[0] == '\0' || (nvidia && !f->device_is_nvidia) || numbered) {
        snprintf(f->device, sizeof f->device, "%.31s", path);
        f->device_is_nvidia = nvidia;
    }
    return numbered;
}

static void read_devices(int dir_fd, struct finding *f)
{
    enum { FDS_MAX = 4096 };
    struct pid_dir fds;
    int32_t fd;
    char name[16], path[64];
    if (pid_dir_open(&fds, dir_fd, "fd") < 0)
        return;
    for (int i = 0; i < FDS_MAX && pid_dir_next(&fds, &fd); i++) {
        snprintf(name, sizeof name, "%d", fd);
        ssize_t n = readlinkat(fds.fd, name, path, sizeof path - 1);
        if (n <= 0)
            continue;
        path[n] = '\0';
        if (note_device(f, path))
            break;
    }
    pid_dir_close(&fds);
}

/* Reads the mappings of N and, if DEVICES is set, the list of its open files. Many short reads are
 * made, which together take a few milliseconds for a large process. */
static void examine(const struct proc_tree *tree, struct tree_node *n, bool devices)
{
    AUTO_CLOSE int temporary = -1;
    int dir = node_folder(tree->root, n, &temporary);
    AUTO_CLOSE int fd = dir < 0 ? -1 : node_open(tree->root, n, "maps", O_RDONLY);
    finding_of(n)->is_denied = fd == -EACCES || fd == -EPERM;
    n->role_dirty = true;
    if (fd < 0)
        return;
    proc_read_maps(fd, MAPS_BYTES_MAX, role_maps_add, &n->maps);
    if (devices)
        read_devices(dir, finding_of(n));
}

/* ---- evidence ---- */

/* Weights of evidence. A library that only training and inference use outweighs any text on a
 * command line. An open GPU device is the second strongest evidence. Python alone is not evidence,
 * but decides between equal candidates. */
enum {
    WEIGHT_LIBRARY = 50,
    WEIGHT_NVIDIA = 30,
    WEIGHT_TRAINER = 25,
    WEIGHT_DRM = 10, /* a weak hint, because desktop programs open DRM nodes too */
    WEIGHT_CUDA = 10,
    WEIGHT_PYTHON = 5,
    SCORE_MIN = 25,
    /* processes smaller than this are examined only if they run Python */
    EXAMINED_RSS_BYTES = 100 << 20,
};

static const char *const trainer_words[] = {
    "train",        "trainer",   "training",     "pretrain", "pretraining", "finetune",
    "finetuning",   "tune",      "sft",          "dpo",      "grpo",        "ppo",
    "rlhf",         "lora",      "qlora",        "distill",  "accelerate",  "lightning",
    "torchrun",     "deepspeed", "transformers", "trl",      "unsloth",     "axolotl",
    "llamafactory", "megatron",  "nanogpt",      "clm",      "mlm",
};

static bool is_trainer_word(const char *s, size_t len)
{
    /* ignore trailing digits, as in "train2" */
    while (len > 0 && isdigit((unsigned char)s[len - 1]))
        len--;
    for (size_t i = 0; i < sizeof trainer_words / sizeof *trainer_words; i++)
        if (len == strlen(trainer_words[i]) && strncasecmp(s, trainer_words[i], len) == 0)
            return true;
    return false;
}

/* True if the last component of a path contains a training word. "x/run-train_lora.py" consists of
 * the words run, train, lora and py. */
static bool has_trainer_word(const char *s, size_t len)
{
    const char *slash = len > 0 ? memrchr(s, '/', len) : NULL;
    const char *end = s + len, *p = slash ? slash + 1 : s;
    while (p < end) {
        const char *word = p;
        while (p < end && isalnum((unsigned char)*p))
            p++;
        if (is_trainer_word(word, (size_t)(p - word)))
            return true;
        p += p < end;
    }
    return false;
}

/* True if an argument contains a training word. The text after -c is Python code and is not
 * searched. */
static bool names_trainer(const struct process_info *info)
{
    struct span rest = {info->cmdline, info->cmdline_len}, arg;
    bool is_code = true; /* true at first, so that the program itself is skipped */
    while (command_next(&rest, &arg)) {
        if (!is_code && has_trainer_word(arg.p, arg.len))
            return true;
        is_code = span_is(arg, "-c");
    }
    return false;
}

static bool is_python_process(const struct tree_node *n)
{
    const struct process_info *i = &n->pub.info;
    return n->maps.python || role_is_python_command(i->cmdline, i->cmdline_len) ||
           (i->comm_len >= 3 && memcmp(i->comm, "pt_", 3) == 0);
}

static void add_reason(char *reasons, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void add_reason(char *reasons, size_t size, const char *fmt, ...)
{
    size_t len = strlen(reasons);
    va_list ap;
    if (len > 0 && len + 2 < size) {
        memcpy(reasons + len, "; ", 3);
        len += 2;
    }
    va_start(ap, fmt);
    vsnprintf(reasons + len, size - len, fmt, ap);
    va_end(ap);
}

/* Computes the score of N, which is 0 if the evidence is too weak, and appends the reasons to
 * REASONS. */
static int weigh_evidence(const struct tree_node *n, char *reasons, size_t size)
{
    const struct finding *f = finding_of(n);
    const char *library = role_maps_library(&n->maps);
    bool python = is_python_process(n);
    int score = python ? WEIGHT_PYTHON : 0;
    if (library) {
        score += WEIGHT_LIBRARY;
        add_reason(reasons, size, "%s mapped", library);
    }
    if (f->device[0] != '\0') {
        score += f->device_is_nvidia ? WEIGHT_NVIDIA : WEIGHT_DRM;
        add_reason(reasons, size, "%s open", f->device);
    }
    if (n->maps.cuda) {
        score += WEIGHT_CUDA;
        add_reason(reasons, size, "libcuda mapped");
    }
    if (python && names_trainer(&n->pub.info)) {
        score += WEIGHT_TRAINER;
        add_reason(reasons, size, "training script on its command line");
    }
    /* a display server also has the GPU open, but does not train */
    bool computes = library || python || n->maps.cuda;
    return computes && score >= SCORE_MIN ? score : 0;
}

static bool ancestor_has_score(const struct proc_tree *tree, const struct tree_node *n)
{
    while ((n = older_parent(tree, n)))
        if (finding_of(n)->score > 0)
            return true;
    return false;
}

/* Returns the launcher that started N as one of several ranks, or NULL. */
static const struct tree_node *rank_launcher(const struct proc_tree *tree,
                                             const struct tree_node *n)
{
    while ((n = older_parent(tree, n))) {
        if (n->pub.info.role != ROLE_LAUNCHER || finding_of(n)->is_excluded)
            return NULL;
        if (role_starts_ranks(&n->pub.info))
            return n;
    }
    return NULL;
}

struct ranked {
    const struct tree_node *node;
    const struct tree_node *launcher; /* the launcher of this job's ranks, or NULL */
    size_t ranks;
    uint64_t rss_bytes;
};

static int best_first(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    int left = finding_of(x->node)->score, right = finding_of(y->node)->score;
    if (left != right)
        return left < right ? 1 : -1;
    if (x->rss_bytes != y->rss_bytes)
        return x->rss_bytes < y->rss_bytes ? 1 : -1;
    return x->node->pub.info.id.pid - y->node->pub.info.id.pid;
}

/* Adds a training process. If its launcher was added already, counts the process as one more rank
 * of the launcher. */
static void add_ranked(const struct proc_tree *tree, struct ranked *v, size_t *count,
                       const struct tree_node *n)
{
    const struct tree_node *launcher = rank_launcher(tree, n);
    struct ranked *r = NULL;
    for (size_t k = 0; launcher && !r && k < *count; k++)
        if (v[k].launcher == launcher)
            r = &v[k];
    if (!r) {
        v[(*count)++] = (struct ranked){n, launcher, 1, rss_of(n)};
        return;
    }
    int score = finding_of(n)->score, best = finding_of(r->node)->score;
    r->ranks++;
    if (score > best || (score == best && rss_of(n) > r->rss_bytes))
        r->node = n;
    r->rss_bytes = u64_max(r->rss_bytes, rss_of(n));
}

static void fill_candidate(const struct proc_tree *tree, const struct ranked *r,
                           struct find_candidate *ret)
{
    const struct tree_node *parent = older_parent(tree, r->node);
    *ret = (struct find_candidate){.process = r->node->pub.info,
                                   .rss_bytes = r->rss_bytes,
                                   .score = finding_of(r->node)->score,
                                   .ranks = r->ranks};
    if (parent && parent->pub.info.role == ROLE_LAUNCHER && !finding_of(parent)->is_excluded)
        ret->launcher = parent->pub.info.id.pid;
    if (r->ranks > 1) {
        const struct process_info *l = &r->launcher->pub.info;
        const char *name = role_launcher_name(l->cmdline, l->cmdline_len);
        ret->process = *l;
        ret->launcher = l->id.pid;
        add_reason(ret->reasons, sizeof ret->reasons, "%zu ranks of %s", r->ranks,
                   name ? name : "torchrun");
    }
    (void)weigh_evidence(r->node, ret->reasons, sizeof ret->reasons);
}

static size_t rank_all(const struct proc_tree *tree, struct ranked *ranked)
{
    size_t n = 0;
    for (size_t i = 0; i < tree->count; i++) {
        char ignored[256] = "";
        const struct tree_node *node = tree->nodes[i];
        struct finding *f = finding_of(node);
        enum process_role role = node->pub.info.role;
        bool may_train =
            !f->is_excluded && !f->is_denied && (role == ROLE_MAIN || role == ROLE_OTHER);
        f->score = may_train ? weigh_evidence(node, ignored, sizeof ignored) : 0;
    }
    for (size_t i = 0; i < tree->count; i++)
        if (finding_of(tree->nodes[i])->score > 0 && !ancestor_has_score(tree, tree->nodes[i]))
            add_ranked(tree, ranked, &n, tree->nodes[i]);
    if (n > 0)
        qsort(ranked, n, sizeof *ranked, best_first);
    return n;
}

int find_training(const struct proc_root *root, int32_t self_pid, struct find_candidate *ret,
                  size_t max, struct err *err)
{
    struct machine_scan s;
    int r = machine_scan_read(root, &s, err);
    if (r < 0)
        return r;
    for (struct tree_node *n = tree_find(s.tree, self_pid); n; n = older_parent(s.tree, n))
        finding_of(n)->is_excluded = true;
    for (size_t i = 0; i < s.tree->count; i++) {
        struct tree_node *n = s.tree->nodes[i];
        if (!finding_of(n)->is_excluded && (rss_of(n) > EXAMINED_RSS_BYTES || is_python_process(n)))
            examine(s.tree, n, true);
    }
    settle_roles(s.tree, 0);
    struct ranked *ranked = calloc(s.tree->count + 1, sizeof *ranked);
    if (!ranked) {
        r = err_set(err, -ENOMEM, "not enough memory to list processes");
    } else {
        r = (int)rank_all(s.tree, ranked);
        for (size_t i = 0; i < (size_t)r && i < max; i++)
            fill_candidate(s.tree, &ranked[i], &ret[i]);
    }
    free(ranked);
    machine_scan_fini(&s);
    return r;
}

/* ---- following a launcher ---- */

struct choice {
    const struct tree_node *best;
    size_t count;            /* number of descendants that are equally good matches */
    uint64_t next_rss_bytes; /* resident memory of the second largest of these descendants */
};

static void choose_larger(struct choice *c, const struct tree_node *n)
{
    c->count++;
    if (!c->best) {
        c->best = n;
        return;
    }
    uint64_t rss = rss_of(n), best = rss_of(c->best);
    if (rss > best)
        c->best = n;
    c->next_rss_bytes = u64_max(c->next_rss_bytes, u64_min(rss, best));
}

static bool maps_trainer(const struct tree_node *n)
{
    return n->pub.info.role == ROLE_MAIN && role_maps_library(&n->maps);
}

/* True if N is a worker or a tool of a process between N and TOP. If TRAINS, only a process that
 * maps a training library counts, otherwise any process that is not a launcher. */
static bool has_worker_above(const struct proc_tree *tree, const struct tree_node *n,
                             const struct tree_node *top, bool trains)
{
    while ((n = older_parent(tree, n)) && n != top)
        if (trains ? maps_trainer(n) : n->pub.info.role != ROLE_LAUNCHER)
            return true;
    return false;
}

static struct choice choose_below(const struct proc_tree *tree, const struct tree_node *top,
                                  bool trains)
{
    struct choice c = {0};
    for (size_t i = 0; i < tree->count; i++) {
        const struct tree_node *n = tree->nodes[i];
        enum process_role role = n->pub.info.role;
        bool fits = trains ? maps_trainer(n) : role == ROLE_MAIN || role == ROLE_OTHER;
        if (fits && n != top && is_descendant(tree, n, top) &&
            !has_worker_above(tree, n, top, trains))
            choose_larger(&c, n);
    }
    return c;
}

/* Returns the process's name with control characters replaced, for a one-line message. */
static const char *plain_name(const struct process_info *info, char ret[PROCESS_COMM_MAX + 1])
{
    size_t n = info->comm_len < PROCESS_COMM_MAX ? info->comm_len : PROCESS_COMM_MAX;
    for (size_t i = 0; i < n; i++)
        ret[i] = (unsigned char)info->comm[i] < ' ' || info->comm[i] == 0x7f ? '?' : info->comm[i];
    ret[n] = '\0';
    return ret;
}

static void describe_launcher(const struct process_info *info, char ret[96])
{
    const char *name = role_launcher_name(info->cmdline, info->cmdline_len);
    char comm[PROCESS_COMM_MAX + 1];
    if (name)
        snprintf(ret, 96, "`%s`, a launcher", name);
    else
        snprintf(ret, 96, "a launcher (%s)", plain_name(info, comm));
}

static int32_t follow_launcher(const struct proc_tree *tree, const struct tree_node *top,
                               char why[256])
{
    int32_t pid = top->pub.info.id.pid;
    char what[96], comm[PROCESS_COMM_MAX + 1];
    describe_launcher(&top->pub.info, what);
    struct choice c = choose_below(tree, top, true);
    bool trains = c.count > 0;
    if (!trains)
        c = choose_below(tree, top, false);
    if (c.count == 0) {
        snprintf(why, 256,
                 "process %d is %s, which has not started a process yet; watching all "
                 "processes that it starts",
                 pid, what);
        return pid;
    }
    if (c.count > 1 && (trains || rss_of(c.best) / 2 <= c.next_rss_bytes)) {
        snprintf(why, 256, "process %d is %s, with %zu descendants%s; watching them all", pid, what,
                 c.count, trains ? " that train" : "");
        return pid;
    }
    int32_t real = c.best->pub.info.id.pid;
    snprintf(why, 256, "process %d is %s; following process %d (%s), which %s%s%s", pid, what, real,
             plain_name(&c.best->pub.info, comm),
             trains         ? "has "
             : c.count == 1 ? "it started"
                            : "is its largest descendant",
             trains ? role_maps_library(&c.best->maps) : "", trains ? " mapped" : "");
    return real;
}

/* Writes to WHY that PID is a worker. The worker is watched as requested, but the user may have
 * meant its parent. */
static void explain_worker(const struct proc_tree *tree, const struct tree_node *n, char why[256])
{
    const struct process_info *info = &n->pub.info;
    struct role_guess guess;
    if (info->role == ROLE_MAIN || info->role == ROLE_OTHER)
        return;
    tree_guess_role(tree, n, &guess);
    snprintf(why, 256, "process %d (%s) is a %s of process %d; watching only %d", info->id.pid,
             guess.why, process_role_name(info->role), info->ppid, info->id.pid);
}

int find_real_process(const struct proc_root *root, int32_t pid, int32_t *ret_pid,
                      char ret_why[256], struct err *err)
{
    struct machine_scan s;
    int r = machine_scan_read(root, &s, err);
    if (r < 0)
        return r;
    r = tree_check_pid(s.tree, pid, err);
    struct tree_node *top = r == 0 ? tree_find(s.tree, pid) : NULL;
    if (r == 0 && !top)
        r = err_set(err, -ESRCH, "process %d has exited", pid);
    for (size_t i = 0; r == 0 && i < s.tree->count; i++)
        if (is_descendant(s.tree, s.tree->nodes[i], top))
            examine(s.tree, s.tree->nodes[i], false);
    if (r == 0) {
        settle_roles(s.tree, 0);
        ret_why[0] = '\0';
        *ret_pid = pid;
        if (top->pub.info.role == ROLE_LAUNCHER)
            *ret_pid = follow_launcher(s.tree, top, ret_why);
        else
            explain_worker(s.tree, top, ret_why);
    }
    machine_scan_fini(&s);
    return r;
}
