/* The folder in which `ebb serve` keeps its state, and in which clients find its socket. */
#pragma once

#include <limits.h>

struct err;

/* Returns the state folder as an absolute path: GIVEN, $EBB_STATE_DIR, or by default
 * $XDG_STATE_HOME/ebb (usually ~/.local/state/ebb). Returns 0, or -errno with an error. */
int cli_state_dir(const char *given, char ret[PATH_MAX], struct err *err);
/* Returns the path of the server's unix socket in STATE_DIR. */
int cli_state_socket(const char *state_dir, char ret[PATH_MAX], struct err *err);
