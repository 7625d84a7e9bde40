/* Fuzzes requests to run a job, as sent to POST /api/v1/jobs by `ebb submit`. It must be possible
 * to store an accepted request, read it back, and build a command line from it. */
#include "base/err.h"
#include "server/jobs/spec.h"
#include "target.h"

static void check_launch(const struct job_spec *spec)
{
    static const struct job_place place = {
        .run_dir = "/run", .folder_id = "0123456789abcdef", .lock_fd = 9};
    struct job_launch launch = {0};
    char folder[JOB_FOLDER_MAX];
    if (job_spec_launch(spec, NULL, "/usr/bin/ebb", &place, "0,3", &launch) == 0 && !launch.argv[0])
        abort();
    job_launch_fini(&launch);
    job_spec_folder(17, spec->name, folder);
    if (strchr(folder, '/'))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct job_spec spec = {0}, again = {0};
    struct err err = {""};
    json_t *doc = fuzz_json(data, size);
    if (json_is_object(doc) && job_spec_read(doc, "/", &spec, &err) == 0) {
        if (job_spec_read(spec.doc, "/", &again, &err) < 0)
            abort();
        check_launch(&spec);
    }
    job_spec_fini(&again);
    job_spec_fini(&spec);
    json_decref(doc);
    return 0;
}
