/* A stand-in for `ebb run --detached`, compiled into the test program. The job's command selects
 * its behaviour:
 *
 *   quick STATUS [FILE]   appends the job's id to FILE and exits at once
 *   hold [FILE]           runs until it is cancelled or its run folder contains a file `finish`
 *   restart               like hold; restarts at once after a checkpoint request
 *   deaf                  like hold, but without a control socket
 *   json TEXT             exits at once, with TEXT as its run.json
 *   huge BYTES            exits at once with status 0, and a run.json of that many bytes
 *   link FILE             exits at once, with a symlink to FILE as its run.json
 *   vanish                exits without writing anything
 *   lock-only FILE        holds the unsigned lock until FILE exists
 *   late FILE [LIST]      starts when FILE exists, then like quick 0 LIST
 *   refuse                prints an error, and creates no folder
 *   killed                is killed at its start
 *   impostor              hangs, while a process of the job accepts its connections
 *   flood                 like hold, but sends far too many messages, some of them invalid
 */
#pragma once

#include <stdbool.h>

/* If ARGV starts the stand-in, runs it, stores its exit status in *RET and returns true. Otherwise
 * returns false. */
bool fake_ebb(int argc, char **argv, int *ret);
