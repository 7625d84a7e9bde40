/* The live view on a terminal, using ncurses: a tree of processes, a machine line, keys. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "present/frame.h"

struct err;
struct screen;

/* Opens the screen. Returns -ENOTTY if stdout or stdin is not a terminal, -EINVAL for an unknown
 * $TERM, both with ERR set. Only one screen can exist at a time. */
int screen_new(struct screen **ret, struct err *err);
/* Restores the terminal. Safe to call at any moment. S may be NULL. */
void screen_free(struct screen *s);
/* Draws FRAME now, and again after each key. FRAME must remain valid until the next call. */
void screen_draw(struct screen *s, const struct frame *frame);
/* Returns true while the user has paused the view. */
bool screen_is_paused(const struct screen *s);

enum screen_action { SCREEN_NONE, SCREEN_QUIT, SCREEN_ATTACH };
/* Handles pending keys and redraws. Keys: m memory, a anon, u unique, r rate, p pid and g gpu sort
 * by that column (the same key again reverses the order); t tree or flat; arrows and
 * PgUp/PgDn/Home/End move; space or Enter folds, +/- folds all; P pauses; c full command; h or ?
 * help; A requests to attach to the selected process; q quits. Never blocks. */
enum screen_action screen_keys(struct screen *s);
/* Gets the pid of the selected process. Returns false if the view is empty. */
bool screen_selected(const struct screen *s, int32_t *ret_pid);
/* Makes the notice visible again after a key has hidden it. */
void screen_show_notice(struct screen *s);
/* Adapts to the new terminal size; call it after SIGWINCH. */
void screen_resize(struct screen *s);
