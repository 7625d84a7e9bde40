/* forks WAY N: a parent with live memory starts N children, one after another, and each allocates.
 * WAY is one of: fork; raw (fork without notifying the C library); threads (fork while other
 * threads allocate); vfork (the child allocates in its parent's memory). Then the parent prints its
 * pid and the pids of its children. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MINE = 32 << 20, CHILDS = 24 << 20, PIECE = 64 << 10 };

static _Atomic(int) is_over;

static void *allocate(size_t bytes)
{
    void **list = NULL;
    for (size_t i = 0; i < bytes; i += PIECE) {
        void **piece = malloc(PIECE);
        *piece = list;
        list = piece;
    }
    return list;
}

static void release(void *list)
{
    while (list) {
        void *next = *(void **)list;
        free(list);
        list = next;
    }
}

static void *churn(void *nothing)
{
    while (!atomic_load(&is_over))
        release(allocate(MINE / 8));
    return nothing;
}

/* A vfork child shares its parent's memory. */
static pid_t make_borrower(void)
{
    static void *volatile of_child;
    pid_t pid = vfork();
    if (pid == 0) {
        of_child = allocate(CHILDS / 8);
        _exit(of_child ? 0 : 1);
    }
    release(of_child);
    of_child = NULL;
    return pid;
}

static pid_t make(const char *way)
{
    if (strcmp(way, "vfork") == 0)
        return make_borrower();
    if (strcmp(way, "raw") == 0)
        return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    return fork();
}

/* The child frees the block of its parent and keeps its own block. */
static void child(void *inherited)
{
    release(inherited);
    void *mine = allocate(CHILDS);
    _exit(mine ? 0 : 1);
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "fork";
    int n = argc > 2 ? atoi(argv[2]) : 10, failed = 0;
    pthread_t threads[4];
    int with_threads = strcmp(way, "threads") == 0;
    void *mine = allocate(MINE);
    for (int i = 0; with_threads && i < 4; i++)
        if (pthread_create(&threads[i], NULL, churn, NULL) != 0)
            return 2;
    printf("%d\n", getpid());
    for (int i = 0; i < n; i++) {
        int status = 0;
        pid_t pid = make(way);
        if (pid == 0)
            child(mine);
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            failed++;
        printf("%d\n", pid);
    }
    atomic_store(&is_over, 1);
    for (int i = 0; with_threads && i < 4; i++)
        pthread_join(threads[i], NULL);
    return failed || !mine;
}
