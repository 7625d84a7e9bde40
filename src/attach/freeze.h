/* Calls a function while all threads of a process are stopped for a moment. No code runs in the
 * stopped threads, and the parent of the process does not notice. */
#pragma once

#include <stdint.h>

struct freeze_result {
    int r;             /* result of FN, or -errno if FN was not called */
    uint64_t pause_ns; /* how long the first thread was stopped */
};

/* Calls FN(user) in a child process, which traces all threads of PID. If some threads have not
 * stopped after MOST_NS, the child exits, the kernel lets all threads continue, and the result is
 * -ETIMEDOUT. The result is -EPERM if the process may not be traced or is already traced. FN must
 * not allocate, because another thread of ebb may have held malloc's lock at the fork. */
struct freeze_result freeze_call(int proc_fd, int32_t pid, uint64_t most_ns, int (*fn)(void *user),
                                 void *user);
