/* What of `ebb run` a request to the job server may use. */
#pragma once

#include <jansson.h>

struct err;

/* As job_options_check_fn (jobs/spec.h): OPTIONS by their long names, true for flags. */
int serve_job_check(const json_t *options, struct err *err);
