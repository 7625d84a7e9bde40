/* The life of a profiled process: its settings, its heap table, and fork. */
#include "heap/life.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "heap/gpu.h"
#include "heap/live.h"
#include "heap/modules.h"
#include "heap/record.h"
#include "heap/sampler.h"
#include "heap/stacks.h"
#include "heap/unwind.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#define DEFAULT_INTERVAL (UINT64_C(512) << 10)
#define SOCKET_SUFFIX ".heap"

/* Number of attempts to create the table. An attempt may fail for a moment, because the socket's
 * queue is full or no descriptor is free; a later sample then tries again. */
enum { TRIES = 8 };
enum { SECTION_SHARDS = 16, SECTION_SHIFT = 60 };
/* life_detach waits at most one second for threads inside a section: DRAIN_TRIES pauses of
 * PAUSE_NS. A section takes microseconds, unless its thread is preempted. */
enum { DRAIN_TRIES = 10000, PAUSE_NS = 100000 };

/* Weak, because only glibc has this function, and a program with another libc must still start. */
extern const char *gnu_get_libc_version(void) __attribute__((weak));

/* A page that the kernel zeroes in the child of a fork. */
struct life_page {
    _Atomic(uint32_t) is_mine;   /* true if the table belongs to this process */
    _Atomic(uint32_t) is_locked; /* lock held by the one thread that creates or closes the table */
    _Atomic(int32_t) pid;        /* pid of this process; 0 before it is queried */
    uint32_t tries;              /* number of failed attempts to create a table */
    /* The sum of these counters is the number of threads inside a section. Several cache lines
     * share the load. The counters are in this page because a fork must reset them: the parent's
     * other threads do not exist in the child. */
    struct {
        _Alignas(64) _Atomic(uint32_t) count;
    } inside[SECTION_SHARDS];
};

static struct life_page *page;
static struct sockaddr_un address;
static socklen_t address_len;
static _Atomic(uint32_t) start_state;
static _Atomic(uint32_t) is_given_up;
static bool is_late; /* set by the constructor */
enum { START_NOT_YET, START_NOW, START_DONE };

/* ---- settings ---- */

static bool parse_number(const char *text, size_t len, uint64_t *ret)
{
    uint64_t n = 0;
    if (len == 0 || len > 18)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(text[i] - '0');
    }
    *ret = n;
    return true;
}

static void set_word(const char *word, size_t len, struct heap_process *ret)
{
    const char *equals = memchr(word, '=', len);
    size_t name = equals ? (size_t)(equals - word) + 1 : 0;
    uint64_t n;
    if (!equals || !parse_number(word + name, len - name, &n))
        return;
#define IS_WORD(text) (name == sizeof(text) - 1 && memcmp(word, text, name) == 0)
    if (IS_WORD("interval=") && n > 0)
        ret->base_interval = n;
    else if (IS_WORD("python=") && n <= 1)
        ret->wants_python_small = n == 1;
    else if (IS_WORD("filters="))
        ret->filters = n;
    else if (IS_WORD("parent="))
        ret->parent = n;
#undef IS_WORD
}

bool life_settings(const char *heap, const char *socket, struct heap_process *ret)
{
    ret->base_interval = DEFAULT_INTERVAL;
    ret->wants_python_small = true;
    bool is_off = !socket || !*socket || (heap && strcmp(heap, "0") == 0);
    while (heap && *heap) {
        size_t len = strcspn(heap, ",");
        set_word(heap, len, ret);
        heap += len;
        heap += *heap == ',';
    }
    return !is_off;
}

/* Reads an environment variable without getenv, because the program may define its own getenv. */
static const char *variable(const char *name)
{
    size_t len = strlen(name);
    for (char **e = environ; e && *e; e++)
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
            return *e + len + 1;
    return NULL;
}

static bool set_address(const char *socket)
{
    size_t len = strlen(socket);
    if (len + sizeof(SOCKET_SUFFIX) > sizeof address.sun_path)
        return false;
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, socket, len);
    memcpy(address.sun_path + len, SOCKET_SUFFIX, sizeof(SOCKET_SUFFIX));
    address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + sizeof(SOCKET_SUFFIX));
    return true;
}

/* ---- start ---- */

/* Maps pages by calling the kernel directly, so that the hooks do not count them. Returns NULL
 * on failure. */
static void *map_pages(size_t len, int flags, int fd)
{
    /* The last argument is passed on the stack, where an int would leave half of its slot
     * undefined. */
    long p = syscall(SYS_mmap, NULL, len, PROT_READ | PROT_WRITE, flags, fd, (off_t)0);
    return p == -1 ? NULL : (void *)p;
}

static void unmap(void *p, size_t len)
{
    syscall(SYS_munmap, p, len);
}

static bool make_page(void)
{
    size_t len = (size_t)getauxval(AT_PAGESZ);
    page = map_pages(len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (!page || syscall(SYS_madvise, page, len, MADV_WIPEONFORK) != 0)
        return false;
    atomic_store(&page->pid, (int32_t)syscall(SYS_getpid));
    return true;
}

static void settle_process(void)
{
    const char *socket = variable("EBB_SOCKET");
    bool is_on = life_settings(variable("EBB_HEAP"), socket, &heap_process) &&
                 !life_is_given_up() && gnu_get_libc_version && getauxval(AT_SECURE) == 0 &&
                 set_address(socket) && make_page();
    HEAP_STORE_RELEASE(heap_process.state, is_on ? HEAP_WAITING : HEAP_OFF);
}

void life_give_up(void)
{
    atomic_store(&is_given_up, 1);
    atomic_store(&heap_process.state, HEAP_OFF);
}

bool life_is_given_up(void)
{
    return atomic_load(&is_given_up);
}

bool life_start(void)
{
    uint32_t before = HEAP_LOAD_ACQUIRE(start_state);
    if (HEAP_LIKELY(before == START_DONE))
        return true;
    if (!environ || before == START_NOW ||
        !atomic_compare_exchange_strong(&start_state, &before, START_NOW))
        return false;
    int saved = errno;
    heap_thread.busy++;
    settle_process();
    heap_thread.busy--;
    errno = saved;
    HEAP_STORE_RELEASE(start_state, START_DONE);
    return true;
}

/* Starts profiling. Most processes of a job take no sample and create no table. A direct child of
 * ebb creates its table at once, before the program can install a seccomp filter, which might kill
 * the program for the system calls that create a table. Checking for new filters later is not
 * enough, because the hooks do not see a filter that the program installs by a raw system call. */
__attribute__((constructor)) static void begin(void)
{
    is_late = modules_is_late();
    if (is_late) { /* profiling is off until life_attach, whatever the environment says */
        HEAP_STORE_RELEASE(start_state, START_DONE);
        return;
    }
    if (!life_start() || atomic_load(&heap_process.state) != HEAP_WAITING ||
        heap_process.parent == 0 || (uint64_t)syscall(SYS_getppid) != heap_process.parent)
        return;
    heap_thread.busy++;
    life_make_table();
    heap_thread.busy--;
}

/* Marks the process as exiting. Memory freed after this call is still recorded, because destructors
 * of other libraries run later. */
__attribute__((destructor)) static void end(void)
{
    struct heap_table *t = heap_process.table;
    if (t && page && atomic_load(&page->is_mine))
        HEAP_STORE_RELEASE(t->header.is_ended, 1);
}

/* ---- creating and sending the table ----
 *
 * All system calls go through syscall(). The job or another preloaded library may override the libc
 * functions. Most of these are also cancellation points, which malloc must not be. */

static void close_fd(int fd)
{
    syscall(SYS_close, fd);
}

/* Moves FD above the standard streams. If the job has closed a standard stream, FD may have that
 * stream's number, and the job would write its output to FD. */
static int move_above_streams(int fd)
{
    if (fd < 0 || fd > 2)
        return fd;
    int away = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
    close_fd(fd);
    return away;
}

static int connect_socket(void)
{
    int fd = move_above_streams(
        (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd >= 0 && syscall(SYS_connect, fd, &address, address_len) != 0) {
        close_fd(fd);
        fd = -1;
    }
    return fd;
}

/* Returns false if RLIMIT_FSIZE is too low. Growing the table's file beyond that limit would kill
 * the job with SIGXFSZ. */
static bool is_size_allowed(void)
{
    struct rlimit limit;
    return syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) == 0 &&
           limit.rlim_cur >= sizeof(struct heap_table);
}

/* Returns true for strict overcommit. In that mode, the first write to a page raises SIGBUS if the
 * kernel has no memory for the page, so the table allocates all its pages at once. */
static bool is_memory_strict(void)
{
    char mode = 0;
    int fd =
        (int)syscall(SYS_openat, AT_FDCWD, "/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool is_strict = syscall(SYS_read, fd, &mode, 1) == 1 && mode == '2';
    close_fd(fd);
    return is_strict;
}

static int make_memfd(void)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = (int)syscall(SYS_memfd_create, "ebb-heap", flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = (int)syscall(SYS_memfd_create, "ebb-heap", flags);
    fd = move_above_streams(fd);
    if (fd < 0)
        return -1;
    if (syscall(SYS_ftruncate, fd, sizeof(struct heap_table)) == 0 &&
        (!is_memory_strict() || syscall(SYS_fallocate, fd, 0, 0, sizeof(struct heap_table)) == 0) &&
        syscall(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    close_fd(fd);
    return -1;
}

static void fill_header(struct heap_header *h)
{
    memcpy(h->magic, HEAP_TABLE_MAGIC, sizeof h->magic);
    h->version = HEAP_TABLE_VERSION;
    h->header_bytes = sizeof *h;
    h->table_bytes = sizeof(struct heap_table);
    h->pid = atomic_load(&page->pid);
    h->start_ns = heap_clock_ns();
    h->base_interval = heap_process.base_interval;
    atomic_store(&h->interval, heap_process.base_interval);
}

static bool send_table(int to, int memfd)
{
    struct heap_hello hello = {.magic = HEAP_TABLE_MAGIC,
                               .version = HEAP_TABLE_VERSION,
                               .pid = atomic_load(&page->pid),
                               .table_bytes = sizeof(struct heap_table)};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&hello, sizeof hello};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &memfd, sizeof memfd);
    return syscall(SYS_sendmsg, to, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof hello;
}

static struct heap_table *map_and_send(int to)
{
    int fd = make_memfd();
    if (fd < 0)
        return NULL;
    struct heap_table *t = map_pages(sizeof *t, MAP_SHARED, fd);
    if (t) {
        fill_header(&t->header);
        if (!send_table(to, fd)) {
            unmap(t, sizeof *t);
            t = NULL;
        }
    }
    close_fd(fd);
    return t;
}

uint64_t life_filters(const char *status)
{
    static const char count[] = "\nSeccomp_filters:\t", mode[] = "\nSeccomp:\t";
    uint64_t n = 0;
    const char *found = strstr(status, count);
    if (found) {
        found += sizeof count - 1;
        parse_number(found, strcspn(found, "\n"), &n);
        return n;
    }
    found = strstr(status, mode);
    return found && found[sizeof mode - 1] != '0';
}

/* Returns true if the process is sandboxed. The rules of a filter that was inherited across exec
 * cannot be queried, but the filter may kill the process for the system calls that create the
 * table. Only the thread that creates the table calls this function. */
static bool is_sandboxed(void)
{
    static char status[4096];
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    long n = syscall(SYS_read, fd, status, sizeof status - 1);
    close_fd(fd);
    status[n > 0 ? n : 0] = '\0';
    return life_filters(status) > heap_process.filters;
}

/* Returns false in a vfork child, which has its own pid but uses its parent's memory. A table
 * created there would be recorded under the wrong process, so the parent creates the table. */
static bool is_process_itself(void)
{
    int32_t known = atomic_load(&page->pid), pid = (int32_t)syscall(SYS_getpid);
    if (known == 0)
        atomic_store(&page->pid, pid);
    return known == 0 || known == pid;
}

static void reset_all(void)
{
    sampler_reset();
    live_reset();
    stacks_reset();
    modules_reset();
    unwind_reset();
    python_reset();
    record_reset();
    gpu_reset();
}

static bool make_table(void)
{
    if (!is_process_itself())
        return false;
    if (is_sandboxed()) {
        atomic_store(&heap_process.state, HEAP_OFF);
        return false;
    }
    int to = is_size_allowed() ? connect_socket() : -1;
    struct heap_table *t = to >= 0 ? map_and_send(to) : NULL;
    if (to >= 0)
        close_fd(to);
    if (!t) {
        if (++page->tries >= TRIES)
            atomic_store(&heap_process.state, HEAP_OFF);
        return false;
    }
    heap_process.table = t;
    reset_all();
    atomic_store(&page->is_mine, 1);
    HEAP_STORE_RELEASE(heap_process.state, HEAP_ON);
    return true;
}

static bool lock_page(void)
{
    return atomic_exchange_explicit(&page->is_locked, 1, memory_order_acquire) == 0;
}

static void unlock_page(void)
{
    HEAP_STORE_RELEASE(page->is_locked, 0);
}

bool life_make_table(void)
{
    if (atomic_load(&heap_process.state) != HEAP_WAITING ||
        atomic_load(&heap_process.is_confined) || !lock_page())
        return false;
    int saved = errno;
    bool is_made = atomic_load(&heap_process.state) == HEAP_WAITING && make_table();
    errno = saved;
    unlock_page();
    return is_made;
}

/* ---- fork ---- */

void life_forked(void)
{
    if (!lock_page())
        return;
    if (atomic_load(&heap_process.state) == HEAP_ON && !atomic_load(&page->is_mine)) {
        int saved = errno;
        struct heap_table *old = heap_process.table;
        heap_process.table = NULL;
        reset_all();
        if (old && !atomic_load(&heap_process.is_confined))
            unmap(old, sizeof *old);
        errno = saved;
        HEAP_STORE_RELEASE(heap_process.state, HEAP_WAITING);
    }
    unlock_page();
}

bool life_is_on(void)
{
    if (HEAP_LOAD_ACQUIRE(heap_process.state) != HEAP_ON)
        return false;
    if (HEAP_LIKELY(HEAP_LOAD(page->is_mine)))
        return true;
    life_forked();
    return false;
}

/* ---- attaching and detaching ---- */

static _Atomic(uint32_t) *section_of(const struct heap_thread *t)
{
    return &page->inside[(uint64_t)(uintptr_t)t * UINT64_C(0x9e3779b97f4a7c15) >> SECTION_SHIFT]
                .count;
}

/* This function raises the count before it reads the state, and life_detach changes the state
 * before it reads the counts. All four accesses are sequentially consistent, so at least one side
 * sees the other's change. */
bool life_enter(const struct heap_thread *t)
{
    if (HEAP_LOAD_ACQUIRE(heap_process.state) == HEAP_OFF)
        return false;
    if (!is_late)
        return true;
    atomic_fetch_add(section_of(t), 1);
    if (atomic_load(&heap_process.state) != HEAP_OFF)
        return true;
    life_leave(t);
    return false;
}

void life_leave(const struct heap_thread *t)
{
    if (is_late)
        atomic_fetch_sub(section_of(t), 1);
}

/* Sets the countdown of a thread while profiling is off. If the library was preloaded, profiling
 * stays off, and the countdown is set to its maximum. A library that was loaded late may be
 * attached again, so the countdown is made negative: the first hooked call after the attach then
 * draws a new countdown. */
void life_rest(struct heap_thread *t)
{
    t->countdown = is_late ? -1 : INT64_MAX;
}

void life_pause(void)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
}

static bool wait_for_sections(void)
{
    for (int i = 0, tries = 0; i < SECTION_SHARDS && tries < DRAIN_TRIES;) {
        if (atomic_load(&page->inside[i].count) == 0) {
            if (++i == SECTION_SHARDS)
                return true;
        } else {
            life_pause();
            tries++;
        }
    }
    return false;
}

/* Turns profiling off while holding the lock, so that no other thread is creating a table at that
 * moment. Returns false if another thread held the lock for too long. */
static bool turn_off(void)
{
    for (int tries = 0; !lock_page(); tries++) {
        if (tries == DRAIN_TRIES)
            return false;
        life_pause();
    }
    atomic_store(&heap_process.state, HEAP_OFF);
    unlock_page();
    return true;
}

bool life_detach(void)
{
    int saved = errno;
    bool is_done = !page || (turn_off() && wait_for_sections());
    struct heap_table *old = heap_process.table;
    if (is_done && old) {
        heap_process.table = NULL;
        atomic_store(&page->is_mine, 0);
        live_reset();
        unmap(old, sizeof *old);
    }
    errno = saved;
    return is_done;
}

static const char *attach_refusal(const char *socket)
{
    if (!gnu_get_libc_version)
        return "the C library is not glibc";
    if (!is_late)
        return "the process was started with the profiler";
    if (getauxval(AT_SECURE) != 0)
        return "the program runs with elevated privileges (setuid, setgid or file capabilities)";
    if (atomic_load(&heap_process.state) != HEAP_OFF)
        return "the profiler is already active";
    if (!life_detach())
        return "a thread still uses the table of the previous attach";
    if (!set_address(socket))
        return "the socket path is too long";
    if (!page && !make_page())
        return "out of memory for the profiler";
    return NULL;
}

const char *life_attach(const char *socket, uint64_t interval, uint64_t filters)
{
    const char *refusal = attach_refusal(socket);
    if (refusal)
        return refusal;
    heap_process.base_interval = interval ? interval : DEFAULT_INTERVAL;
    heap_process.wants_python_small = true;
    heap_process.filters = filters;
    page->tries = 0;
    heap_thread.busy++;
    HEAP_STORE_RELEASE(heap_process.state, HEAP_WAITING);
    bool is_made = life_make_table();
    heap_thread.busy--;
    if (is_made)
        return NULL;
    bool is_sandbox = atomic_load(&heap_process.state) == HEAP_OFF;
    life_detach();
    return is_sandbox ? "the process is in a sandbox that may forbid the profiler's system calls"
                      : "the heap table could not be created or sent to ebb";
}
