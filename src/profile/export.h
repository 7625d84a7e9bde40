/* Exports a profile for other tools. The functions return 0, -ENOMEM, or -ENODATA if there is no
 * reading. They do not check for write errors; the caller checks ferror(OUT). */
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
