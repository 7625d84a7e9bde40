/* Gives the terminal back when the program crashes, so that the shell stays usable. */
#pragma once

/* Before ncurses changes it: how the terminal is. */
void crash_remember(void);
/* After newterm. Handles the signals of crashes that nobody else handles. */
void crash_begin(void);
void crash_end(void);
