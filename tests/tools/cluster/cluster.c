/* Writes the run folder of a simulated job on several nodes, with the same writers as `ebb run`.
 *
 *   cluster FOLDER NODES RANKS STEPS [WORD]…    RANKS is per node; each step takes one second
 *
 * Words: leak=RANK or leak=all (4 MiB/step from step 20 on), lost=NODE (killed halfway),
 * silent=NODE (stops halfway and records no end), late=NODE (joins after a quarter of the
 * steps), nosteps=NODE (reports no steps), skew=NODE (clock one minute ahead), running (no node
 * ends), live=FACTOR (writes in real time, FACTOR times faster). */
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "mark/mark.h"
#include "trace/writer.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

enum { NODES_MOST = 64, RANKS_MOST = 64, BASE_MIB = 800, LEAK_FROM = 20, START_S = 1000 };
enum { NONE = -1, ALL = -2 };

struct plan {
    const char *folder;
    unsigned nodes, ranks, steps;
    int leak, lost, silent, late, nosteps, skew, gpu;
    bool is_running;
    unsigned factor; /* speed relative to real time; 0: as fast as possible */
    unsigned past;
};

struct node {
    int fd;
    struct trace_writer *w;
    uint64_t seed, peak_bytes;
    struct process_info info[RANKS_MOST];
    bool has_ended;
};

static uint64_t next_random(struct node *n)
{
    n->seed ^= n->seed << 13;
    n->seed ^= n->seed >> 7;
    n->seed ^= n->seed << 17;
    return n->seed;
}

static uint64_t at_ns(unsigned tick)
{
    return (START_S + (uint64_t)tick) * NS_PER_S;
}

static void write_json(int fd, const char *name, json_t *doc, unsigned pad)
{
    char temporary[64];
    char *text = json_dumps(doc, JSON_COMPACT);
    bool in_place = pad > 0;
    snprintf(temporary, sizeof temporary, "%s%s", in_place ? "" : ".new.", name);
    int file = openat(fd, temporary, O_WRONLY | O_CREAT | (in_place ? 0 : O_TRUNC), 0666);
    if (file < 0 || !text) {
        perror(name);
        exit(2);
    }
    dprintf(file, "%-*s\n", (int)pad, text);
    close(file);
    if (!in_place)
        renameat(fd, temporary, fd, name);
    free(text);
    json_decref(doc);
}

static unsigned first_tick(const struct plan *p, unsigned node)
{
    return (int)node == p->late ? p->steps / 4 : 0;
}

static unsigned last_tick(const struct plan *p, unsigned node)
{
    bool is_cut = (int)node == p->lost || (int)node == p->silent;
    return is_cut ? p->steps / 2 : p->steps;
}

static void write_run_json(const struct plan *p, struct node *n, unsigned i, bool has_ended)
{
    char host[16], name[32];
    bool is_lost = (int)i == p->lost;
    json_t *ranks = json_array();
    snprintf(host, sizeof host, "n%u", i);
    snprintf(name, sizeof name, "node-%02u", i);
    for (unsigned k = 0; k < p->ranks; k++)
        json_array_append_new(
            ranks, json_pack("{s:i,s:i,s:i,s:I,s:s,s:o,s:n}", "rank", (int)(i * p->ranks + k),
                             "local_rank", (int)k, "pid", (int)n->info[k].id.pid, "start_ticks",
                             (json_int_t)n->info[k].id.start_ticks, "state",
                             has_ended && !is_lost ? "ended" : "running", "status",
                             has_ended && !is_lost ? json_integer(0) : json_null(), "signal"));
    unsigned steps = last_tick(p, i) - first_tick(p, i);
    json_t *doc = json_pack("{s:s,s:s,s:s,s:s,s:[s,s],s:o,s:{s:i,s:i,s:s},s:o}", "ebb", "0.1.0",
                            "host", host, "state", has_ended ? "ended" : "running", "name", "train",
                            "command", "python", "train.py", "run_dir", json_string(name), "node",
                            "number", (int)i, "nodes", (int)p->nodes, "host", host, "ranks", ranks);
    if (has_ended) {
        json_object_set_new(doc, "end",
                            is_lost ? json_pack("{s:s}", "kind", "lost")
                                    : json_pack("{s:s,s:i}", "kind", "exited", "status", 0));
        json_object_set_new(doc, "duration_s", json_real(steps));
        bool leaks = p->leak == ALL || (p->leak >= 0 && (unsigned)p->leak / p->ranks == i);
        json_object_set_new(doc, "verdict",
                            json_pack("{s:{s:s,s:b}}", "tree", "verdict",
                                      leaks ? "leaking" : "stable", "leak", (int)leaks));
        json_int_t base = (json_int_t)(p->ranks * BASE_MIB * MIB), peak = (json_int_t)n->peak_bytes;
        json_object_set_new(doc, "tree",
                            json_pack("{s:I,s:I,s:{s:I,s:I},s:I,s:f}", "samples", (json_int_t)steps,
                                      "peak_bytes", peak, "floor_bytes", "first", base, "last",
                                      peak, "growth_bytes", peak - base, "rate_bytes_per_min",
                                      60.0 * (double)(peak - base) / steps));
        json_object_set_new(doc, "ask_bytes", json_integer((json_int_t)(n->peak_bytes * 6 / 5)));
        json_object_set_new(doc, "limit",
                            json_pack("{s:s,s:s,s:I}", "kind", "cgroup", "where", "step",
                                      "limit_bytes", (json_int_t)(64 * GIB)));
        if ((int)i != p->nosteps)
            json_object_set_new(doc, "marks",
                                json_pack("{s:i,s:i,s:i}", "received", (int)steps, "steps",
                                          (int)steps, "last_step", (int)last_tick(p, i)));
    }
    write_json(n->fd, "run.json", doc, 0);
}

static void write_beat(const struct plan *p, struct node *n, unsigned i, unsigned tick)
{
    double skew = (int)i == p->skew ? 60 : 0;
    json_t *doc = json_pack("{s:i,s:f,s:s,s:i}", "seq", (int)tick, "t_s",
                            (double)clock_wall_ns() / 1e9 + skew, "state",
                            n->has_ended ? "ended" : "running", "ranks", (int)p->ranks);
    if ((int)i != p->nosteps)
        json_object_set_new(doc, "step", json_integer((json_int_t)tick));
    write_json(n->fd, "heartbeat", doc, 255);
}

static void begin_node(const struct plan *p, struct node *n, unsigned i, int job)
{
    char name[32];
    struct err err = {""};
    snprintf(name, sizeof name, "node-%02u", i);
    n->seed = 88172645463325252u + i;
    if (mkdirat(job, name, 0777) < 0 || (n->fd = openat(job, name, O_RDONLY | O_DIRECTORY)) < 0) {
        perror(name);
        exit(2);
    }
    uint64_t skew_ns = (int)i == p->skew ? 60 * NS_PER_S : 0;
    json_t *header =
        json_pack("{s:I,s:I}", "start_mono_ns", (json_int_t)at_ns(first_tick(p, i)),
                  "start_wall_ns", (json_int_t)(UINT64_C(1790000000) * NS_PER_S + skew_ns));
    const struct trace_writer_options options = {.patient = p->factor == 0};
    if (trace_writer_new(n->fd, "trace.ebb", header, &options, &n->w, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(2);
    }
    json_decref(header);
    for (unsigned k = 0; k < p->ranks; k++) {
        struct process_info *info = &n->info[k];
        *info = (struct process_info){.id = {4000 + (int32_t)k, 90000 + k}, .ppid = 1};
        info->role = ROLE_MAIN;
        info->comm_len = (uint16_t)snprintf(info->comm, sizeof info->comm, "python");
        info->cmdline_len =
            (uint16_t)snprintf(info->cmdline, sizeof info->cmdline, "python%ctrain.py", 0);
        trace_writer_process(n->w, at_ns(first_tick(p, i)), PROCESS_BORN, k, info);
    }
    write_run_json(p, n, i, false);
}

static uint64_t rank_bytes(const struct plan *p, struct node *n, unsigned rank, unsigned tick,
                           unsigned begun)
{
    bool leaks = p->leak == ALL || (int)rank == p->leak;
    uint64_t base = BASE_MIB * MIB + rank % 8 * MIB;
    uint64_t warm = tick - begun < 5 ? (5 - (tick - begun)) * 100 * MIB : 0;
    uint64_t noise = next_random(n) % (2 * MIB) & ~UINT64_C(4095);
    return base - warm + noise + (leaks && tick > LEAK_FROM ? (tick - LEAK_FROM) * 4 * MIB : 0);
}

static void write_machine(struct node *n, uint64_t sum)
{
    struct sample m = {0};
    n->peak_bytes = sum > n->peak_bytes ? sum : n->peak_bytes;
    sample_put(&m, MACHINE_TOTAL, 128 * GIB);
    sample_put(&m, MACHINE_AVAILABLE, 128 * GIB - sum);
    sample_put(&m, MACHINE_LIMIT, 64 * GIB);
    sample_put(&m, MACHINE_LIMIT_USED, sum);
    sample_put(&m, MACHINE_TREE_LOW, sum);
    sample_put(&m, MACHINE_TREE_HIGH, sum);
    trace_writer_sample(n->w, ENTITY_MACHINE, 0, &m);
}

static void write_tick(const struct plan *p, struct node *n, unsigned i, unsigned tick)
{
    uint64_t sum = 0;
    struct sample s[RANKS_MOST] = {0};
    trace_writer_tick_begin(n->w, at_ns(tick));
    for (unsigned k = 0; k < p->ranks; k++) {
        uint64_t bytes = rank_bytes(p, n, i * p->ranks + k, tick, first_tick(p, i));
        sum += bytes;
        sample_put(&s[k], SAMPLE_RSS, bytes);
        if (tick % 20 == 0) {
            sample_put(&s[k], SAMPLE_ANON, bytes - 50 * MIB);
            sample_put(&s[k], SAMPLE_FILE, 50 * MIB);
            sample_put(&s[k], SAMPLE_UNIQUE, bytes);
        }
    }
    write_machine(n, sum);
    for (unsigned k = 0; k < p->ranks; k++)
        trace_writer_sample(n->w, ENTITY_PROCESS, k, &s[k]);
    if (p->gpu != NONE) {
        struct sample gpu = {0};
        uint64_t used = 4 * GIB + ((int)i == p->gpu && tick > LEAK_FROM ? tick * 20 * MIB : 0);
        sample_put(&gpu, GPU_TOTAL, 80 * GIB);
        sample_put(&gpu, GPU_USED, used);
        sample_put(&gpu, GPU_JOB, used);
        trace_writer_sample(n->w, ENTITY_GPU, 0, &gpu);
    }
    trace_writer_tick_end(n->w);
    for (unsigned k = 0; k < p->ranks && (int)i != p->nosteps; k++) {
        char text[96];
        struct mark mark;
        int len = snprintf(text, sizeof text, "KIND=step\nSTEP=%u\nRANK=%u\nSTEPS_PER_EPOCH=%u\n",
                           tick, i * p->ranks + k, p->steps > 160 ? p->steps / 4 : 40);
        mark_parse(text, (size_t)len, &mark);
        mark.t_ns = at_ns(tick) + 1000 * k;
        mark.pid = n->info[k].id.pid;
        trace_writer_mark(n->w, &mark);
    }
    struct trace_writer_status status;
    trace_writer_flush(n->w, at_ns(tick), p->factor > 0 && tick >= p->past);
    for (trace_writer_status(n->w, &status); tick < p->past && status.bytes_waiting > MIB / 2;) {
        usleep(1000);
        trace_writer_status(n->w, &status);
    }
}

static void end_node(const struct plan *p, struct node *n, unsigned i, bool is_whole)
{
    json_t *footer = is_whole ? json_pack("{s:s,s:i}", "kind", "exited", "status", 0) : NULL;
    for (unsigned k = 0; is_whole && k < p->ranks; k++)
        trace_writer_process(n->w, at_ns(last_tick(p, i)), PROCESS_DIED, k, &n->info[k]);
    trace_writer_close(n->w, footer, 10 * NS_PER_S);
    json_decref(footer);
    n->has_ended = is_whole;
    if (is_whole || (int)i == p->lost)
        write_run_json(p, n, i, true);
    write_beat(p, n, i, last_tick(p, i));
    if ((int)i == p->silent) { /* its last heartbeat is much older than that of other nodes */
        const struct timespec old[2] = {{.tv_sec = time(NULL) - 150}, {.tv_sec = time(NULL) - 150}};
        utimensat(n->fd, "heartbeat", old, 0);
    }
    close(n->fd);
    n->fd = -1;
}

static int word_value(const char *word, const char *name)
{
    size_t len = strlen(name);
    if (strncmp(word, name, len) != 0 || word[len] != '=')
        return NONE;
    return strcmp(word + len + 1, "all") == 0 ? ALL : atoi(word + len + 1);
}

static void take_word(struct plan *p, const char *word)
{
    struct {
        const char *name;
        int *at;
    } words[] = {{"leak", &p->leak}, {"lost", &p->lost},       {"silent", &p->silent},
                 {"late", &p->late}, {"nosteps", &p->nosteps}, {"skew", &p->skew},
                 {"gpu", &p->gpu}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (word_value(word, words[i].name) != NONE) {
            *words[i].at = word_value(word, words[i].name);
            return;
        }
    if (strcmp(word, "running") == 0) {
        p->is_running = true;
    } else if (word_value(word, "live") > 0) {
        p->factor = (unsigned)word_value(word, "live");
    } else if (word_value(word, "past") > 0) {
        p->past = (unsigned)word_value(word, "past");
    } else {
        fprintf(stderr, "cluster: unknown word %s\n", word);
        exit(2);
    }
}

static int begin_job(const struct plan *p)
{
    if (mkdir(p->folder, 0777) < 0) {
        perror(p->folder);
        exit(2);
    }
    int job = open(p->folder, O_RDONLY | O_DIRECTORY);
    write_json(job, "job.json",
               json_pack("{s:i,s:s,s:s,s:s,s:i,s:i,s:i,s:s,s:[s,s]}", "format", 1, "launcher",
                         "slurm", "job_id", "123", "step_id", "0", "segment", 0, "nodes",
                         (int)p->nodes, "ranks", (int)(p->nodes * p->ranks), "name", "train",
                         "command", "python", "train.py"),
               0);
    return job;
}

int main(int argc, char **argv)
{
    static struct node nodes[NODES_MOST];
    struct plan p = {.leak = NONE,
                     .lost = NONE,
                     .silent = NONE,
                     .late = NONE,
                     .nosteps = NONE,
                     .skew = NONE,
                     .gpu = NONE};
    if (argc < 5) {
        fprintf(stderr, "usage: cluster FOLDER NODES RANKS STEPS [WORD]...\n");
        return 2;
    }
    p.folder = argv[1];
    p.nodes = (unsigned)atoi(argv[2]);
    p.ranks = (unsigned)atoi(argv[3]);
    p.steps = (unsigned)atoi(argv[4]);
    for (int i = 5; i < argc; i++)
        take_word(&p, argv[i]);
    if (p.nodes > NODES_MOST || p.ranks > RANKS_MOST)
        return 2;
    int job = begin_job(&p);
    for (unsigned tick = 0; tick <= p.steps; tick++) {
        for (unsigned i = 0; i < p.nodes; i++) {
            struct node *n = &nodes[i];
            if (tick == first_tick(&p, i))
                begin_node(&p, n, i, job);
            if (tick < first_tick(&p, i) || tick > last_tick(&p, i))
                continue;
            write_tick(&p, n, i, tick);
            if (tick % 5 == 0)
                write_beat(&p, n, i, tick);
            if (tick == last_tick(&p, i))
                end_node(&p, n, i, !p.is_running && (int)i != p.lost && (int)i != p.silent);
        }
        if (p.factor && tick >= p.past)
            usleep(1000000 / p.factor);
    }
    close(job);
    return 0;
}
