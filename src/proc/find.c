/* Which of the machine's processes trains: evidence, weights, and a launcher's real child. */
#include "proc/find.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "proc/node.h"

/* ---- every process of the machine in one pass over /proc, with its relations and role ---- */

enum { SCAN_NONE = -1 };

struct scan_process {
    struct process_info info;
    uint64_t rss_bytes;
    int parent; /* index, or SCAN_NONE */
    size_t children;
    bool excluded; /* ourselves, or above us */
    bool denied;   /* may not be examined */
    struct role_maps maps;
    bool child_trains;
    char why[128];   /* of its role */
    char device[32]; /* the first GPU device file it has open; "" if none */
    bool device_is_nvidia;
};

struct proc_scan {
    struct scan_process *v; /* by pid, ascending */
    size_t n;
};

enum { MAPS_BYTES_MAX = 16 << 20 };

static int compare_scanned_pids(const void *a, const void *b)
{
    int32_t x = ((const struct scan_process *)a)->info.id.pid;
    int32_t y = ((const struct scan_process *)b)->info.id.pid;
    return (x > y) - (x < y);
}

/* Index, or SCAN_NONE. */
static int proc_scan_find(const struct proc_scan *s, int32_t pid)
{
    const struct scan_process key = {.info.id.pid = pid};
    const struct scan_process *p =
        s->n ? bsearch(&key, s->v, s->n, sizeof key, compare_scanned_pids) : NULL;
    return p ? (int)(p - s->v) : SCAN_NONE;
}

static void proc_scan_fini(struct proc_scan *s)
{
    free(s->v);
    *s = (struct proc_scan){0};
}

/* False for what died meanwhile, zombies and kernel threads: they have no address space. (Their
 * rss is no test: the kernel keeps it per CPU in batches, and a small process may show 0.) */
static bool read_process(const struct proc_root *root, int32_t pid, struct scan_process *ret)
{
    char name[16];
    struct proc_stat st;
    struct stat dir;
    if (proc_read_stat(root, pid, &st) < 0 || st.size_bytes == 0)
        return false;
    memset(ret, 0, sizeof *ret);
    struct process_info *info = &ret->info;
    info->id = (struct process_id){pid, st.start_ticks};
    info->ppid = st.ppid;
    info->comm_len = st.comm_len;
    memcpy(info->comm, st.comm, sizeof info->comm);
    ret->rss_bytes = pages_to_bytes(root, st.rss_pages);
    /* one byte of it goes to a NUL that is not part of the name */
    ssize_t len = proc_read(root, pid, "cmdline", info->cmdline, sizeof info->cmdline);
    while (len > 0 && info->cmdline[len - 1] == '\0')
        len--;
    info->cmdline_len = len > 0 ? (uint16_t)len : 0;
    snprintf(name, sizeof name, "%d", pid);
    if (fstatat(root->proc_fd, name, &dir, 0) == 0)
        info->uid = dir.st_uid;
    return true;
}

/* A parent is older, and of two as old has the lower pid: another with that pid is not the parent.
 * So no chain of parents is a circle, whatever recorded or racing files claim. */
static void link_parents(struct proc_scan *s)
{
    for (size_t i = 0; i < s->n; i++) {
        int p = proc_scan_find(s, s->v[i].info.ppid);
        const struct process_id *id = &s->v[i].info.id;
        const struct process_id *above = p != SCAN_NONE ? &s->v[p].info.id : id;
        bool is_older = above->start_ticks < id->start_ticks ||
                        (above->start_ticks == id->start_ticks && above->pid < id->pid);
        s->v[i].parent = is_older ? p : SCAN_NONE;
        if (is_older)
            s->v[p].children++;
    }
}

static int proc_scan_read(const struct proc_root *root, struct proc_scan *ret)
{
    struct pid_dir dir;
    int32_t pid;
    struct proc_scan s = {0};
    size_t cap = 0;
    int r = pid_dir_open(&dir, root->proc_fd, ".");
    if (r < 0)
        return r;
    while (pid_dir_next(&dir, &pid)) {
        if (!ARRAY_ROOM(s.v, s.n, cap)) {
            r = -ENOMEM;
            break;
        }
        if (read_process(root, pid, &s.v[s.n]))
            s.n++;
    }
    pid_dir_close(&dir);
    if (r < 0) {
        proc_scan_fini(&s);
        return r;
    }
    if (s.n > 0)
        qsort(s.v, s.n, sizeof *s.v, compare_scanned_pids);
    link_parents(&s);
    *ret = s;
    return 0;
}

/* True when ABOVE is a (strict) ancestor of I. */
static bool proc_scan_is_below(const struct proc_scan *s, size_t i, size_t above)
{
    for (int p = s->v[i].parent; p != SCAN_NONE; p = s->v[p].parent)
        if (p == (int)above)
            return true;
    return false;
}

/* Better evidence replaces weaker: /dev/nvidia0 over /dev/nvidiactl over a DRM node. */
static bool note_device(struct scan_process *p, const char *path)
{
    bool nvidia = strncmp(path, "/dev/nvidia", 11) == 0;
    bool numbered = nvidia && path[11] >= '0' && path[11] <= '9';
    if (!nvidia && strncmp(path, "/dev/dri/render", 15) != 0)
        return false;
    if (p->device[0] == '\0' || (nvidia && !p->device_is_nvidia) || numbered) {
        snprintf(p->device, sizeof p->device, "%.31s", path);
        p->device_is_nvidia = nvidia;
    }
    return numbered;
}

static void read_devices(int dir_fd, struct scan_process *p)
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
        if (note_device(p, path))
            break;
    }
    pid_dir_close(&fds);
}

/* Reads what I has mapped and, with DEVICES, open. Costs up to a few ms for a large process, in
 * short reads. */
static void proc_scan_examine(const struct proc_root *root, struct proc_scan *s, size_t i,
                              bool devices)
{
    struct scan_process *p = &s->v[i];
    char name[16];
    snprintf(name, sizeof name, "%d", p->info.id.pid);
    AUTO_CLOSE int dir = openat(root->proc_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return;
    AUTO_CLOSE int fd = openat(dir, "maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        p->denied = errno == EACCES || errno == EPERM;
        return;
    }
    proc_read_maps(fd, MAPS_BYTES_MAX, role_maps_add, &p->maps);
    if (devices)
        read_devices(dir, p);
}

static bool update_role(struct proc_scan *s, size_t i)
{
    struct scan_process *p = &s->v[i];
    struct scan_process *parent = p->parent != SCAN_NONE ? &s->v[p->parent] : NULL;
    struct role_input in = {
        .process = &p->info,
        .parent = parent ? &parent->info : NULL,
        .maps = p->maps,
        .siblings = parent ? parent->children - 1 : 0,
        .child_trains = p->child_trains,
    };
    struct role_guess guess;
    role_guess(&in, &guess);
    bool changed = guess.role != p->info.role;
    p->info.role = guess.role;
    memcpy(p->why, guess.why, sizeof p->why);
    return changed;
}

static bool update_child_trains(struct proc_scan *s)
{
    bool changed = false;
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].info.role != ROLE_MAIN || !role_maps_library(&s->v[i].maps))
            continue;
        for (int p = s->v[i].parent; p != SCAN_NONE; p = s->v[p].parent) {
            changed |= !s->v[p].child_trains;
            s->v[p].child_trains = true;
        }
    }
    return changed;
}

/* A role hangs on the parent's: a few passes settle it, since pids mostly grow downwards. */
static void proc_scan_roles(struct proc_scan *s)
{
    enum { PASSES_MAX = 16 };
    bool changed = true;
    for (int pass = 0; changed && pass < PASSES_MAX; pass++) {
        changed = false;
        for (size_t i = 0; i < s->n; i++)
            changed |= update_role(s, i);
        changed |= update_child_trains(s);
    }
}

/* ---- evidence ---- */

/* The weights. A library that only training and inference map outweighs everything else
 * together that a shell history could produce; a GPU held open is next. Python alone is nothing,
 * and breaks ties. */
enum {
    WEIGHT_LIBRARY = 50,
    WEIGHT_NVIDIA = 30,
    WEIGHT_TRAINER = 25,
    WEIGHT_DRM = 10, /* desktops have them open too */
    WEIGHT_CUDA = 10,
    WEIGHT_PYTHON = 5,
    SCORE_MIN = 25,
    EXAMINED_RSS_BYTES = 100 << 20, /* smaller ones are examined only if they are Python */
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
    while (len > 0 && isdigit((unsigned char)s[len - 1])) /* train2 */
        len--;
    for (size_t i = 0; i < sizeof trainer_words / sizeof *trainer_words; i++)
        if (len == strlen(trainer_words[i]) && strncasecmp(s, trainer_words[i], len) == 0)
            return true;
    return false;
}

/* One of the words of the last part of a path: "x/run-train_lora.py" has run, train, lora, py. */
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

/* Whether an argument names a trainer. The text of -c is a program, not an argument. */
static bool names_trainer(const struct process_info *info)
{
    const char *p = info->cmdline, *end = p + info->cmdline_len;
    bool code = false;
    for (bool first = true; p < end; first = false) {
        const char *nul = memchr(p, '\0', (size_t)(end - p));
        size_t len = (size_t)((nul ? nul : end) - p);
        if (!first && !code && has_trainer_word(p, len))
            return true;
        code = len == 2 && memcmp(p, "-c", 2) == 0;
        p += len + 1;
    }
    return false;
}

static bool is_python_process(const struct scan_process *p)
{
    const struct process_info *i = &p->info;
    return p->maps.python || role_is_python_command(i->cmdline, i->cmdline_len) ||
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

/* The score, 0 where it is too little to be called evidence. REASONS is added to. */
static int weigh_evidence(const struct scan_process *p, char *reasons, size_t size)
{
    const char *library = role_maps_library(&p->maps);
    bool python = is_python_process(p);
    int score = python ? WEIGHT_PYTHON : 0;
    if (library) {
        score += WEIGHT_LIBRARY;
        add_reason(reasons, size, "%s mapped", library);
    }
    if (p->device[0] != '\0') {
        score += p->device_is_nvidia ? WEIGHT_NVIDIA : WEIGHT_DRM;
        add_reason(reasons, size, "%s open", p->device);
    }
    if (p->maps.cuda) {
        score += WEIGHT_CUDA;
        add_reason(reasons, size, "libcuda mapped");
    }
    if (python && names_trainer(&p->info)) {
        score += WEIGHT_TRAINER;
        add_reason(reasons, size, "trainer on its command line");
    }
    /* a display server holds the GPU as well, but computes nothing on it */
    bool computes = library || python || p->maps.cuda;
    return computes && score >= SCORE_MIN ? score : 0;
}

static bool ancestor_has_score(const struct proc_scan *s, const int *score, size_t i)
{
    for (int p = s->v[i].parent; p != SCAN_NONE; p = s->v[p].parent)
        if (score[p] > 0)
            return true;
    return false;
}

/* The launcher that started I as one of several ranks; SCAN_NONE if none did. */
static int rank_launcher(const struct proc_scan *s, size_t i)
{
    for (int p = s->v[i].parent; p != SCAN_NONE; p = s->v[p].parent) {
        const struct scan_process *l = &s->v[p];
        if (l->info.role != ROLE_LAUNCHER || l->excluded)
            return SCAN_NONE;
        if (role_starts_ranks(&l->info))
            return p;
    }
    return SCAN_NONE;
}

struct ranked {
    size_t index;
    int score;
    int group; /* the launcher of its ranks, or SCAN_NONE */
    size_t ranks;
    uint64_t rss_bytes;
};

static int best_first(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    if (x->rss_bytes != y->rss_bytes)
        return x->rss_bytes < y->rss_bytes ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Adds one that trains, or counts it to the ranks of its launcher. */
static void add_ranked(const struct proc_scan *s, struct ranked *v, size_t *n, size_t i, int score)
{
    int group = rank_launcher(s, i);
    struct ranked *r = NULL;
    for (size_t k = 0; group != SCAN_NONE && !r && k < *n; k++)
        if (v[k].group == group)
            r = &v[k];
    if (!r) {
        v[(*n)++] = (struct ranked){i, score, group, 1, s->v[i].rss_bytes};
        return;
    }
    r->ranks++;
    if (score > r->score || (score == r->score && s->v[i].rss_bytes > r->rss_bytes)) {
        r->index = i;
        r->score = score;
    }
    if (s->v[i].rss_bytes > r->rss_bytes)
        r->rss_bytes = s->v[i].rss_bytes;
}

static void fill_candidate(const struct proc_scan *s, const struct ranked *r,
                           struct find_candidate *ret)
{
    const struct scan_process *p = &s->v[r->index];
    const struct scan_process *above = p->parent != SCAN_NONE ? &s->v[p->parent] : NULL;
    memset(ret, 0, sizeof *ret);
    ret->process = p->info;
    ret->rss_bytes = r->rss_bytes;
    ret->score = r->score;
    ret->ranks = r->ranks;
    if (above && above->info.role == ROLE_LAUNCHER && !above->excluded)
        ret->launcher = above->info.id.pid;
    if (r->ranks > 1) {
        const struct process_info *l = &s->v[r->group].info;
        const char *name = role_launcher_name(l->cmdline, l->cmdline_len);
        ret->process = *l;
        ret->launcher = l->id.pid;
        add_reason(ret->reasons, sizeof ret->reasons, "%zu ranks of %s", r->ranks,
                   name ? name : "torchrun");
    }
    (void)weigh_evidence(p, ret->reasons, sizeof ret->reasons);
}

static int rank_all(struct proc_scan *s, int *score, struct ranked *ranked)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        char ignored[256] = "";
        const struct scan_process *p = &s->v[i];
        bool may_train =
            !p->excluded && !p->denied && (p->info.role == ROLE_MAIN || p->info.role == ROLE_OTHER);
        score[i] = may_train ? weigh_evidence(p, ignored, sizeof ignored) : 0;
    }
    for (size_t i = 0; i < s->n; i++)
        if (score[i] > 0 && !ancestor_has_score(s, score, i))
            add_ranked(s, ranked, &n, i, score[i]);
    if (n > 0)
        qsort(ranked, n, sizeof *ranked, best_first);
    return (int)n;
}

int find_training(const struct proc_root *root, int32_t self_pid, struct find_candidate *ret,
                  size_t max, struct err *err)
{
    struct proc_scan s;
    int r = proc_scan_read(root, &s);
    if (r < 0)
        return err_set(err, r, "cannot list the processes in /proc: %s", strerror(-r));
    for (int p = proc_scan_find(&s, self_pid); p != SCAN_NONE; p = s.v[p].parent)
        s.v[p].excluded = true;
    for (size_t i = 0; i < s.n; i++)
        if (!s.v[i].excluded &&
            (s.v[i].rss_bytes > EXAMINED_RSS_BYTES || is_python_process(&s.v[i])))
            proc_scan_examine(root, &s, i, true);
    proc_scan_roles(&s);

    int *score = calloc(s.n + 1, sizeof *score);
    struct ranked *ranked = calloc(s.n + 1, sizeof *ranked);
    if (!score || !ranked) {
        r = err_set(err, -ENOMEM, "not enough memory to list %zu processes", s.n);
    } else {
        r = rank_all(&s, score, ranked);
        for (size_t i = 0; i < (size_t)r && i < max; i++)
            fill_candidate(&s, &ranked[i], &ret[i]);
    }
    free(score);
    free(ranked);
    proc_scan_fini(&s);
    return r;
}

/* Following a launcher */

struct choice {
    int best;                /* index, or SCAN_NONE */
    size_t count;            /* of those as good */
    uint64_t next_rss_bytes; /* of the largest but one */
};

static void choose_larger(const struct proc_scan *s, struct choice *c, size_t i)
{
    c->count++;
    if (c->best == SCAN_NONE) {
        c->best = (int)i;
        return;
    }
    uint64_t rss = s->v[i].rss_bytes, best = s->v[c->best].rss_bytes;
    if (rss > best)
        c->best = (int)i;
    uint64_t other = rss > best ? best : rss;
    if (other > c->next_rss_bytes)
        c->next_rss_bytes = other;
}

/* True when a process between I and TOP is no launcher: then I is a worker or tool of that one. */
static bool has_worker_above(const struct proc_scan *s, size_t i, size_t top, bool trains)
{
    for (int p = s->v[i].parent; p != SCAN_NONE && p != (int)top; p = s->v[p].parent) {
        const struct scan_process *a = &s->v[p];
        if (trains ? a->info.role == ROLE_MAIN && role_maps_library(&a->maps) != NULL
                   : a->info.role != ROLE_LAUNCHER)
            return true;
    }
    return false;
}

static struct choice choose_below(const struct proc_scan *s, size_t top, bool trains)
{
    struct choice c = {.best = SCAN_NONE};
    for (size_t i = 0; i < s->n; i++) {
        const struct scan_process *p = &s->v[i];
        bool fits = trains ? p->info.role == ROLE_MAIN && role_maps_library(&p->maps) != NULL
                           : p->info.role == ROLE_MAIN || p->info.role == ROLE_OTHER;
        if (fits && proc_scan_is_below(s, i, top) && !has_worker_above(s, i, top, trains))
            choose_larger(s, &c, i);
    }
    return c;
}

/* A name in a sentence: one line, whatever it holds. */
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

static int32_t follow_launcher(const struct proc_scan *s, size_t top, char why[256])
{
    const struct process_info *launcher = &s->v[top].info;
    char what[96], comm[PROCESS_COMM_MAX + 1];
    describe_launcher(launcher, what);
    struct choice c = choose_below(s, top, true);
    bool trains = c.count > 0;
    if (!trains)
        c = choose_below(s, top, false);
    if (c.count == 0) {
        snprintf(why, 256, "%d is %s, with nothing below it yet; watching all it starts",
                 launcher->id.pid, what);
        return launcher->id.pid;
    }
    const struct scan_process *best = &s->v[c.best];
    if (c.count > 1 && (trains || best->rss_bytes / 2 <= c.next_rss_bytes)) {
        snprintf(why, 256, "%d is %s, with %zu processes below it%s; watching them all",
                 launcher->id.pid, what, c.count, trains ? " that train" : "");
        return launcher->id.pid;
    }
    const char *library = role_maps_library(&best->maps);
    snprintf(why, 256, "%d is %s; following %d (%s), which %s%s", launcher->id.pid, what,
             best->info.id.pid, plain_name(&best->info, comm),
             trains         ? "has "
             : c.count == 1 ? "it started"
                            : "is the largest below it",
             trains ? library : "");
    if (trains)
        strncat(why, " mapped", 255 - strlen(why));
    return best->info.id.pid;
}

/* A worker is watched when asked for, but the person may have meant the one above it. */
static void explain_worker(const struct proc_scan *s, size_t i, char why[256])
{
    const struct scan_process *p = &s->v[i];
    if (p->info.role == ROLE_MAIN || p->info.role == ROLE_OTHER)
        return;
    snprintf(why, 256, "%d is a %s of %d (%s); watching it alone", p->info.id.pid,
             process_role_name(p->info.role), p->info.ppid, p->why);
}

/* Threads are not listed in /proc, but their numbers can be opened there. */
static int refuse_missing(const struct proc_root *root, int32_t pid, struct err *err)
{
    char text[4096];
    struct proc_status st;
    ssize_t len = proc_read(root, pid, "status", text, sizeof text);
    if (len > 0 && proc_status_parse(text, (size_t)len, &st) == 0 && (st.has & STATUS_TGID) &&
        st.tgid != pid)
        return proc_refuse_thread(root, pid, st.tgid, err);
    return err_set(err, -ESRCH, "there is no process %d, or it has ended", pid);
}

int find_real_process(const struct proc_root *root, int32_t pid, int32_t *ret_pid,
                      char ret_why[256], struct err *err)
{
    struct proc_scan s;
    int r = proc_scan_read(root, &s);
    if (r < 0)
        return err_set(err, r, "cannot list the processes in /proc: %s", strerror(-r));
    int top = proc_scan_find(&s, pid);
    if (top == SCAN_NONE) {
        r = refuse_missing(root, pid, err);
        goto out;
    }
    proc_scan_examine(root, &s, (size_t)top, false);
    if (s.v[top].denied) {
        r = err_set(err, -EACCES,
                    "process %d belongs to user %u and its files may not be read; "
                    "run ebb as that user or as root",
                    pid, s.v[top].info.uid);
        goto out;
    }
    for (size_t i = 0; i < s.n; i++)
        if (proc_scan_is_below(&s, i, (size_t)top))
            proc_scan_examine(root, &s, i, false);
    proc_scan_roles(&s);
    ret_why[0] = '\0';
    *ret_pid = pid;
    if (s.v[top].info.role == ROLE_LAUNCHER)
        *ret_pid = follow_launcher(&s, (size_t)top, ret_why);
    else
        explain_worker(&s, (size_t)top, ret_why);
out:
    proc_scan_fini(&s);
    return r;
}
