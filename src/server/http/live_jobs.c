/* The live stream of a server's own jobs. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "server/http/live_private.h"
#include "trace/logs.h"

/* What the hub's sources are asked with. */
struct of_jobs {
    struct jobs *jobs;
    live_machine_fn *machine;
    void *user;
};

static int job_of(void *user, int64_t id, json_t **ret)
{
    const struct of_jobs *s = user;
    return jobs_get(s->jobs, id, false, ret, NULL);
}

static ssize_t log_of(void *user, int64_t id, uint64_t offset, void *buf, size_t size,
                      uint64_t *ret_at)
{
    const struct of_jobs *s = user;
    AUTO_CLOSE int folder = jobs_folder(s->jobs, id, NULL, 0);
    return folder < 0 ? (ssize_t)folder : logs_read(folder, offset, buf, size, ret_at);
}

static uint64_t log_end_of(void *user, int64_t id)
{
    const struct of_jobs *s = user;
    AUTO_CLOSE int folder = jobs_folder(s->jobs, id, NULL, 0);
    struct logs_piece piece;
    uint64_t end = 0;
    if (folder >= 0 && logs_find(folder, UINT64_MAX, &piece, &end) == 0)
        close(piece.fd);
    return end;
}

static json_t *machine_of(void *user)
{
    const struct of_jobs *s = user;
    return s->machine(s->user);
}

static void end(struct live *l)
{
    struct of_jobs *s = l->sources.user;
    jobs_listen(s->jobs, NULL, l);
    free(s);
}

int live_new(struct loop *loop, struct jobs *jobs, live_machine_fn *machine, void *user,
             unsigned viewers_max, struct live **ret, struct err *err)
{
    struct of_jobs *s = malloc(sizeof *s);
    struct live *l;
    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    *s = (struct of_jobs){jobs, machine, user};
    struct live_sources sources = {job_of, log_of, log_end_of, machine_of, s};
    int rc = live_start(loop, &sources, &live_default_times, viewers_max, &l, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    l->end = end;
    jobs_listen(jobs, live_news, l);
    *ret = l;
    return 0;
}
