/* Exports a profile for other tools. Write errors are left in ferror(OUT) for the caller; the
 * functions return 0, -ENOMEM, or -ENODATA if there is no reading. */
#pragma once

#include <stdio.h>

#include "profile/names.h"
#include "profile/profile.h"

struct err;

/* Writes gzipped protobuf for pprof with alloc_objects, alloc_space, inuse_objects and
 * inuse_space (the default). */
int profile_export_pprof(const struct profile *p, struct names *names, FILE *out, struct err *err);
/* Writes live bytes as "outer;inner BYTES" lines. */
int profile_export_collapsed(const struct profile *p, struct names *names, FILE *out,
                             struct err *err);
/* Writes live bytes as JSON for speedscope. */
int profile_export_speedscope(const struct profile *p, struct names *names, FILE *out,
                              struct err *err);
