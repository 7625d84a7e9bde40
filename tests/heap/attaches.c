/* attaches WAY LIBRARY SOCKET N [PLUGIN]: loads the profiler's library into its own process and
 * attaches it. SOCKET.heap is this program's own socket, which receives the tables. WAY is one of:
 *   threads  attaches and detaches N times while four threads allocate, reallocate and free
 *   forks    like threads, while another thread forks children that allocate
 *   across   frees after an attach the blocks allocated before the attach, and vice versa
 *   plugin   loads PLUGIN while attached, and checks that its allocations are sampled
 * Prints one line with the number of slots, tables and samples, and the leftovers of the last
 * detach: descriptors, mappings of tables and changed slots. */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/heap/table.h"

enum { THREADS = 4, BLOCKS = 256, PLUGIN_BLOCKS = 2000, INTERVAL = 4096 };

static const char *(*attach)(const char *, uint64_t, uint64_t);
static int (*detach)(void);
static uint32_t (*slots)(void);
static const char *socket_path;
static int listener, attached;
static _Atomic(int) is_over, tables, failures;
static _Atomic(uint64_t) samples;
static const struct heap_table *_Atomic newest;

/* ---- ebb's side ---- */

static void take_table(int fd)
{
    void *p = mmap(NULL, sizeof(struct heap_table), PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return;
    const struct heap_table *old = atomic_exchange(&newest, p);
    if (old)
        munmap((void *)(uintptr_t)old, sizeof *old);
    atomic_fetch_add(&tables, 1);
}

static void *serve(void *nothing)
{
    for (;;) {
        struct heap_hello hello;
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec part = {&hello, sizeof hello};
        struct msghdr m = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof control};
        int fd = accept(listener, NULL, NULL), memfd = -1;
        if (fd < 0)
            return nothing;
        if (recvmsg(fd, &m, 0) > 0 && CMSG_FIRSTHDR(&m))
            memcpy(&memfd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof memfd);
        if (memfd >= 0) {
            if (hello.pid == getpid())
                take_table(memfd);
            close(memfd);
        }
        close(fd);
    }
}

static bool listen_for_tables(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    pthread_t thread;
    snprintf(a.sun_path, sizeof a.sun_path, "%s.heap", socket_path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return listener >= 0 && bind(listener, (struct sockaddr *)&a, sizeof a) == 0 &&
           listen(listener, 64) == 0 && pthread_create(&thread, NULL, serve, NULL) == 0;
}

static void must(bool is_good, const char *what)
{
    if (!is_good) {
        fprintf(stderr, "%s\n", what);
        atomic_fetch_add(&failures, 1);
    }
}

/* ---- the program that allocates ---- */

static void *churn(void *nothing)
{
    char *blocks[BLOCKS] = {NULL};
    for (unsigned i = 0; !atomic_load_explicit(&is_over, memory_order_relaxed); i++) {
        unsigned k = i * 2654435761U % BLOCKS, size = 1 + i * 40503U % 3000;
        switch (i % 4) {
        case 0:
            free(blocks[k]);
            blocks[k] = malloc(size);
            break;
        case 1:
            free(blocks[k]);
            blocks[k] = calloc(1, size);
            break;
        case 2: {
            char *again = realloc(blocks[k], size);
            blocks[k] = again;
            break;
        }
        default:
            free(blocks[k]);
            if (posix_memalign((void **)&blocks[k], 64, size) != 0)
                blocks[k] = NULL;
        }
        if (blocks[k])
            blocks[k][0] = blocks[k][size - 1] = 1;
    }
    for (unsigned k = 0; k < BLOCKS; k++)
        free(blocks[k]);
    return nothing;
}

static void *fork_children(void *nothing)
{
    while (!atomic_load(&is_over)) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
            for (int i = 0; i < 2000; i++)
                free(malloc(4000));
            _exit(0);
        }
        must(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "a child failed");
    }
    return nothing;
}

static void attach_once(void)
{
    const char *refusal = attach(socket_path, INTERVAL, UINT64_MAX);
    must(!refusal, refusal ? refusal : "");
    attached++;
    while (!refusal && atomic_load(&tables) < attached)
        usleep(100); /* waits until the server has taken the table from the queue */
}

static uint32_t detach_once(void)
{
    must(detach() == 1, "detach failed");
    uint32_t n = slots();
    const struct heap_table *t = atomic_load(&newest);
    if (t)
        atomic_fetch_add(&samples, atomic_load(&t->header.samples));
    return n;
}

static uint32_t cycle(int n, bool with_forks)
{
    pthread_t threads[THREADS + 1];
    uint32_t changed = 0;
    for (int i = 0; i < THREADS + with_forks; i++)
        pthread_create(&threads[i], NULL, i < THREADS ? churn : fork_children, NULL);
    for (int i = 0; i < n; i++) {
        attach_once();
        uint32_t hooked = slots();
        usleep((unsigned)i % 16 * 20);
        changed = detach_once();
        must(changed == hooked, "detach did not restore all slots");
    }
    atomic_store(&is_over, 1);
    for (int i = 0; i < THREADS + with_forks; i++)
        pthread_join(threads[i], NULL);
    return changed;
}

static uint32_t cross(int n)
{
    static char *before[BLOCKS], *during[BLOCKS], *grown[BLOCKS];
    uint32_t changed = 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < BLOCKS; k++) {
            before[k] = malloc(3000);
            grown[k] = malloc(1000);
        }
        attach_once();
        for (int k = 0; k < BLOCKS; k++) {
            free(before[k]);
            grown[k] = realloc(grown[k], 5000);
            during[k] = malloc(9000);
        }
        changed = detach_once();
        for (int k = 0; k < BLOCKS; k++) {
            during[k] = realloc(during[k], 20000);
            memset(during[k], 1, 20000);
            free(during[k]);
            free(grown[k]);
        }
    }
    return changed;
}

/* Tests that the plugin's allocations, which go through its own GOT slots, are sampled. */
static uint32_t load_plugin(const char *path)
{
    attach_once();
    void *plugin = dlopen(path, RTLD_NOW);
    void *found = plugin ? dlsym(plugin, "plugin_allocate") : NULL;
    void *(*allocate)(size_t);
    must(found, "the plugin was not loaded");
    memcpy(&allocate, &found, sizeof found);
    uint64_t first = atomic_load(&atomic_load(&newest)->header.samples);
    for (int i = 0; found && i < PLUGIN_BLOCKS; i++)
        free(allocate(INTERVAL));
    uint64_t taken = atomic_load(&atomic_load(&newest)->header.samples) - first;
    must(taken > PLUGIN_BLOCKS / 16, "the plugin's blocks were not sampled");
    uint32_t changed = detach_once();
    if (found)
        free(allocate(1));
    return changed;
}

/* ---- leftovers after the detach ---- */

static int count_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* Unmaps the table that the server mapped last, and returns the number of tables that are still
 * mapped. */
static int count_tables_mapped(void)
{
    char line[512];
    int n = 0;
    const struct heap_table *last = atomic_exchange(&newest, NULL);
    if (last)
        munmap((void *)(uintptr_t)last, sizeof *last);
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, "memfd:ebb-heap") != NULL;
    if (f)
        fclose(f);
    return n;
}

static bool load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *at[3];
    static const char *const names[] = {"ebb_heap_attach", "ebb_heap_detach", "ebb_heap_slots"};
    for (int i = 0; i < 3; i++)
        if (!library || !(at[i] = dlsym(library, names[i])))
            return false;
    memcpy(&attach, &at[0], sizeof attach);
    memcpy(&detach, &at[1], sizeof detach);
    memcpy(&slots, &at[2], sizeof slots);
    return true;
}

int main(int argc, char **argv)
{
    if (argc < 5 || !load(argv[2])) {
        fprintf(stderr, "%s\n", argc < 5 ? "usage" : dlerror());
        return 2;
    }
    socket_path = argv[3];
    int n = atoi(argv[4]);
    if (!listen_for_tables())
        return 2;
    attach_once();
    detach_once();
    int fds = count_fds();
    uint32_t changed = strcmp(argv[1], "across") == 0   ? cross(n)
                       : strcmp(argv[1], "plugin") == 0 ? load_plugin(argv[5])
                                                        : cycle(n, argv[1][0] == 'f');
    must(detach() == 1 && slots() == 0, "a slot was left");
    for (int i = 0; i < 1000 && count_fds() != fds; i++)
        usleep(1000); /* waits until the server has closed the last descriptor */
    printf("slots %u tables %d samples %d fds %d mapped %d failures %d\n", changed,
           atomic_load(&tables), atomic_load(&samples) > 0, count_fds() - fds,
           count_tables_mapped(), atomic_load(&failures));
    return atomic_load(&failures) != 0;
}
