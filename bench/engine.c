/* Measures the cost of a complete tick of the engine, as `ebb run` and `ebb watch` execute it every
 * second. A tick reads the resident memory of all processes, the status files of some of them, the
 * machine's memory and the limit; it writes the recording, and updates the run and the verdict's
 * series. The sampled job is a separate process tree (bench/tick --hold).
 *
 *   engine virtual PID FOLDER    reads commands from stdin and answers each with a line of JSON:
 *     ticks N                    N ticks in virtual time, a second apart
 *     pieces N                   the same, with the parts of a tick timed separately
 *   engine real PID FOLDER N     N ticks on the event loop, a real second apart
 *
 * The engine's source is included, not linked, because virtual time requires its static functions.
 * The number of status files read per tick depends on the seconds between ticks. */
#include <stddef.h>

#include "engine/pace.h"

/* Total CPU time of the samples of each pace. */
static struct {
    const struct pace *pace;
    uint64_t ns;
} costs[4];

static uint64_t *cost_of(const struct pace *p)
{
    size_t i = 0;
    while (costs[i].pace && costs[i].pace != p)
        i++;
    costs[i].pace = p;
    return &costs[i].ns;
}

static void count_pace_done(struct pace *p, uint64_t now_ns, uint64_t cost_ns)
{
    *cost_of(p) += cost_ns;
    pace_done(p, now_ns, cost_ns);
}

#define pace_done count_pace_done
#include "engine/engine.c"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>

#include "base/json.h"

enum { TICKS_MAX = 100000 };

static uint64_t process_cpu_ns(void)
{
    struct timespec ts = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static json_t *list_of(const uint64_t *ns, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_u64(ns[i]));
    return list;
}

static void print(json_t *doc)
{
    json_write(STDOUT_FILENO, doc, 0);
    json_decref(doc);
}

/* ---- ticks in virtual time ---- */

struct meter {
    uint64_t tick_ns[TICKS_MAX], walk_ns[TICKS_MAX];
    size_t ticks, walks;
    uint64_t tick_before_ns, walk_before_ns, walks_before;
};

static struct meter meter;

static void meter_take(struct meter *m, const struct engine *e)
{
    m->tick_ns[m->ticks++] = e->cost.total_ns - m->tick_before_ns;
    if (e->paces.walk.count != m->walks_before)
        m->walk_ns[m->walks++] = *cost_of(&e->paces.walk) - m->walk_before_ns;
}

static void meter_arm(struct meter *m, const struct engine *e)
{
    m->tick_before_ns = e->cost.total_ns;
    m->walk_before_ns = *cost_of(&e->paces.walk);
    m->walks_before = e->paces.walk.count;
}

static void meter_print(const struct meter *m, const struct engine *e, uint64_t process_ns)
{
    print(json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "processes", json_u64(proc_tree_count(e->tree)),
                    "tick_ns", list_of(m->tick_ns, m->ticks), "walk_ns",
                    list_of(m->walk_ns, m->walks), "process_ns", json_u64(process_ns), "verdicts",
                    json_u64(e->paces.verdict.count), "verdict_ns",
                    json_u64(*cost_of(&e->paces.verdict))));
}

static void do_ticks(struct engine *e, uint64_t *now_ns, size_t count)
{
    meter.ticks = meter.walks = 0;
    uint64_t process = process_cpu_ns();
    for (size_t i = 0; i < count; i++) {
        meter_arm(&meter, e);
        *now_ns += NS_PER_S;
        tick(e, *now_ns, false);
        meter_take(&meter, e);
    }
    meter_print(&meter, e, process_cpu_ns() - process);
}

/* ---- the parts of a tick, timed separately ---- */

enum piece { STATM, STATUS, MACHINE, BOUNDS, PASS_ON, PEAKS, CLOCK, PIECES };
static const char *const piece_names[PIECES] = {"statm",   "status", "machine", "bounds",
                                                "pass_on", "peaks",  "clock"};

static void do_piece(struct engine *e, enum piece piece, uint64_t now_ns)
{
    if (piece == STATM)
        proc_tree_tick(e->tree, now_ns);
    else if (piece == STATUS)
        engine_sample_status(e, now_ns, false);
    else if (piece == MACHINE)
        machine_tick(e->machine, &e->now.machine);
    else if (piece == BOUNDS)
        engine_sample_tree(e);
    else if (piece == PASS_ON)
        pass_on_tick(e, now_ns);
    else if (piece == PEAKS)
        raise_peaks(e);
}

static void do_pieces(struct engine *e, uint64_t *now_ns, size_t count)
{
    static uint64_t ns[PIECES][TICKS_MAX];
    for (size_t i = 0; i < count; i++) {
        *now_ns += NS_PER_S;
        for (int p = 0; p < PIECES; p++) {
            uint64_t began = clock_thread_cpu_ns();
            do_piece(e, (enum piece)p, *now_ns);
            ns[p][i] = clock_thread_cpu_ns() - began;
        }
        proc_tree_clear_read(e->tree);
    }
    json_t *doc = json_object();
    for (int p = 0; p < PIECES; p++)
        json_object_set_new(doc, piece_names[p], list_of(ns[p], count));
    print(doc);
}

static void take_orders(struct engine *e)
{
    char line[64], order[16];
    uint64_t now_ns = clock_mono_ns();
    unsigned long count;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%15s %lu", order, &count) != 2 || count > TICKS_MAX)
            fprintf(stderr, "engine: no such order: %s", line);
        else if (strcmp(order, "ticks") == 0)
            do_ticks(e, &now_ns, count);
        else if (strcmp(order, "pieces") == 0)
            do_pieces(e, &now_ns, count);
    }
}

/* ---- ticks in real time ---- */

static size_t ticks_wanted;

static void on_real_tick(void *user, uint64_t now_ns)
{
    struct engine *e = *(struct engine **)user;
    (void)now_ns;
    meter_take(&meter, e);
    meter_arm(&meter, e);
    if (meter.ticks == ticks_wanted)
        loop_stop(e->loop);
}

static void tick_really(struct engine *e)
{
    meter_arm(&meter, e);
    uint64_t process = process_cpu_ns();
    engine_start(e);
    loop_run(e->loop);
    meter_print(&meter, e, process_cpu_ns() - process);
}

int main(int argc, char **argv)
{
    bool real = argc == 5 && strcmp(argv[1], "real") == 0;
    if (!real && !(argc == 4 && strcmp(argv[1], "virtual") == 0)) {
        fputs("usage: engine virtual PID FOLDER | engine real PID FOLDER TICKS\n", stderr);
        return 2;
    }
    ticks_wanted = real ? strtoul(argv[4], NULL, 10) : 0;
    struct loop *loop;
    struct engine *e;
    struct proc_root root;
    struct rlimit before;
    struct err err = {""};
    const struct engine_callbacks callbacks = {.tick = real ? on_real_tick : NULL, .user = &e};
    /* With a fixed interval, the job is treated as long-running. In a young job, every second tick
     * would also compute a verdict. */
    const struct engine_options options = {.root = &root, .interval_ns = NS_PER_S};
    int dirfd = open(argv[3], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dirfd < 0 || loop_new(&loop) < 0 || ticks_wanted > TICKS_MAX) {
        fprintf(stderr, "engine: cannot begin with %s\n", argv[3]);
        return 1;
    }
    proc_raise_nofile(&before);
    if (proc_root_open("/proc", "/sys/fs/cgroup", &root, &err) < 0 ||
        engine_new(loop, &options, &callbacks, &e, &err) < 0 ||
        engine_watch_pid(e, (int32_t)strtol(argv[2], NULL, 10), &err) < 0 ||
        engine_record(e, dirfd, NULL, &err) < 0) {
        fprintf(stderr, "engine: %s\n", err.text);
        return 1;
    }
    engine_sample_now(e); /* The supervisor also takes one sample before it starts the timer. */
    if (real)
        tick_really(e);
    else
        take_orders(e);
    engine_free(e);
    loop_free(loop);
    proc_root_close(&root);
    close(dirfd);
    return 0;
}
