/* A profile in the forms other tools open. What could not be written shows in ferror of OUT, as the
 * caller's last look; the rest is 0, -ENOMEM, or -ENODATA: there is no reading. */
#pragma once

#include <stdio.h>

#include "profile/names.h"
#include "profile/profile.h"

struct err;

/* gzipped protobuf: alloc_objects, alloc_space, inuse_objects, inuse_space (the default). */
int profile_export_pprof(const struct profile *p, struct names *names, FILE *out, struct err *err);
/* "outer;inner BYTES" lines of what lives. */
int profile_export_collapsed(const struct profile *p, struct names *names, FILE *out,
                             struct err *err);
/* What lives, as JSON for speedscope. */
int profile_export_speedscope(const struct profile *p, struct names *names, FILE *out,
                              struct err *err);
