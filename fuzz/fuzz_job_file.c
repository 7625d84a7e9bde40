/* Fuzzes the parser of job files (training_jobs.json) written by other servers. */
#include "base/err.h"
#include "server/jobs/jobfile.h"
#include "target.h"

static int check_entry(void *user, const struct jobfile_entry *e, struct err *err)
{
    (void)user, (void)err;
    if (!e->name || !e->name[0] || (unsigned)e->state >= JOB_STATES ||
        (e->request && !json_is_object(e->request)))
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = {""};
    jobfile_read("fuzz", (const char *)data, size, check_entry, NULL, &err);
    return 0;
}
