/* A profile in the forms other tools open. */
#pragma once

#include <stdio.h>

#include "profile/names.h"
#include "profile/profile.h"

/* gzipped protobuf: alloc_objects, alloc_space, inuse_objects, inuse_space (the default). */
int profile_export_pprof(const struct profile *p, struct names *names, FILE *out, struct err *err);
/* "outer;inner BYTES" lines of what lives. */
int profile_export_collapsed(const struct profile *p, struct names *names, FILE *out,
                             struct err *err);
int profile_export_speedscope(const struct profile *p, struct names *names, FILE *out,
                              struct err *err);
