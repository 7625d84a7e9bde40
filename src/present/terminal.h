/* Checks the terminal type, and restores the terminal after a crash. */
#pragma once

#include <stdbool.h>

/* Returns true if $TERM has a description. newterm checks this as well, but leaks memory if it
 * has none. */
bool terminal_is_known(void);
/* Saves the terminal's state. Call it before ncurses changes it. */
void terminal_remember(void);
/* Restores the terminal when a crash signal arrives that has no handler yet. Call it after
 * newterm. */
void terminal_guard(void);
void terminal_unguard(void);
