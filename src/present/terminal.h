/* Checks the terminal type, and restores the terminal after a crash. */
#pragma once

#include <stdbool.h>

/* Returns true if there is a description of $TERM. newterm checks this as well, but leaks memory if
 * there is none. */
bool terminal_is_known(void);
/* Saves the terminal's state. Call this function before ncurses changes the terminal. */
void terminal_remember(void);
/* Installs handlers that restore the terminal after a crash signal. A signal that already has a
 * handler keeps it. Call this function after newterm. */
void terminal_guard(void);
void terminal_unguard(void);
