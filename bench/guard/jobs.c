/* Runs many jobs in sequence from one long-lived parent, like a server: starts each with
 * supervisor_start(), drains its channel and waits for its sentinel. Also starts the same program
 * in other ways, in turn, and at the end measures the parent's resources.
 *
 *   jobs COUNT PAUSE_MS PROGRAM FOLDER WAY… < /dev/null
 *
 * PAUSE_MS is the pause before each start. PROGRAM prints the time at which its main began
 * (bench/stamp.c). Each WAY is one of plain (fork and exec, without ebb), full (all of ebb),
 * no-record, no-cgroup, no-guard. Prints one JSON document. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "supervise/channel.h"
#include "supervise/supervisor.h"
#include "proc/tree.h"

enum { WAYS_MAX = 8 };

struct way {
    const char *name;
    bool is_plain, no_record, no_cgroup, no_guard;
    /* Arrays of COUNT times: from the start of a job until its program reaches main, and until
     * the job has ended. */
    uint64_t *start_ns, *life_ns;
};

static const struct way known[] = {{.name = "plain", .is_plain = true},
                                   {.name = "full"},
                                   {.name = "no-record", .no_record = true},
                                   {.name = "no-cgroup", .no_cgroup = true},
                                   {.name = "no-guard", .no_guard = true}};

static struct proc_root root;
static struct rlimit nofile;

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "jobs: %s\n", what);
    exit(1);
}

/* ---- resources of the parent ---- */

struct state {
    uint64_t rss_bytes;
    unsigned fds;
};

static unsigned count_fds(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* Reads smaps_rollup, which counts pages exactly; other counters lag behind. */
static void look(struct state *ret)
{
    char line[256];
    unsigned long kib = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Rss: %lu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    *ret = (struct state){kib * 1024, count_fds()};
}

/* ---- one job ---- */

static uint64_t parse_stamp(const char *text, size_t len)
{
    char copy[32];
    snprintf(copy, sizeof copy, "%.*s", (int)(len < 31 ? len : 31), text);
    return strtoull(copy, NULL, 10);
}

static uint64_t run_plain(char **argv)
{
    int pair[2];
    char text[64];
    if (pipe2(pair, O_CLOEXEC) < 0)
        give_up("cannot make a pipe");
    pid_t pid = fork();
    if (pid == 0) {
        dup2(pair[1], STDOUT_FILENO);
        execv(argv[0], argv);
        _exit(127);
    }
    close(pair[1]);
    ssize_t n = read(pair[0], text, sizeof text);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    close(pair[0]);
    return n > 0 ? parse_stamp(text, (size_t)n) : 0;
}

/* Reads frames until the supervisor closes its end of the channel. */
static void drain(int fd)
{
    struct channel c;
    enum channel_type type;
    const char *data;
    size_t len;
    int r = 0;
    channel_init(&c, fd);
    while (r >= 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        poll(&p, 1, -1);
        r = channel_fill(&c);
        while (channel_next(&c, &type, &data, &len) == 1)
            ;
    }
    channel_fini(&c);
}

static uint64_t run_supervised(const struct way *way, char **argv, const char *folder)
{
    struct supervisor_options o = {.path = argv[0],
                                   .argv = argv,
                                   .name = "job",
                                   .grace_ns = 5 * NS_PER_S,
                                   .rundir = {.fd = -1},
                                   .engine = {.interval_ns = NS_PER_S, .root = &root},
                                   .nofile = nofile};
    static unsigned number;
    char path[4096], text[64];
    struct err err = {""};
    struct supervisor_client client;
    int status;
    o.guard.no_cgroup = way->no_cgroup;
    o.guard.is_off = way->no_guard;
    sigprocmask(SIG_SETMASK, NULL, &o.mask);
    snprintf(path, sizeof path, "%s/%s-%u", folder, way->name, number++);
    if (!way->no_record && rundir_create(path, o.name, clock_wall_ns(), &o.rundir, &err) < 0)
        give_up(err.text);
    if (supervisor_start(&o, &client, &err) < 0)
        give_up(err.text);
    rundir_fini(&o.rundir);
    drain(client.fd);
    while (waitpid(client.sentinel, &status, 0) < 0 && errno == EINTR)
        ;
    ssize_t n = read(client.stream[1], text, sizeof text);
    close(client.stream[1]);
    close(client.stream[2]);
    return n > 0 ? parse_stamp(text, (size_t)n) : 0;
}

static void run_one(struct way *way, unsigned i, char **argv, const char *folder)
{
    uint64_t began = clock_mono_ns();
    uint64_t reached = way->is_plain ? run_plain(argv) : run_supervised(way, argv, folder);
    if (reached < began)
        give_up("the program did not print when main was reached");
    way->start_ns[i] = reached - began;
    way->life_ns[i] = clock_mono_ns() - began;
}

/* ---- main program ---- */

static void parse_ways(struct way ways[WAYS_MAX], int n, char **names, unsigned count)
{
    for (int i = 0; i < n; i++) {
        ways[i].name = NULL;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            if (strcmp(known[k].name, names[i]) == 0)
                ways[i] = known[k];
        ways[i].start_ns = calloc(count, sizeof *ways[i].start_ns);
        ways[i].life_ns = calloc(count, sizeof *ways[i].life_ns);
        if (!ways[i].name || !ways[i].start_ns || !ways[i].life_ns)
            give_up("unknown WAY, or out of memory");
        /* The arrays are touched now, so that their memory is not mistaken for growth. */
        memset(ways[i].start_ns, 1, count * sizeof *ways[i].start_ns);
        memset(ways[i].life_ns, 1, count * sizeof *ways[i].life_ns);
    }
}

static void print_numbers(const char *key, const uint64_t *v, unsigned count)
{
    printf("\"%s\": [", key);
    for (unsigned i = 0; i < count; i++)
        printf("%s%" PRIu64, i ? "," : "", v[i]);
    printf("]");
}

int main(int argc, char **argv)
{
    struct way ways[WAYS_MAX] = {{0}};
    struct state before, after;
    struct err err = {""};
    int n = argc - 5;
    unsigned count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    useconds_t pause_us = argc > 2 ? (useconds_t)strtoul(argv[2], NULL, 10) * 1000 : 0;
    if (n < 1 || n > WAYS_MAX || count == 0)
        give_up("usage: jobs COUNT PAUSE_MS PROGRAM FOLDER WAY…");
    char *command[] = {argv[3], NULL};
    if (proc_root_open("/proc", "/sys/fs/cgroup", &root, &err) < 0)
        give_up(err.text);
    proc_raise_nofile(&nofile);
    parse_ways(ways, n, argv + 5, count);
    /* Orphaned descendants become children of this process. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    look(&before);
    look(&before); /* The first call allocates buffers that later calls reuse. */
    for (unsigned i = 0; i < count; i++)
        for (int w = 0; w < n; w++) {
            usleep(pause_us);
            run_one(&ways[w], i, command, argv[4]);
        }
    look(&after);
    int left = 0;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        left++;
    bool is_alone = errno == ECHILD;
    printf(
        "{\"count\": %u, \"rss_before\": %" PRIu64 ", \"rss_after\": %" PRIu64
        ", \"fds_before\": %u, \"fds_after\": %u, \"zombies\": %d, \"is_alone\": %s, \"ways\": {",
        count, before.rss_bytes, after.rss_bytes, before.fds, after.fds, left,
        is_alone ? "true" : "false");
    for (int w = 0; w < n; w++) {
        printf("%s\"%s\": {", w ? ", " : "", ways[w].name);
        print_numbers("start_ns", ways[w].start_ns, count);
        printf(", ");
        print_numbers("life_ns", ways[w].life_ns, count);
        printf("}");
    }
    printf("}}\n");
    return 0;
}
