/* A job with many processes: half of the processes allocate memory and free part of it ten times
 * per second; the others sleep. In addition, one process per second is started and exits. Usage:
 * crowd PROCESSES SECONDS */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROOM_BYTES = 4 << 20, PAGE_BYTES = 4096, BEAT_MS = 100 };

static void pause_ms(long ms)
{
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&ts, NULL);
}

static _Noreturn void sleeper(void)
{
    for (;;)
        pause();
}

/* Touches between a quarter and all of the buffer, a different amount each time. */
static _Noreturn void worker(unsigned seed)
{
    char *room = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        _exit(1);
    madvise(room, ROOM_BYTES, MADV_NOHUGEPAGE);
    for (;;) {
        seed = seed * 1103515245u + 12345u;
        size_t used =
            ROOM_BYTES / 4 + (size_t)(seed >> 8) % (ROOM_BYTES / PAGE_BYTES * 3 / 4) * PAGE_BYTES;
        for (size_t i = 0; i < used; i += PAGE_BYTES)
            room[i] = 1;
        madvise(room + used, ROOM_BYTES - used, MADV_DONTNEED);
        pause_ms(BEAT_MS);
    }
}

static pid_t start(int i)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (i % 2)
        worker((unsigned)i);
    sleeper();
}

static void come_and_go(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        pause_ms(500);
        _exit(0);
    }
    pause_ms(1000);
    waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    int processes = argc > 1 ? atoi(argv[1]) : 0;
    int seconds = argc > 2 ? atoi(argv[2]) : 0;
    if (processes < 1 || processes > 10000 || seconds < 1) {
        fputs("usage: crowd PROCESSES SECONDS\n", stderr);
        return 2;
    }
    pid_t *pids = calloc((size_t)processes, sizeof *pids);
    if (!pids)
        return 1;
    for (int i = 1; i < processes; i++)
        pids[i] = start(i);
    for (int i = 0; i < seconds; i++)
        come_and_go();
    for (int i = 1; i < processes; i++)
        if (pids[i] > 0)
            kill(pids[i], SIGKILL);
    while (wait(NULL) > 0)
        ;
    free(pids);
    return 0;
}
