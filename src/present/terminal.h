/* The terminal itself: whether it is known, and how the shell gets it back when we crash. */
#pragma once

#include <stdbool.h>

/* Is $TERM described here? newterm says so too, but leaks when it is not. */
bool terminal_is_known(void);
/* Before ncurses changes it: how the terminal is. */
void terminal_remember(void);
/* After newterm. Handles the signals of crashes that nobody else handles. */
void terminal_guard(void);
void terminal_unguard(void);
