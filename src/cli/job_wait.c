/* Long polls: for the end of a job, and for more of its output. */
#include "cli/job_wait.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "cli/cli.h"
#include "cli/client.h"

enum { POLL_S = 50, LOG_POLL_S = 20 };

static bool is_state(const json_t *job, const char *word)
{
    const char *state = json_string_value(json_object_get(job, "state"));
    return state && strcmp(state, word) == 0;
}

bool job_is_ended(const json_t *job)
{
    return is_state(job, "succeeded") || is_state(job, "failed") || is_state(job, "cancelled") ||
           is_state(job, "lost");
}

int job_exit_status(const json_t *job)
{
    const json_t *status = json_object_get(job, "status");
    if (is_state(job, "succeeded"))
        return 0;
    if (!is_state(job, "failed") || !json_is_integer(status))
        return JOB_WAIT_NO_STATUS;
    json_int_t n = json_integer_value(status);
    return n > 0 && n < 256 ? (int)n : JOB_WAIT_NO_STATUS;
}

static int get_job(const char *command, const char *socket, int64_t id, unsigned wait_s,
                   json_t **ret)
{
    char path[96];
    int n = snprintf(path, sizeof path, "/api/v1/jobs/%lld", (long long)id);
    if (wait_s)
        snprintf(path + n, sizeof path - (size_t)n, "?until=ended&timeout_s=%u", wait_s);
    const struct client_request request = {
        .socket = socket, .method = "GET", .path = path, .wait_s = wait_s};
    return client_json(command, &request, ret);
}

int job_wait(const char *command, const char *socket, int64_t id, uint64_t until_ns, json_t **ret)
{
    for (;;) {
        uint64_t now = clock_mono_ns();
        uint64_t left_s = now < until_ns ? (until_ns - now + NS_PER_S - 1) / NS_PER_S : 0;
        json_t *job;
        int status =
            get_job(command, socket, id, left_s < POLL_S ? (unsigned)left_s : POLL_S, &job);
        if (status)
            return status;
        if (job_is_ended(job) || clock_mono_ns() >= until_ns) {
            *ret = job;
            return 0;
        }
        json_decref(job);
    }
}

/* ---- the log ---- */

struct printing {
    uint64_t bytes;
    int error;
};

static int print_part(void *user, const char *data, size_t len)
{
    struct printing *p = user;
    p->error = io_write_all(STDOUT_FILENO, data, len);
    if (p->error == 0)
        p->bytes += len;
    return p->error;
}

/* One answer's worth: how far it came. 0, or the exit status. */
static int print_some(const char *command, const char *socket, const char *path, unsigned wait_s,
                      uint64_t *offset, uint64_t *ret_end)
{
    struct printing p = {0};
    struct client_answer answer;
    struct err err = {""};
    const struct client_request request = {.socket = socket,
                                           .method = "GET",
                                           .path = path,
                                           .wait_s = wait_s,
                                           .fn = print_part,
                                           .user = &p};
    int r = client_ask(&request, &answer, &err);
    uint64_t from = answer.has_offset ? answer.offset : *offset;
    if (from > *offset && p.bytes && *offset > 0)
        cli_say("%s: %llu bytes between are no longer kept", command,
                (unsigned long long)(from - *offset));
    *offset = from + p.bytes;
    *ret_end = answer.has_end ? answer.end : *offset;
    client_answer_fini(&answer);
    if (p.error)
        return p.error == -EPIPE
                   ? CLI_PIPE_STATUS
                   : cli_failf(CLIENT_FAILED, "%s: cannot write to standard output: %s", command,
                               strerror(-p.error));
    if (r < 0 && !(p.bytes && r == -EBADMSG)) /* cut off because we were slow: there is more */
        return cli_failf(CLIENT_FAILED, "%s: %s", command, err.text);
    return 0;
}

int job_print_log(const char *command, const char *socket, int64_t id, uint64_t offset, bool follow)
{
    char path[128];
    uint64_t end = UINT64_MAX;
    bool is_ended = !follow;
    for (;;) {
        bool waits = !is_ended && offset >= end;
        int n = snprintf(path, sizeof path, "/api/v1/jobs/%lld/log?offset=%llu", (long long)id,
                         (unsigned long long)offset);
        if (waits)
            snprintf(path + n, sizeof path - (size_t)n, "&wait_s=%d", LOG_POLL_S);
        uint64_t before = offset;
        int status = print_some(command, socket, path, waits ? LOG_POLL_S : 0, &offset, &end);
        if (status)
            return status;
        if (offset > before)
            continue;
        if (is_ended)
            return 0;
        json_t *job; /* what it wrote before its end is there by then */
        status = get_job(command, socket, id, 0, &job);
        if (status)
            return status;
        is_ended = job_is_ended(job);
        json_decref(job);
    }
}
