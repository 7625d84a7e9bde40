/* Decides when each process's heap is read, and which processes get a history file. */
#include "profile/collect.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/number.h"
#include "mark/mark.h"
#include "profile/table_socket.h"
#include "profile/store.h"
#include "profile/words.h"

enum {
    NAME_TRIES = 100, /* heap.PID-N.ebbheap */
    WORTH_A_FILE_BYTES = 1 << 20,
};
#define FIRST_READING_NS (2 * NS_PER_S)
#define BUDGET_NS (4 * NS_PER_MS)
/* A reading that is due waits for the next step of the job, but not longer than this. */
#define MARK_PATIENCE_NS (10 * NS_PER_S)
#define CLOSE_NS (5 * NS_PER_S)
#define FIGURES_NS NS_PER_S
/* At most 1/FIGURES_SHARE of ebb's time is spent on reading the figures (live and allocated bytes)
 * of a process. */
enum { FIGURES_SHARE = 200 };

/* Progress of a process or of the job, derived from marks. */
struct pace {
    bool has_step, has_epoch;
    int64_t step;
    double epoch;
};

struct process {
    struct collect *collect;
    int32_t pid;
    struct live_table table;
    /* Pidfd, or negative if there is none; then only collect_gone reports the exit. */
    int pidfd;
    struct loop_source *source;
    /* Writer of the file; NULL if there is no file or it is already closed. */
    struct store_writer *writer;
    char name[48]; /* name of the history file, or "" */
    uint64_t file_bytes;
    /* Time at which the process connected, and time of its last reading (0 before the first). */
    uint64_t first_ns, reading_ns;
    struct pace pace; /* progress according to the process's own marks */
    bool is_wanted;
    enum store_why why;
    double live_bytes;
    struct profile_cost cost;
    uint64_t figures_ns, figures_cost_ns;
    unsigned figures_sent; /* one bit for each figure that was ever above 0 */
    struct profile_gpu gpus[HEAP_GPUS];
    uint64_t gpus_used, gpu_failures;
    bool has_gpu_numbers;
    /* gpu_number[i] is the driver's number of the GPU that has number i in the process. */
    uint8_t gpu_number[HEAP_GPUS];
};

enum trouble_kind { TROUBLE_DISK, TROUBLE_TABLE, TROUBLE_MANY, TROUBLE_KINDS };
struct trouble {
    int code; /* 0: none */
    bool is_reported;
    struct err err;
};

struct collect {
    struct loop *loop;
    struct table_socket *socket;
    int dirfd;
    struct process *living[COLLECT_TABLES];
    size_t count, turn;
    struct process *gone[COLLECT_FILES]; /* exited processes that have a file */
    /* Number of files of living and exited processes, at most COLLECT_FILES. */
    size_t gone_count, files;
    struct pace pace;
    uint64_t not_followed, without_file;
    struct trouble troubles[TROUBLE_KINDS];
    collect_figure_fn *on_figure;
    collect_gpu_fn *on_gpu;
    void *user;
};

static void note_trouble(struct collect *c, enum trouble_kind kind, int code, const struct err *err)
{
    if (c->troubles[kind].code == 0)
        c->troubles[kind] = (struct trouble){.code = code, .err = *err};
}

int collect_trouble(struct collect *c, struct err *err)
{
    for (unsigned i = 0; i < TROUBLE_KINDS; i++) {
        struct trouble *t = &c->troubles[i];
        if (t->code != 0 && !t->is_reported) {
            t->is_reported = true;
            return err_set(err, t->code, "%s", t->err.text);
        }
    }
    return 0;
}

/* ---- files ---- */

static void check_disk(struct process *p)
{
    int r = p->writer ? store_error(p->writer) : 0;
    struct err err;
    if (r == 0)
        return;
    err_set(&err, r, "%s: %s; the heap history of this process has gaps", p->name, strerror(-r));
    note_trouble(p->collect, TROUBLE_DISK, r, &err);
}

static void collected_free(struct process *p, uint64_t wait_ns)
{
    loop_remove(p->source);
    if (p->pidfd >= 0)
        close(p->pidfd);
    store_writer_close(p->writer, wait_ns);
    live_table_close(&p->table);
    free(p);
}

/* Deletes the file of the exited process that has the fewest live bytes. */
static bool make_room_for_file(struct collect *c)
{
    size_t least = 0;
    if (c->files < COLLECT_FILES)
        return true;
    if (c->gone_count == 0)
        return false;
    for (size_t i = 1; i < c->gone_count; i++)
        if (c->gone[i]->live_bytes < c->gone[least]->live_bytes)
            least = i;
    struct process *p = c->gone[least];
    unlinkat(c->dirfd, p->name, 0);
    c->gone[least] = c->gone[--c->gone_count];
    c->files--;
    c->without_file++;
    collected_free(p, 0);
    return true;
}

/* Returns true if the process has samples. The job's first process creates its table when it
 * starts, so this table may have no samples. */
static bool has_samples(const struct process *p)
{
    struct profile_cost cost;
    live_table_cost(&p->table, &cost);
    return cost.samples > 0;
}

static void open_file(struct process *p)
{
    struct collect *c = p->collect;
    struct err err = {""};
    if (p->writer || c->dirfd < 0 || !has_samples(p) || !make_room_for_file(c))
        return;
    int r = -EEXIST;
    for (int i = 1; r == -EEXIST && i <= NAME_TRIES; i++) {
        if (i == 1)
            snprintf(p->name, sizeof p->name, "heap.%d.ebbheap", (int)p->pid);
        else
            snprintf(p->name, sizeof p->name, "heap.%d-%d.ebbheap", (int)p->pid, i);
        r = store_create(c->dirfd, p->name, &p->table, &p->writer, &err);
    }
    if (r < 0) {
        p->name[0] = '\0';
        note_trouble(c, TROUBLE_DISK, r, &err);
        return;
    }
    c->files++;
}

/* ---- readings ---- */

static const struct pace *pace_of(const struct process *p)
{
    const struct pace *own = &p->pace;
    return own->has_step || own->has_epoch ? own : &p->collect->pace;
}

static double sampled_bytes(const struct live_table *table)
{
    struct live_samples live = {0};
    double bytes = 0;
    if (live_table_read(table, &live) == 0)
        for (size_t i = 0; i < live.count; i++)
            bytes += profile_weight_bytes(live.samples[i].size, live.samples[i].interval);
    live_samples_fini(&live);
    live_table_rest(table);
    return bytes;
}

/* Measures how much of the large blocks is resident. A process that has exited has no pagemap, so
 * its last measurement is kept. */
static void measure_large(struct process *p)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/pagemap", (int)p->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    live_table_measure(&p->table, fd);
    close(fd);
}

static void report_figures(struct process *p, uint64_t now_ns)
{
    struct collect *c = p->collect;
    uint64_t begin = clock_mono_ns();
    struct live_table_totals totals;
    measure_large(p);
    live_table_totals(&p->table, &totals);
    const struct {
        const char *name;
        double value;
    } figures[] = {
        {"heap_sampled", totals.heap},
        {"heap_shared", totals.shared},
        {"heap_pool", totals.pool},
        {"heap_allocated", (double)live_table_allocated_bytes(&p->table)},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        if (figures[i].value > 0)
            p->figures_sent |= 1U << i;
        if (p->figures_sent & 1U << i)
            c->on_figure(c->user, p->pid, figures[i].name, number_to_u64(figures[i].value));
    }
    p->figures_ns = now_ns;
    p->figures_cost_ns = clock_mono_ns() - begin;
}

/* Reads the driver's numbers of the GPUs that a process uses. For example, with
 * CUDA_VISIBLE_DEVICES="2,3" the process's GPU 0 is GPU 2 of the machine. If the variable contains
 * a name instead of a number, the process's own numbers are used. */
static void read_gpu_numbers(struct process *p)
{
    char path[32], environment[64 << 10];
    static const char name[] = "CUDA_VISIBLE_DEVICES=";
    for (unsigned i = 0; i < HEAP_GPUS; i++)
        p->gpu_number[i] = (uint8_t)i;
    p->has_gpu_numbers = true;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)p->pid);
    ssize_t len = io_read_small(AT_FDCWD, path, environment, sizeof environment);
    const char *at = environment, *end = environment + (len > 0 ? len : 0);
    while (at < end && strncmp(at, name, sizeof name - 1) != 0)
        at += strnlen(at, (size_t)(end - at)) + 1;
    if (at >= end)
        return;
    at += sizeof name - 1;
    for (unsigned i = 0; i < HEAP_GPUS && *at >= '0' && *at <= '9'; i++) {
        char *next;
        unsigned long number = strtoul(at, &next, 10);
        if (number < HEAP_GPUS)
            p->gpu_number[i] = (uint8_t)number;
        at = *next == ',' ? next + 1 : "";
    }
}

static void read_gpus(struct process *p)
{
    struct live_table_gpus now;
    live_table_gpus(&p->table, &now);
    memcpy(p->gpus, now.at, sizeof p->gpus);
    p->gpus_used = now.used;
    p->gpu_failures = now.oom_count;
}

static void report_gpus(struct process *p)
{
    struct collect *c = p->collect;
    read_gpus(p);
    if (p->gpus_used == 0)
        return;
    if (!p->has_gpu_numbers)
        read_gpu_numbers(p);
    for (unsigned i = 0; i < HEAP_GPUS; i++) {
        struct collect_gpu sum = {0};
        bool is_used = false;
        for (size_t k = 0; k < c->count; k++)
            for (unsigned g = 0; g < HEAP_GPUS; g++)
                if (c->living[k]->gpus[g].reports > 0 && c->living[k]->gpu_number[g] == i) {
                    is_used = true;
                    sum.allocated_bytes += c->living[k]->gpus[g].low_bytes;
                    sum.reserved_bytes += c->living[k]->gpus[g].reserved_bytes;
                    sum.peak_bytes += c->living[k]->gpus[g].allocated_peak_bytes;
                }
        if (is_used)
            c->on_gpu(c->user, i, &sum);
    }
}

void collect_on_figure(struct collect *c, collect_figure_fn *fn, collect_gpu_fn *on_gpu, void *user)
{
    c->on_gpu = on_gpu;
    c->on_figure = fn;
    c->user = user;
}

/* Writes a reading to the process's file, if it has one. */
static int take_reading(struct process *p, uint64_t now_ns, enum store_why why)
{
    const struct pace *pace = pace_of(p);
    int r = 0;
    if (why != STORE_LAST)
        measure_large(p);
    /* The mark that triggers this reading may be older than the last reading, but times must not
     * decrease. */
    if (now_ns < p->reading_ns)
        now_ns = p->reading_ns;
    live_table_cost(&p->table, &p->cost);
    if (p->writer) {
        r = store_take(p->writer, now_ns, pace->has_step, pace->step, why, &p->live_bytes);
        p->file_bytes = store_size_bytes(p->writer);
        check_disk(p);
    } else {
        p->live_bytes = sampled_bytes(&p->table);
    }
    p->reading_ns = now_ns;
    p->is_wanted = false;
    return r;
}

/* Returns 0 if no reading is due. Otherwise returns 1 ns plus the time for which a reading has been
 * due. */
static uint64_t due_for(const struct process *p, uint64_t now_ns)
{
    uint64_t elapsed = u64_minus(now_ns, p->first_ns);
    uint64_t interval =
        p->reading_ns > 0 ? store_interval_ns(elapsed, p->file_bytes) : FIRST_READING_NS;
    uint64_t passed = u64_minus(now_ns, p->reading_ns > 0 ? p->reading_ns : p->first_ns);
    return passed >= interval ? passed - interval + 1 : 0;
}

static void want(struct process *p, enum store_why why)
{
    if (!p->is_wanted || why > p->why)
        p->why = why;
    p->is_wanted = true;
}

/* Takes due readings. Starts after the process that was read last, so that every process gets
 * its turn. */
static void take_wanted(struct collect *c, uint64_t now_ns)
{
    uint64_t begin = clock_mono_ns();
    for (size_t i = 0; i < c->count; i++) {
        c->turn = c->turn + 1 < c->count ? c->turn + 1 : 0;
        struct process *p = c->living[c->turn];
        if (!p->is_wanted)
            continue;
        open_file(p);
        take_reading(p, now_ns, p->why);
        if (clock_mono_ns() - begin > BUDGET_NS)
            return;
    }
}

static void close_written(struct collect *c)
{
    for (size_t i = 0; i < c->gone_count; i++) {
        struct process *p = c->gone[i];
        if (!p->writer || store_flush(p->writer, 0) == -ETIMEDOUT)
            continue;
        check_disk(p);
        store_writer_close(p->writer, BUDGET_NS);
        p->writer = NULL;
    }
}

void collect_tick(struct collect *c, uint64_t now_ns)
{
    table_socket_tick(c->socket, now_ns);
    close_written(c);
    for (size_t i = 0; i < c->count; i++) {
        struct process *p = c->living[i];
        uint64_t patience = pace_of(p)->has_step ? MARK_PATIENCE_NS : 0;
        if (due_for(p, now_ns) > patience)
            want(p, STORE_DUE);
        uint64_t pause = p->figures_cost_ns * FIGURES_SHARE;
        if (c->on_figure && has_samples(p) &&
            u64_minus(now_ns, p->figures_ns) >= (pause > FIGURES_NS ? pause : FIGURES_NS))
            report_figures(p, now_ns);
        if (c->on_gpu)
            report_gpus(p);
    }
    take_wanted(c, now_ns);
}

/* ---- marks ---- */

struct event {
    bool is_step, is_first, is_epoch;
};

static struct event pace_update(struct pace *p, const struct mark *m)
{
    struct event e = {.is_step = m->kind == MARK_STEP, .is_epoch = m->kind == MARK_EPOCH};
    if (e.is_step) {
        e.is_first = !p->has_step;
        p->step = m->has & MARK_HAS_STEP ? m->step : p->step + 1;
        p->has_step = true;
    }
    if (m->has & MARK_HAS_EPOCH) {
        e.is_epoch = e.is_epoch || (p->has_epoch && floor(m->epoch) > floor(p->epoch));
        p->epoch = m->epoch;
        p->has_epoch = true;
    }
    return e;
}

void collect_mark(struct collect *c, const struct mark *mark)
{
    if (mark->kind != MARK_STEP && mark->kind != MARK_EPOCH)
        return;
    struct event of_job = pace_update(&c->pace, mark);
    for (size_t i = 0; i < c->count; i++) {
        struct process *p = c->living[i];
        bool is_sender = p->pid == mark->pid;
        struct event e = is_sender ? pace_update(&p->pace, mark) : of_job;
        if (!is_sender && pace_of(p) != &c->pace)
            continue;
        /* growth is measured from the end of the first step */
        bool is_begun = is_sender && e.is_first;
        if (is_begun || (e.is_epoch && p->reading_ns > 0))
            want(p, STORE_EPOCH);
        else if (e.is_step && due_for(p, mark->t_ns) > 0)
            want(p, STORE_DUE);
    }
    take_wanted(c, mark->t_ns);
}

/* ---- connecting and exiting ---- */

/* Takes the last reading of a process that has exited. Its table is complete even if the process
 * was killed. The file is closed once the reading is on disk. */
static void finish_process(struct collect *c, size_t at, uint64_t now_ns)
{
    struct process *p = c->living[at];
    c->living[at] = c->living[--c->count];
    loop_remove(p->source);
    p->source = NULL;
    read_gpus(p);
    if (!p->writer && (sampled_bytes(&p->table) >= WORTH_A_FILE_BYTES || p->gpu_failures > 0))
        open_file(p);
    if (!p->writer) {
        c->without_file += has_samples(p);
        collected_free(p, 0);
        return;
    }
    if (take_reading(p, now_ns, STORE_LAST) == -ENOBUFS && store_flush(p->writer, BUDGET_NS) == 0)
        take_reading(p, now_ns, STORE_LAST);
    live_table_close(&p->table);
    if (p->pidfd >= 0)
        close(p->pidfd);
    p->pidfd = -1;
    c->gone[c->gone_count++] = p;
}

void collect_gone(struct collect *c, int32_t pid, uint64_t now_ns)
{
    size_t at = 0;
    while (at < c->count && c->living[at]->pid != pid)
        at++;
    if (at < c->count)
        finish_process(c, at, now_ns);
}

static void on_pidfd(void *user, int fd, uint32_t events)
{
    struct process *p = user;
    (void)fd;
    (void)events;
    collect_gone(p->collect, p->pid, clock_mono_ns());
}

static void collect_add(struct collect *c, int32_t pid, struct live_table *table, uint64_t now_ns)
{
    struct process *p = c->count < COLLECT_TABLES ? calloc(1, sizeof *p) : NULL;
    struct err err;
    if (!p) {
        err_set(&err, -EMFILE,
                "more than %d profiled processes at the same time; additional processes are not "
                "profiled",
                COLLECT_TABLES);
        note_trouble(c, TROUBLE_MANY, -EMFILE, &err);
        c->not_followed++;
        live_table_close(table);
        return;
    }
    *p = (struct process){.collect = c, .pid = pid, .table = *table, .first_ns = now_ns};
    p->pidfd = io_pidfd_open(pid);
    bool is_gone = p->pidfd == -ESRCH;
    live_table_cost(table, &p->cost);
    c->living[c->count++] = p;
    if (is_gone)
        finish_process(c, c->count - 1, now_ns);
    else if (p->pidfd >= 0) /* without a pidfd, collect_gone reports the exit */
        loop_add_fd(c->loop, p->pidfd, EPOLLIN, on_pidfd, p, &p->source);
}

static void on_table(void *user, int32_t pid, int fd)
{
    struct collect *c = user;
    struct live_table table = {0};
    struct err err = {""};
    uint64_t now_ns = clock_mono_ns();
    collect_gone(c, pid, now_ns); /* exec has started another program in this process */
    int r = live_table_open(fd, pid, &table, &err);
    if (r == 0) {
        collect_add(c, pid, &table, now_ns);
        return;
    }
    c->not_followed++;
    err_prefix(&err, r, "process %d", (int)pid);
    note_trouble(c, TROUBLE_TABLE, r, &err);
}

/* ---- requests ---- */

/* Takes readings. If PID is not 0, reads process PID. Otherwise reads all young processes if
 * IS_FOR_YOUNG is true, and all older processes if not. A process is young if it has no file yet
 * and its first reading is not due yet. Returns how many of these readings reached the disk in
 * time. */
static size_t refresh_some(struct collect *c, int32_t pid, bool is_for_young, uint64_t now_ns,
                           uint64_t deadline)
{
    size_t fresh = 0;
    for (size_t i = 0; i < c->count; i++) {
        struct process *p = c->living[i];
        bool is_young = !p->writer && due_for(p, now_ns) == 0;
        if (pid != 0 ? p->pid != pid : is_young != is_for_young)
            continue;
        open_file(p);
        int r = take_reading(p, now_ns, STORE_ASKED);
        if (r == 0 && p->writer)
            r = store_flush(p->writer, u64_minus(deadline, clock_mono_ns()));
        fresh += r == 0 && p->writer;
    }
    return fresh;
}

size_t collect_refresh(struct collect *c, int32_t pid, uint64_t now_ns, uint64_t wait_ns)
{
    uint64_t deadline = clock_mono_ns() + wait_ns;
    size_t fresh = refresh_some(c, pid, false, now_ns, deadline);
    return fresh == 0 && pid == 0 && c->files == 0 ? refresh_some(c, 0, true, now_ns, deadline)
                                                   : fresh;
}

void collect_flush(struct collect *c, uint64_t wait_ns)
{
    uint64_t deadline = clock_mono_ns() + wait_ns;
    for (size_t i = 0; i < c->gone_count; i++)
        if (c->gone[i]->writer)
            (void)store_flush(c->gone[i]->writer, u64_minus(deadline, clock_mono_ns()));
    for (size_t i = 0; i < c->count; i++)
        if (c->living[i]->writer)
            (void)store_flush(c->living[i]->writer, u64_minus(deadline, clock_mono_ns()));
}

int collect_new(struct loop *loop, const char *path, int dirfd, struct collect **ret,
                struct err *err)
{
    struct collect *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, -ENOMEM, "out of memory: the heap is not profiled");
    c->loop = loop;
    c->dirfd = dirfd;
    int r = table_socket_new(loop, path, on_table, c, &c->socket, err);
    if (r < 0) {
        free(c);
        return r;
    }
    *ret = c;
    return 0;
}

void collect_free(struct collect *c)
{
    if (!c)
        return;
    uint64_t now = clock_mono_ns(), deadline = now + CLOSE_NS;
    table_socket_free(c->socket);
    while (c->count > 0)
        finish_process(c, c->count - 1, now);
    while (c->gone_count > 0)
        collected_free(c->gone[--c->gone_count], u64_minus(deadline, clock_mono_ns()));
    free(c);
}

static json_t *collected_json(const struct process *p, bool is_alive)
{
    json_t *doc = json_pack("{s:i, s:b, s:o, s:o}", "pid", (int)p->pid, "is_alive", is_alive,
                            "file", p->name[0] ? json_text0(p->name) : json_null(), "file_bytes",
                            json_u64(p->file_bytes));
    json_object_set_new(doc, "live_bytes", json_count(p->live_bytes));
    json_object_set_new(doc, "cost", profile_cost_json(&p->cost));
    if (p->gpus_used > 0 || p->gpu_failures > 0) {
        json_object_set_new(doc, "gpus", json_u64(p->gpus_used));
        json_object_set_new(doc, "gpu_out_of_memory", json_u64(p->gpu_failures));
    }
    return doc;
}

json_t *collect_json(const struct collect *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->gone_count; i++)
        json_array_append_new(list, collected_json(c->gone[i], false));
    for (size_t i = 0; i < c->count; i++)
        json_array_append_new(list, collected_json(c->living[i], true));
    uint64_t not_followed = c->not_followed + table_socket_refused(c->socket);
    return json_pack("{s:o, s:o, s:o}", "processes", list, "not_followed", json_u64(not_followed),
                     "without_file", json_u64(c->without_file));
}
