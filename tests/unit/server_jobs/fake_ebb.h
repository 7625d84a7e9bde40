/* A stand-in for `ebb run --detached`, in the test's own program: what it does is in the command
 * that it is given.
 *
 *   quick STATUS [FILE]   adds its id to FILE and ends at once
 *   hold [FILE]           runs until it is cancelled, or a file `finish` is in its run folder
 *   restart               as hold; asked for a checkpoint, it is started again at once
 *   deaf                  the same, but nobody listens at its control socket
 *   json TEXT             ends at once, with TEXT as its run.json
 *   huge BYTES            ends at once, with a run.json of that many brackets, and well
 *   link FILE             ends at once, with a link to FILE as its run.json
 *   vanish                is gone without a word
 *   lock-only FILE        holds the lock without a name in it until FILE is there
 *   late FILE [LIST]      starts when FILE is there, then as quick 0 LIST
 *   refuse                says why not, and makes no folder
 *   killed                is killed before it does anything
 *   impostor              hangs, and a process of the job listens in its place and says yes
 *   flood                 as hold, with more and worse news than anybody wants
 */
#pragma once

#include <stdbool.h>

/* True where ARGV is that of such a call: *RET is the status to end with. */
bool fake_ebb(int argc, char **argv, int *ret);
