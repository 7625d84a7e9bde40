/* Sends queries to the supervisor or the processes of a run, and binds a socket next to theirs
 * for the answer. */
#include "cli/ask.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "mark/mark.h"

enum { ANSWER_MAX = 64 << 10, SEND_WAIT_MS = 2000 };

int ask_bind(const char *marks, const char *what, struct sockaddr_un *ret)
{
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (snprintf(ret->sun_path, sizeof ret->sun_path, "%s.%s-%d", marks, what, (int)getpid()) >=
        (int)sizeof ret->sun_path)
        return -ENAMETOOLONG;
    (void)unlink(ret->sun_path);
    if (bind(fd, (const struct sockaddr *)ret, sizeof *ret) < 0)
        return -errno;
    /* If root asks about another user's job, that user must be able to answer, so everyone may
     * write to the socket. Only that user and root may enter its folder. */
    if (chmod(ret->sun_path, 0666) < 0) {
        int r = -errno;
        (void)unlink(ret->sun_path);
        return r;
    }
    int kept = fd;
    fd = -1;
    return kept;
}

static json_t *wait_answer(int fd, uint64_t timeout_ns, struct err *err)
{
    char text[ANSWER_MAX];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t until = clock_mono_ns() + timeout_ns;
    for (uint64_t now; (now = clock_mono_ns()) < until;) {
        int r = poll(&p, 1, (int)((until - now) / NS_PER_MS) + 1);
        if (r < 0 && errno != EINTR)
            break;
        ssize_t len = r > 0 ? recv(fd, text, sizeof text, 0) : -1;
        if (len > 0)
            return json_parse(text, (size_t)len, err);
    }
    err_set(err, -ETIMEDOUT, "the run's supervisor did not answer");
    return NULL;
}

json_t *ask_supervisor(const char *marks, const char *query, uint64_t timeout_ns, struct err *err)
{
    struct sockaddr_un own;
    char text[MARK_TEXT_MAX];
    json_t *answer = NULL;
    AUTO_CLOSE int fd = ask_bind(marks, "ask", &own);
    if (fd < 0) {
        err_set(err, fd, "cannot send a query to the run's supervisor: %s", strerror(-fd));
        return NULL;
    }
    int len = snprintf(text, sizeof text, "%sREPLY=%s\n", query, own.sun_path);
    int r = mark_send(marks, text, (size_t)len, SEND_WAIT_MS);
    if (r < 0)
        err_set(err, r, "cannot send a query to the run's supervisor: %s", strerror(-r));
    else
        answer = wait_answer(fd, timeout_ns, err);
    (void)unlink(own.sun_path);
    return answer;
}
