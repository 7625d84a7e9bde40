/* Where `ebb serve` keeps its state, and where its clients look for it. */
#pragma once

#include <limits.h>

struct err;

/* GIVEN, else $EBB_STATE_DIR, made absolute; without both $XDG_STATE_HOME/ebb or
 * ~/.local/state/ebb. 0, or -errno with a sentence. */
int cli_state_dir(const char *given, char ret[PATH_MAX], struct err *err);
/* The server's unix socket in it. */
int cli_state_socket(const char *state_dir, char ret[PATH_MAX], struct err *err);
