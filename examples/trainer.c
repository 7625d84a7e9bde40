/* A simulated trainer that leaks, writes a checkpoint on request, and resumes from it. It needs
 * only libc, and shows the whole handshake with ebb's guard: hello, the request, the
 * acknowledgements, EBB_RESUME. `trainer help` lists its options; tests and benchmarks use it. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Settings are given as NAME=VALUE arguments. */
static struct {
    long steps;
    long step_ms;
    long leak_kib;
    long base_mib; /* memory of the model */
    long save_ms;
    long save_mib;   /* Memory needed to write a checkpoint. */
    long save_every; /* Steps between checkpoints; 0 writes them only on request. */
    long hello;      /* 0: does not listen for checkpoint requests */
    long marks;      /* 0: sends no marks */
    long ignore_term;
    long usr1; /* SIGUSR1 is also a checkpoint request */
    long mute; /* receives checkpoint requests but never answers */
    long fail; /* answers that the checkpoint failed */
    long die;  /* exits while writing a checkpoint */
} set = {.steps = 100, .step_ms = 20, .base_mib = 8, .hello = 1, .marks = 1};

static const char *checkpoint = "checkpoint";
/* The path of a file. If a path is given, the trainer does not exit after its last step; it answers
 * requests until the file exists. */
static const char *until;

static const struct {
    const char *name;
    long *value;
} names[] = {
    {"steps", &set.steps},
    {"step_ms", &set.step_ms},
    {"leak_kib", &set.leak_kib},
    {"base_mib", &set.base_mib},
    {"save_ms", &set.save_ms},
    {"save_mib", &set.save_mib},
    {"save_every", &set.save_every},
    {"hello", &set.hello},
    {"marks", &set.marks},
    {"ignore_term", &set.ignore_term},
    {"usr1", &set.usr1},
    {"mute", &set.mute},
    {"fail", &set.fail},
    {"die", &set.die},
};

/* ---- time and memory ---- */

static void sleep_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (ms > 0 && nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

/* Allocates memory and writes to it; only written pages become resident. */
static void *take(size_t bytes)
{
    if (bytes == 0)
        return NULL;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "trainer: Cannot allocate memory\n");
        exit(1);
    }
    memset(p, 1, bytes);
    return p;
}

/* ---- marks and requests ---- */

static int request_socket = -1;
static char reply_path[sizeof((struct sockaddr_un *)0)->sun_path];

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
    if (!set.marks || !address_of(getenv("EBB_SOCKET"), &to))
        return;
    va_start(arguments, format);
    int len = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (fd < 0) {
        const struct timeval wait = {.tv_usec = 200000};
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    }
    if (len > 0 && (size_t)len < sizeof text)
        (void)!sendto(fd, text, (size_t)len, MSG_NOSIGNAL, (const struct sockaddr *)&to, sizeof to);
}

static void say_hello(void)
{
    struct sockaddr_un own;
    if (!set.hello || !set.marks || !getenv("EBB_SOCKET"))
        return;
    snprintf(reply_path, sizeof reply_path, "%.80s.%d", getenv("EBB_SOCKET"), (int)getpid());
    if (!address_of(reply_path, &own))
        return;
    request_socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(request_socket, (const struct sockaddr *)&own, sizeof own) == 0)
        mark("KIND=hello\nREPLY=%s\nROLE=rank\nRANK=0\n", reply_path);
}

static void say_goodbye(void)
{
    if (reply_path[0])
        unlink(reply_path);
}

/* ---- checkpoints ---- */

static volatile sig_atomic_t signalled;

static void on_usr1(int signo)
{
    (void)signo;
    signalled = 1;
}

static long load(void)
{
    long step = 0;
    FILE *f = getenv("EBB_RESUME") ? fopen(checkpoint, "re") : NULL;
    if (f && fscanf(f, "%ld", &step) != 1)
        step = 0;
    if (f)
        fclose(f);
    return step;
}

/* Writes the checkpoint atomically. */
static void save(long step)
{
    char name[512];
    void *copy = take((size_t)set.save_mib << 20);
    mark("KIND=phase\nNAME=save\nSTATE=begin\n");
    snprintf(name, sizeof name, "%.400s.tmp", checkpoint);
    sleep_ms(set.save_ms);
    if (set.die)
        exit(3);
    FILE *f = fopen(name, "we");
    if (f) {
        fprintf(f, "%ld\n", step);
        fclose(f);
        rename(name, checkpoint);
    }
    if (copy)
        munmap(copy, (size_t)set.save_mib << 20);
    mark("KIND=phase\nNAME=save\nSTATE=end\n");
    mark("KIND=save\nSTEP=%ld\n", step);
}

static void answer(const char *id, long step)
{
    if (set.mute)
        return;
    mark("KIND=ack\nID=%s\nSTATUS=started\n", id);
    if (set.fail) {
        mark("KIND=ack\nID=%s\nSTATUS=failed\n", id);
        return;
    }
    save(step);
    mark("KIND=ack\nID=%s\nSTATUS=done\nPATH=%s\n", id, checkpoint);
}

/* Handles requests at the end of a step, as a real trainer would. */
static void handle_requests(long step)
{
    char text[256];
    ssize_t n;
    while (request_socket >= 0 && (n = recv(request_socket, text, sizeof text - 1, 0)) > 0) {
        text[n] = '\0';
        text[strcspn(text, "\n")] = '\0';
        if (strncmp(text, "CHECKPOINT=", 11) == 0)
            answer(text + 11, step);
        else if (strncmp(text, "STOP=", 5) == 0 && !set.ignore_term)
            exit(0);
    }
    if (signalled) {
        signalled = 0;
        save(step);
    }
}

/* ---- training ---- */

static void train(void)
{
    long step = load();
    printf("trainer: from step %ld\n", step);
    fflush(stdout);
    mark("KIND=begin\nMAX_STEPS=%ld\n", set.steps);
    while (step < set.steps) {
        sleep_ms(set.step_ms);
        (void)take((size_t)set.leak_kib << 10); /* the leak */
        step++;
        mark("KIND=step\nSTEP=%ld\nMAX_STEPS=%ld\n", step, set.steps);
        if (set.save_every && step % set.save_every == 0)
            save(step);
        handle_requests(step);
    }
    while (until && access(until, F_OK) < 0) {
        sleep_ms(set.step_ms);
        handle_requests(step);
    }
    mark("KIND=end\n");
    printf("trainer: done, %ld steps\n", step);
}

static int parse(const char *argument)
{
    const char *equals = strchr(argument, '=');
    size_t len = equals ? (size_t)(equals - argument) : 0;
    if (len == strlen("checkpoint") && strncmp(argument, "checkpoint", len) == 0) {
        checkpoint = equals + 1;
        return 0;
    }
    if (len == strlen("until") && strncmp(argument, "until", len) == 0) {
        until = equals + 1;
        return 0;
    }
    for (size_t i = 0; len && i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == len && strncmp(argument, names[i].name, len) == 0) {
            *names[i].value = strtol(equals + 1, NULL, 10);
            return 0;
        }
    return -1;
}

static int usage(void)
{
    fprintf(stderr, "usage: trainer [NAME=NUMBER…] [checkpoint=FILE] [until=FILE]; the names are:");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        fprintf(stderr, " %s", names[i].name);
    fprintf(stderr, "\n");
    return 2;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (parse(argv[i]) < 0)
            return usage();
    if (set.ignore_term)
        signal(SIGTERM, SIG_IGN);
    if (set.usr1)
        signal(SIGUSR1, on_usr1);
    atexit(say_goodbye);
    (void)take((size_t)set.base_mib << 20);
    say_hello();
    train();
    return 0;
}
