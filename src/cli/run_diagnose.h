/* The diagnosis of a run that has ended, for its summary. */
#pragma once

#include <jansson.h>

/* Adds DOC["diagnosis"] where the job's memory grew and its recording is there: the verdict, the
 * first hypothesis and what to do, as diagnose_json has them. */
void run_diagnose(json_t *doc);
