/* A simulated training job for `make demo`: it leaks a little at every step, starts a worker whose
 * memory is large but constant, and frees the memory of its evaluations. It needs nothing but libc,
 * and shows how any program sends marks to ebb: one datagram each, to the socket in $EBB_SOCKET. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    STEPS = 48,
    STEPS_PER_EPOCH = 16,
    STEP_MS = 200,
    EVAL_MS = 1000,
    MODEL_MIB = 64,
    WORKER_MIB = 96, /* Memory of the worker, which is large but constant. */
    BATCH_MIB = 4,   /* Memory of a batch, freed after each step. */
    LEAK_MIB = 1,    /* Memory leaked in each step. */
    EVAL_MIB = 128,  /* Memory of an evaluation, freed at its end. */
};

/* ---- marks ---- */

static int mark_socket = -1;

__attribute__((format(printf, 1, 2))) static void mark(const char *format, ...)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *path = getenv("EBB_SOCKET");
    char text[256];
    va_list arguments;

    if (!path || strlen(path) >= sizeof to.sun_path)
        return; /* If EBB_SOCKET is not set, the program is not running under ebb. */
    memcpy(to.sun_path, path, strlen(path) + 1);
    va_start(arguments, format);
    int len = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (mark_socket < 0)
        mark_socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (len > 0 && (size_t)len < sizeof text)
        (void)!sendto(mark_socket, text, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL,
                      (const struct sockaddr *)&to, sizeof to);
}

/* ---- memory ---- */

/* Allocates memory and writes to it; only written pages become resident. */
static void *take(size_t mib)
{
    size_t bytes = mib << 20;
    char *p = malloc(bytes);
    if (!p) {
        fprintf(stderr, "leak: no memory left\n");
        exit(1);
    }
    memset(p, 1, bytes);
    __asm__ volatile(""
                     :
                     : "r"(p)
                     /* Keeps the compiler from removing writes that are never read. */
                     : "memory");
    return p;
}

static void wait_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* ---- the job ---- */

/* Keeps its memory until its parent exits. */
static pid_t start_worker(void)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_NAME, "leak-worker");
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    take(WORKER_MIB);
    while (getppid() == parent)
        pause();
    _exit(0);
}

/* Allocates and frees the batch of one step, and adds an entry to a list that is never freed. */
static void train_one_step(int step)
{
    static struct kept {
        struct kept *next;
    } * history;
    void *batch = take(BATCH_MIB);
    wait_ms(STEP_MS);
    struct kept *loss = take(LEAK_MIB);
    loss->next = history;
    history = loss;
    free(batch);
    mark("KIND=step\nSTEP=%d\nEPOCH=%.4f\n", step, (double)step / STEPS_PER_EPOCH);
}

static void evaluate(int step)
{
    mark("KIND=phase\nNAME=eval\nSTATE=begin\n");
    void *predictions = take(EVAL_MIB);
    wait_ms(EVAL_MS);
    free(predictions);
    mark("KIND=phase\nNAME=eval\nSTATE=end\n");
    mark("KIND=eval\nSTEP=%d\n", step);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* Flushes each line, also if the output is a pipe. */
    void *model = take(MODEL_MIB);
    pid_t worker = start_worker();
    printf("model loaded, one worker started; %d steps\n", STEPS);
    mark("KIND=begin\nSTEPS_PER_EPOCH=%d\nMAX_STEPS=%d\n", STEPS_PER_EPOCH, STEPS);
    for (int step = 1; step <= STEPS; step++) {
        train_one_step(step);
        if (step % STEPS_PER_EPOCH)
            continue;
        printf("step %2d/%d  loss %.3f\n", step, STEPS, 2.0 / (1.0 + 0.1 * step));
        if (step < STEPS)
            evaluate(step);
        mark("KIND=epoch\nSTEP=%d\nEPOCH=%d\n", step, step / STEPS_PER_EPOCH);
    }
    mark("KIND=end\nSTEP=%d\n", STEPS);
    if (worker > 0) {
        kill(worker, SIGTERM);
        waitpid(worker, NULL, 0);
    }
    free(model);
    printf("done\n");
    return 0;
}
