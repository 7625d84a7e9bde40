/* Writes the termination log. The file is small and on a local disk, so it is written without a
 * separate thread. */
#include "supervise/job_termination.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include "supervise/job.h"

enum { TERMINATION_S = 10 };

int job_termination_write(int fd, const char *text, size_t len)
{
    while (len > JOB_TERMINATION_MAX) { /* truncate after the last line that fits */
        const char *end = memrchr(text, '\n', JOB_TERMINATION_MAX);
        len = end ? (size_t)(end - text) : JOB_TERMINATION_MAX;
    }
    ssize_t n = pwrite(fd, text, len, 0);
    if (n < 0 || ftruncate(fd, n) < 0)
        return -errno;
    return (size_t)n == len ? 0 : -ENOSPC;
}

static void put_last_known(struct job *j, const struct job_facts *f, struct buf *out)
{
    char size[TEXT_SIZE_MAX], limit[TEXT_SIZE_MAX];
    const struct job_memory *m = &f->memory;
    buf_add_str(out, "the job was killed together with ebb");
    if (f->has_verdict) {
        buf_printf(out, "; last verdict: %s", f->verdict.verdict);
        if (f->verdict.sentence[0]) {
            buf_add_str(out, ": ");
            text_escape(out, f->verdict.sentence, strlen(f->verdict.sentence));
        }
    }
    if (m->has_job_bytes)
        buf_printf(out, "; job memory %s", text_size(size, m->job_bytes));
    if (m->has_job_bytes && m->has_limit_bytes)
        buf_printf(out, ", limit %s", text_size(limit, m->limit_bytes));
    if (j->now.progress.has_step)
        buf_printf(out, "; step %lld", (long long)j->now.progress.last_step);
    buf_add_byte(out, '\n');
}

void job_termination_tick(struct job *j, uint64_t now_ns)
{
    struct job_facts facts = {0};
    AUTO_BUF struct buf text = {0};
    const int fd = j->options->termination_fd;
    const uint64_t verdicts = engine_verdict_count(j->engine);
    if (fd < 0 || (j->termination.t_ns && verdicts == j->termination.verdicts &&
                   now_ns - j->termination.t_ns < TERMINATION_S * NS_PER_S))
        return;
    j->termination.t_ns = now_ns;
    j->termination.verdicts = verdicts;
    job_facts_now(j, &facts);
    put_last_known(j, &facts, &text);
    if (!text.failed)
        (void)job_termination_write(fd, text.data, text.len);
}
