/* The ways of asking, for ask.c: each says whether anybody was reached, and why not. */
#pragma once

#include <stdbool.h>

#include "guard/ask.h"

/* Adds one clause to WHY; one that does not fit whole is left out. */
void ask_add_why(char why[ASK_TEXT_MAX], const char *clause);

bool ask_by_socket(struct ask *a, struct mark_receiver *marks);
bool ask_by_signal(struct ask *a, const struct mark_receiver *marks, struct proc_tree *tree,
                   char why[ASK_TEXT_MAX]);
bool ask_by_command(struct ask *a, char why[ASK_TEXT_MAX]);
