/* Waits for the supervisor to exit. If the supervisor was killed, cleans up after it. */
#include "guard/sentinel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "guard/sweep.h"
#include "mark/receiver.h"

enum {
    POLL_MS = 100,
    SETTLE_MS = 1000, /* time for remaining processes to exit by themselves */
};

struct sentinel_note *sentinel_note_new(bool keep)
{
    struct sentinel_note *note =
        mmap(NULL, sizeof *note, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (note == MAP_FAILED)
        return NULL;
    note->keep = keep;
    note->stream_pair[0] = note->stream_pair[1] = -1;
    if (keep)
        (void)!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                          note->stream_pair);
    return note;
}

/* ---- the job's output streams ---- */

union control {
    struct cmsghdr header;
    char space[CMSG_SPACE(SENTINEL_STREAMS * sizeof(int))];
};

void sentinel_keep_streams(const struct sentinel_note *note, const int *fds, size_t count)
{
    char one = 's';
    union control control = {.space = {0}};
    struct iovec iov = {.iov_base = &one, .iov_len = 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control};
    int open[SENTINEL_STREAMS];
    size_t n = 0;
    for (size_t i = 0; i < count && n < SENTINEL_STREAMS; i++)
        if (fds[i] >= 0)
            open[n++] = fds[i];
    if (note->stream_pair[1] < 0 || n == 0)
        return;
    /* Removes the message of the previous segment, if the sentinel has not read it. Receiving it
     * without a control buffer closes the fds in it. */
    while (recv(note->stream_pair[0], &one, 1, MSG_DONTWAIT) > 0)
        ;
    msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    *c = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(n * sizeof(int))};
    memcpy(CMSG_DATA(c), open, n * sizeof(int));
    (void)!sendmsg(note->stream_pair[1], &msg, MSG_NOSIGNAL);
}

/* Receives the output streams of the newest segment, and closes those of older segments. */
static void take_streams(const struct sentinel_note *note, struct pollfd fds[SENTINEL_STREAMS])
{
    char one;
    for (size_t i = 0; i < SENTINEL_STREAMS; i++)
        fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    for (;;) {
        union control control;
        struct iovec iov = {.iov_base = &one, .iov_len = 1};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
        if (note->stream_pair[0] < 0 ||
            recvmsg(note->stream_pair[0], &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) <= 0)
            return;
        const struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        size_t n = c ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
        for (size_t i = 0; i < SENTINEL_STREAMS; i++) {
            close_fd(&fds[i].fd);
            if (i < n)
                memcpy(&fds[i].fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
        }
    }
}

static void pass_output(struct pollfd *p, int log_fd)
{
    char data[16384];
    if (p->fd < 0 || !p->revents)
        return;
    ssize_t n = read(p->fd, data, sizeof data);
    if (n > 0) {
        if (log_fd >= 0)
            (void)io_write_all(log_fd, data, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(p->fd);
        p->fd = -1;
    }
}

/* ---- after the supervisor was killed ---- */

/* Reaps children, and stores the exit status of the job's first process. Returns false once no
 * child is left. */
static bool sentinel_reap(pid_t job, struct sentinel_end *ret)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == job) {
            ret->status_known = true;
            ret->status = status;
        }
    return !(pid < 0 && errno == ECHILD);
}

/* Waits for the job to end, and appends its output to the log. */
static void keep_job(const struct sentinel_note *note, int log_dirfd, struct sentinel_end *ret)
{
    struct pollfd fds[SENTINEL_STREAMS];
    uint64_t gone_ns = 0;
    int log_fd =
        log_dirfd < 0 || !note->log_name[0]
            ? -1
            : openat(log_dirfd, note->log_name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    take_streams(note, fds);
    ret->was_kept = true;
    while (sentinel_reap(note->job, ret)) {
        if (ret->status_known && !gone_ns)
            gone_ns = clock_mono_ns();
        if (gone_ns && clock_mono_ns() - gone_ns > SETTLE_MS * NS_PER_MS)
            break;
        poll(fds, SENTINEL_STREAMS, POLL_MS);
        for (size_t i = 0; i < SENTINEL_STREAMS; i++)
            pass_output(&fds[i], log_fd);
    }
    /* after the job's exit, read the rest of its output */
    while (poll(fds, SENTINEL_STREAMS, 0) > 0)
        for (size_t i = 0; i < SENTINEL_STREAMS; i++)
            pass_output(&fds[i], log_fd);
}

void sentinel_wait(const struct proc_root *root, pid_t supervisor, uint64_t grace_ns,
                   struct sentinel_note *note, int log_dirfd, struct sentinel_end *ret)
{
    int status = -1;
    *ret = (struct sentinel_end){.is_lost = false};
    for (;;) {
        int s;
        pid_t pid = waitpid(-1, &s, 0);
        if (pid == supervisor)
            status = s;
        else if (pid > 0 && pid == note->job) {
            ret->status_known = true;
            ret->status = s;
        }
        if (pid == supervisor || (pid < 0 && errno != EINTR))
            break;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    ret->is_lost = true;
    if (note->keep)
        keep_job(note, log_dirfd, ret);
    int ended = guard_end_all(root, grace_ns);
    ret->ended = ended > 0 ? ended : 0;
    struct guard_cgroup cgroup = guard_cgroup_none;
    memcpy(cgroup.dir, note->cgroup, sizeof cgroup.dir);
    (void)guard_cgroup_remove(root, &cgroup, clock_mono_ns() + GUARD_CGROUP_BUSY_MS * NS_PER_MS);
    mark_folder_remove(note->socket_folder);
}
