/* sandboxed: installs a seccomp filter that kills the process if it calls memfd_create or socket,
 * and execs itself; the new program allocates and prints "done". Exits with 77 if filters are not
 * supported. */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EQUAL(n, yes) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, yes, 0)

static int confine(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        EQUAL(SYS_memfd_create, 2),
        EQUAL(SYS_socket, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
    };
    struct sock_fprog program = {.len = sizeof steps / sizeof steps[0], .filter = steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        char inside[] = "inside", *again[] = {argv[0], inside, NULL};
        if (confine() != 0)
            return 77;
        execv(argv[0], again);
        return 1;
    }
    for (int i = 0; i < 1000; i++)
        if (!malloc(100000))
            return 1;
    puts("done");
    return 0;
}
