/* instructions PID FLAG TURNS: counts the instructions of a program by stepping through its main
 * thread, for machines without performance counters. FLAG is a file that the program maps; its
 * first byte is 1 during a turn. Prints the number of instructions of each of TURNS turns. Runs
 * both processes at real-time priority on one core: each instruction takes two context switches. */
#include <fcntl.h>
#include <sched.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* Executes one instruction of the thread. Signals that arrive are delivered to it. */
static void step(pid_t pid)
{
    static int signal;
    int status;
    if (ptrace(PTRACE_SINGLESTEP, pid, NULL, (void *)(intptr_t)signal) < 0 ||
        waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status)) {
        perror("the program has ended");
        exit(1);
    }
    int stopped_by = status >> 16 ? 0 : WSTOPSIG(status);
    signal = stopped_by == SIGTRAP ? 0 : stopped_by;
}

static void set_priority(pid_t pid, int policy, unsigned core)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    (void)sched_setaffinity(pid, sizeof cores, &cores);
    (void)sched_setscheduler(pid, policy, &(struct sched_param){.sched_priority = policy != 0});
}

int main(int argc, char **argv)
{
    int fd = argc == 4 ? open(argv[2], O_RDONLY) : -1, status;
    volatile const uint8_t *flag =
        fd < 0 ? MAP_FAILED : mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
    pid_t pid = argc == 4 ? atoi(argv[1]) : 0;
    if (fd < 0 || flag == MAP_FAILED || ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0 ||
        ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0 || waitpid(pid, &status, __WALL) != pid) {
        perror("instructions");
        return 1;
    }
    set_priority(0, SCHED_FIFO, 0);
    set_priority(pid, SCHED_FIFO, 0);
    while (*flag)
        step(pid);
    for (int turns = atoi(argv[3]); turns > 0; turns--) {
        uint64_t count = 0;
        while (!*flag)
            step(pid);
        for (; *flag; count++)
            step(pid);
        printf("%" PRIu64 "\n", count);
    }
    set_priority(pid, SCHED_OTHER, 0);
    return ptrace(PTRACE_DETACH, pid, NULL, NULL) < 0;
}
