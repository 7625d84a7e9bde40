/* Fuzzes the reader of job files (training_jobs.json) that other servers wrote. */
#include <sys/mman.h>
#include <stdio.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io.h"
#include "server/jobs/jobfile.h"
#include "server/jobs/state.h"
#include "target.h"

static void check_record(const json_t *job)
{
    enum job_state state;
    const json_t *request = json_object_get(job, "request");
    const char *word = json_string_value(json_object_get(job, "state"));
    if (!json_is_string(json_object_get(job, "job_id")) ||
        !json_is_string(json_object_get(job, "name")) || !word ||
        job_state_parse(word, &state) < 0 || !(json_is_null(request) || json_is_object(request)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    struct err err = {""};
    json_t *list = NULL;
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    if (jobfile_read(path, &list, &err) < 0)
        return 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        check_record(json_array_get(list, i));
    json_decref(list);
    return 0;
}
