/* The live view on a terminal: ncurses, a tree of processes, a machine line, keys. */
#pragma once

#include <stdbool.h>

#include "present/frame.h"

struct err;
struct screen;

/* -ENOTTY where stdout or stdin is no terminal, -EINVAL for an unknown $TERM (the sentence says
 * so). One at a time. */
int screen_new(struct screen **ret, struct err *err);
/* Gives the terminal back as it was. Safe at any moment, NULL is fine. */
void screen_free(struct screen *s);
/* Draws FRAME, and again when a key asks for it: it must stay until the next one. */
void screen_draw(struct screen *s, const struct frame *frame);
bool screen_is_paused(const struct screen *s); /* the frame is to stay as it is */

enum screen_action { SCREEN_NONE, SCREEN_QUIT };
/* Reads the keys that wait on stdin and redraws: sort (m memory, a anon, u unique, r rate, p pid,
 * g gpu; the same key again turns the order round), t tree or flat, arrows and
 * PgUp/PgDn/Home/End, space or Enter folds, +/- all, P pauses, c full command, h or ? help,
 * q quits. Never blocks. */
enum screen_action screen_keys(struct screen *s);
/* After SIGWINCH. */
void screen_resize(struct screen *s);
