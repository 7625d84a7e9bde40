/* Waits; acts only when the supervisor is gone before its time. */
#include "guard/sentinel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "guard/sweep.h"

/* Only names we make ourselves are in it: the socket, then the folder. */
static void remove_folder(const char *folder)
{
    char path[192];
    if (!folder[0])
        return;
    snprintf(path, sizeof path, "%s/marks", folder);
    unlink(path);
    rmdir(folder);
}

int sentinel_wait(const struct proc_root *root, pid_t supervisor, uint64_t grace_ns,
                  const struct sentinel_note *note)
{
    int status = -1;
    for (;;) {
        int s;
        pid_t pid = waitpid(-1, &s, 0);
        if (pid == supervisor)
            status = s;
        if (pid == supervisor || (pid < 0 && errno != EINTR))
            break;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    int ended = guard_end_all(root, grace_ns);
    remove_folder(note->socket_folder);
    return (ended > 0 ? ended : 0) + 1;
}
