/* Requests a census from the processes of a run, each on its own socket, and waits for the answers.
 */
#include "cli/census.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/number.h"
#include "cli/ask.h"
#include "mark/mark.h"

enum { ASKED_MAX = 256, LOOK_MS = 500, SEND_WAIT_MS = 2000 };

struct asked {
    int32_t pid;
    bool is_done;
    struct sockaddr_un address;
};

struct asking {
    struct asked asked[ASKED_MAX];
    size_t count, waiting;
    struct sockaddr_un own;
    uint64_t id;
    json_t *answers;
};

/* Parses the pid in "marks.4711", the name of a process's socket next to "marks". */
static bool pid_of_name(const char *name, const char *marks, int32_t *ret)
{
    size_t len = strlen(marks);
    int64_t pid;
    if (strncmp(name, marks, len) != 0 || name[len] != '.' ||
        number_parse_i64(name + len + 1, strlen(name + len + 1), &pid) < 0 || pid <= 0 ||
        pid > INT32_MAX)
        return false;
    *ret = (int32_t)pid;
    return true;
}

static int by_pid(const void *a, const void *b)
{
    const struct asked *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

static int find_listeners(struct asking *a, const char *marks, int32_t only_pid)
{
    const char *slash = strrchr(marks, '/');
    char folder[PATH_MAX];
    int32_t pid;
    if (!slash ||
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - marks), marks) >= (int)sizeof folder)
        return -EINVAL;
    DIR *dir = opendir(folder);
    if (!dir)
        return -errno;
    for (const struct dirent *d; (d = readdir(dir)) && a->count < ASKED_MAX;) {
        struct asked *one = &a->asked[a->count];
        if (!pid_of_name(d->d_name, slash + 1, &pid) || (only_pid && pid != only_pid))
            continue;
        *one = (struct asked){.pid = pid, .address = {.sun_family = AF_UNIX}};
        if (snprintf(one->address.sun_path, sizeof one->address.sun_path, "%s/%s", folder,
                     d->d_name) < (int)sizeof one->address.sun_path)
            a->count++;
    }
    closedir(dir);
    qsort(a->asked, a->count, sizeof *a->asked, by_pid);
    return 0;
}

static void census_take_answer(struct asking *a, struct asked *one, const char *path,
                               size_t path_len, const char *error)
{
    if (one->is_done)
        return;
    one->is_done = true;
    a->waiting--;
    json_array_append_new(a->answers, json_pack("{s:i,s:o,s:o}", "pid", (int)one->pid, "path",
                                                path ? json_text(path, path_len) : json_null(),
                                                "error", json_text0(error)));
}

static void ask_all(struct asking *a)
{
    char text[192];
    size_t len = (size_t)snprintf(text, sizeof text, "CENSUS=%" PRIu64 "\nREPLY=%s\n", a->id,
                                  a->own.sun_path);
    size_t kept = 0;
    for (size_t i = 0; i < a->count; i++) {
        int r = mark_send(a->asked[i].address.sun_path, text, len, SEND_WAIT_MS);
        if (r == -ECONNREFUSED || r == -ENOENT) /* the process that bound the socket has exited */
            continue;
        a->asked[kept] = a->asked[i];
        a->waiting++;
        if (r < 0)
            census_take_answer(
                a, &a->asked[kept], NULL, 0,
                r == -EAGAIN ? "the process does not accept requests: it is stopped, or too busy"
                             : strerror(-r));
        kept++;
    }
    a->count = kept;
}

static struct asked *census_find_asked(struct asking *a, int64_t pid)
{
    for (size_t i = 0; i < a->count; i++)
        if (a->asked[i].pid == pid)
            return &a->asked[i];
    return NULL;
}

static void census_receive(struct asking *a, int fd)
{
    char text[MARK_TEXT_MAX], id[24];
    ssize_t n;
    snprintf(id, sizeof id, "%" PRIu64, a->id);
    while ((n = recv(fd, text, sizeof text, 0)) >= 0) {
        struct mark m;
        size_t len;
        int64_t pid;
        if (mark_parse(text, (size_t)n, &m) < 0 || m.kind != MARK_ACK || !mark_is(&m, "ID", id))
            continue;
        const char *value = mark_get(&m, "PID", &len);
        struct asked *one =
            value && number_parse_i64(value, len, &pid) == 0 ? census_find_asked(a, pid) : NULL;
        const char *path = mark_get(&m, "PATH", &len);
        if (one && mark_is(&m, "STATUS", "done") && path)
            census_take_answer(a, one, path, len, NULL);
        else if (one && mark_is(&m, "STATUS", "failed"))
            census_take_answer(a, one, NULL, 0, "the census failed, or could not be written");
    }
}

/* True if no process has the socket open any more. The kernel then refuses a connection. */
static bool has_gone(const struct asked *one)
{
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd >= 0 &&
           connect(fd, (const struct sockaddr *)&one->address, sizeof one->address) < 0 &&
           (errno == ECONNREFUSED || errno == ENOENT);
}

static void wait_for_all(struct asking *a, int fd, uint64_t timeout_ns)
{
    uint64_t until_ns = clock_mono_ns() + timeout_ns;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (a->waiting > 0 && clock_mono_ns() < until_ns) {
        uint64_t left_ms = (until_ns - clock_mono_ns()) / NS_PER_MS + 1;
        if (poll(&p, 1, left_ms < LOOK_MS ? (int)left_ms : LOOK_MS) > 0)
            census_receive(a, fd);
        for (size_t i = 0; i < a->count; i++)
            if (!a->asked[i].is_done && has_gone(&a->asked[i]))
                census_take_answer(a, &a->asked[i], NULL, 0,
                                   "the process exited before it "
                                   "answered");
    }
    for (size_t i = 0; i < a->count; i++)
        census_take_answer(
            a, &a->asked[i], NULL, 0,
            "no answer in time; the process may be busy in one long call (--timeout waits "
            "longer)");
}

json_t *census_ask(const char *marks, int32_t only_pid, uint64_t timeout_ns, struct err *err)
{
    struct asking *a = calloc(1, sizeof *a);
    int r = a ? find_listeners(a, marks, only_pid) : -ENOMEM;
    AUTO_CLOSE int fd = -1;
    json_t *answers = r == 0 ? json_array() : NULL;
    if (r == 0 && a->count > 0) {
        fd = ask_bind(marks, "census", &a->own);
        r = fd < 0 ? fd : 0;
    }
    if (r == 0 && a->count > 0) {
        a->answers = answers;
        a->id = clock_wall_ns();
        ask_all(a);
        wait_for_all(a, fd, timeout_ns);
        (void)unlink(a->own.sun_path);
    }
    free(a);
    if (r == 0)
        return answers;
    json_decref(answers);
    err_set(err, r, "cannot send a request to the run at %s: %s", marks, strerror(-r));
    return NULL;
}
