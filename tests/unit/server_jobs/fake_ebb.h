/* A stand-in for `ebb run --detached`, in the test's own program. The job's command selects what
 * the stand-in does:
 *
 *   quick STATUS [FILE]   appends its id to FILE and exits at once
 *   hold [FILE]           runs until it is cancelled, or a file `finish` is in its run folder
 *   restart               like hold; restarts at once after a checkpoint request
 *   deaf                  like hold, but without a control socket
 *   json TEXT             exits at once, with TEXT as its run.json
 *   huge BYTES            exits at once with status 0, and a run.json of that many brackets
 *   link FILE             exits at once, with a link to FILE as its run.json
 *   vanish                exits without writing anything
 *   lock-only FILE        holds the unsigned lock until FILE exists
 *   late FILE [LIST]      starts when FILE exists, then like quick 0 LIST
 *   refuse                prints an error, and creates no folder
 *   killed                is killed at its start
 *   impostor              hangs, while a process of the job answers in its place
 *   flood                 like hold, with far too many and invalid messages
 */
#pragma once

#include <stdbool.h>

/* Returns true if ARGV is a call of the stand-in, with its exit status in *RET. */
bool fake_ebb(int argc, char **argv, int *ret);
