/* A job that leaks at a known rate, or crosses a memory threshold at a known time. It records its
 * progress in a mapped file, which remains after SIGKILL. It needs only libc.
 *
 *   leaker leak FACTS rate_mib=N save_ms=N deaf=0|1 most_mib=N
 *   leaker cross FACTS reserve_bytes=N hold_ms=N
 *
 * Without save_ms the job ignores checkpoint requests, and with deaf=1 it ignores SIGTERM. It stops
 * leaking at most_mib. A rate of 0 means as fast as possible. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* Mapped from the file FACTS. bench/guard/guard.py reads these eight values in this order. */
struct facts {
    volatile uint64_t begun_ns; /* All times are CLOCK_MONOTONIC in ns. */
    volatile uint64_t last_ns;  /* Time when the newest piece of leaked memory was touched. */
    volatile uint64_t bytes;    /* Bytes leaked up to last_ns. */
    volatile uint64_t asked;    /* Number of checkpoint requests received. */
    volatile uint64_t done;     /* Number of checkpoints written. */
    volatile uint64_t crossing_ns;
    volatile uint64_t crossed_ns; /* Time when memory beyond the threshold was touched. */
    volatile uint64_t heard_ns;   /* Time when the checkpoint request arrived. */
};

static struct {
    long rate_mib, save_ms, deaf, most_mib, reserve_bytes, hold_ms;
} set = {.most_mib = 4096};

static struct facts *facts;
static int requests = -1;
static char reply_path[sizeof((struct sockaddr_un *)0)->sun_path];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
    const struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u),
                               .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "leaker: %s: %s\n", what, strerror(errno));
    exit(1);
}

static char *reserve(size_t bytes)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        give_up("cannot reserve memory");
    return p;
}

/* ---- ebb's sockets ---- */

static bool address_of(const char *path, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (!path || strlen(path) >= sizeof ret->sun_path)
        return false;
    memcpy(ret->sun_path, path, strlen(path) + 1);
    return true;
}

__attribute__((format(printf, 1, 2))) static void mark(const char *format, ...)
{
    static int fd = -1;
    struct sockaddr_un to;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!address_of(getenv("EBB_SOCKET"), &to))
        return;
    if (fd < 0)
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    (void)!sendto(fd, text, (size_t)len, MSG_NOSIGNAL, (const struct sockaddr *)&to, sizeof to);
}

static void say_hello(void)
{
    struct sockaddr_un own;
    const char *socket_path = getenv("EBB_SOCKET");
    if (!socket_path)
        return;
    snprintf(reply_path, sizeof reply_path, "%.80s.%d", socket_path, (int)getpid());
    if (!address_of(reply_path, &own))
        return;
    requests = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (bind(requests, (const struct sockaddr *)&own, sizeof own) < 0)
        give_up("cannot bind the reply socket");
    mark("KIND=hello\nREPLY=%s\nROLE=rank\nRANK=0\n", reply_path);
}

/* Waits for the next checkpoint request and copies its id; skips other requests. */
static void wait_for_request(char *ret_id, size_t size)
{
    char text[64];
    for (;;) {
        ssize_t n = recv(requests, text, sizeof text - 1, 0);
        uint64_t at = now_ns();
        if (n <= 0)
            continue;
        text[n] = '\0';
        text[strcspn(text, "\n")] = '\0';
        if (strncmp(text, "CHECKPOINT=", 11) != 0)
            continue;
        facts->heard_ns = at;
        facts->asked++;
        snprintf(ret_id, size, "%s", text + 11);
        return;
    }
}

/* ---- leaking ---- */

static void *make_checkpoints(void *unused)
{
    char id[64];
    for (;;) {
        wait_for_request(id, sizeof id);
        mark("KIND=ack\nID=%s\nSTATUS=started\n", id);
        sleep_until(now_ns() + (uint64_t)set.save_ms * 1000000u);
        facts->done++;
        mark("KIND=ack\nID=%s\nSTATUS=done\nPATH=none\n", id);
    }
    return unused;
}

/* Leaks on a schedule of absolute times, so that it catches up after a delay. The leak continues
 * while a checkpoint is being written. */
static void leak(void)
{
    const size_t piece = set.rate_mib > 0 && set.rate_mib < 256 ? MIB / 4 : MIB;
    char *at = reserve((size_t)set.most_mib * MIB);
    pthread_t thread;
    if (set.save_ms) {
        say_hello();
        if (pthread_create(&thread, NULL, make_checkpoints, NULL) != 0)
            give_up("cannot start a thread");
    }
    facts->begun_ns = now_ns();
    while (facts->bytes < (size_t)set.most_mib * MIB) {
        memset(at, 1, piece);
        at += piece;
        facts->bytes += piece;
        facts->last_ns = now_ns();
        if (set.rate_mib)
            sleep_until(facts->begun_ns +
                        facts->bytes * 1000000000u / ((uint64_t)set.rate_mib * MIB));
    }
}

/* ---- crossing the threshold ---- */

static uint64_t number_in(const char *path, const char *key)
{
    char text[8192];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *at = key ? strstr(text, key) : text;
    return at ? strtoull(at + (key ? strlen(key) : 0), NULL, 10) : 0;
}

/* Finds the folder of our memory cgroup, v1 or v2. */
static bool find_cgroup(char *ret, size_t size, bool *ret_v2)
{
    char line[2048], name[4200];
    FILE *f = fopen("/proc/self/cgroup", "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        const char *v1 = strstr(line, ":memory:");
        *ret_v2 = strncmp(line, "0::", 3) == 0;
        if (!v1 && !*ret_v2)
            continue;
        snprintf(ret, size, "/sys/fs/cgroup%s%s", v1 ? "/memory" : "",
                 v1 ? v1 + strlen(":memory:") : line + 3);
        snprintf(name, sizeof name, "%s/%s", ret, v1 ? "memory.usage_in_bytes" : "memory.current");
        found = access(name, R_OK) == 0;
    }
    if (f)
        fclose(f);
    return found;
}

/* Calculates memory as the guard does: usage minus reclaimable memory and, in v1, minus all kernel
 * memory. */
static uint64_t used_bytes(void)
{
    static char folder[4096], usage[4200], stat[4200], kernel[4200];
    static bool is_v2, is_known;
    if (!is_known && !find_cgroup(folder, sizeof folder, &is_v2)) {
        fprintf(stderr, "leaker: no cgroup counts this job's memory\n");
        exit(1);
    }
    is_known = true;
    snprintf(usage, sizeof usage, "%s/%s", folder,
             is_v2 ? "memory.current" : "memory.usage_in_bytes");
    snprintf(stat, sizeof stat, "%s/memory.stat", folder);
    snprintf(kernel, sizeof kernel, "%s/memory.kmem.usage_in_bytes", folder);
    uint64_t used = number_in(usage, NULL);
    uint64_t cache = (is_v2 ? number_in(stat, "\nslab_reclaimable ") : number_in(kernel, NULL)) +
                     number_in(stat, is_v2 ? "\ninactive_file " : "\ntotal_inactive_file ") +
                     number_in(stat, is_v2 ? "\nactive_file " : "\ntotal_active_file ");
    return used > cache ? used - cache : 0;
}

/* Allocates until usage is 2 MiB below the threshold, waits, and then allocates until usage is 2
 * MiB above the threshold. */
static void cross(void)
{
    char id[64];
    const char *limit = getenv("EBB_LIMIT_BYTES");
    uint64_t line = (limit ? strtoull(limit, NULL, 10) : 0) - (uint64_t)set.reserve_bytes;
    size_t most = (size_t)line + 64 * MIB, used = 0;
    if (!limit)
        exit(1);
    char *at = reserve(most);
    madvise(at, most, MADV_HUGEPAGE); /* Huge pages are used only to speed up the allocation. */
    say_hello();
    for (uint64_t now; (now = used_bytes()) + 40 * MIB < line; used += 8 * MIB)
        memset(at + used, 1, 8 * MIB);
    madvise(at + used, most - used, MADV_NOHUGEPAGE);
    for (; used_bytes() + 2 * MIB < line; used += MIB / 8)
        memset(at + used, 1, MIB / 8);
    sleep_until(now_ns() + (uint64_t)set.hold_ms * 1000000u);
    facts->begun_ns = now_ns();
    if (recv(requests, id, sizeof id, MSG_PEEK | MSG_DONTWAIT) > 0)
        exit(3); /* The request came before the crossing, so nothing can be measured. */
    facts->crossing_ns = now_ns();
    memset(at + used, 1, 4 * MIB);
    facts->crossed_ns = now_ns();
    facts->bytes = used + 4 * MIB;
    wait_for_request(id, sizeof id);
    mark("KIND=ack\nID=%s\nSTATUS=done\nPATH=none\n", id);
}

/* ---- start ---- */

static bool parse(const char *argument)
{
    static const struct {
        const char *name;
        long *value;
    } names[] = {{"rate_mib=", &set.rate_mib}, {"save_ms=", &set.save_ms},
                 {"deaf=", &set.deaf},         {"most_mib=", &set.most_mib},
                 {"hold_ms=", &set.hold_ms},   {"reserve_bytes=", &set.reserve_bytes}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(argument, names[i].name, strlen(names[i].name)) == 0) {
            *names[i].value = strtol(argument + strlen(names[i].name), NULL, 10);
            return true;
        }
    return false;
}

static void open_facts(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *facts) < 0)
        give_up(path);
    facts = mmap(NULL, sizeof *facts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (facts == MAP_FAILED)
        give_up(path);
    close(fd);
}

int main(int argc, char **argv)
{
    bool is_cross = argc > 2 && strcmp(argv[1], "cross") == 0;
    bool is_right = is_cross || (argc > 2 && strcmp(argv[1], "leak") == 0);
    for (int i = 3; is_right && i < argc; i++)
        is_right = parse(argv[i]);
    if (!is_right) {
        fprintf(stderr, "usage: leaker leak|cross FACTS [NAME=NUMBER…]\n");
        return 2;
    }
    open_facts(argv[2]);
    if (set.deaf)
        signal(SIGTERM, SIG_IGN);
    if (is_cross)
        cross();
    else
        leak();
    if (reply_path[0])
        unlink(reply_path);
    return 0;
}
