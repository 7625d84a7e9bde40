/* Containers of the job that come to hold more and more, as the Python package tells them: who
 * keeps what a call site makes. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mark;

enum { KEPT_MAX = 3, KEPT_PROCESSES = 16, KEPT_NAME_MAX = 160, KEPT_TYPE_MAX = 24 };

struct kept {
    char name[KEPT_NAME_MAX]; /* "cache of a __main__.Features"; raw, as all that a job says */
    char type[KEPT_TYPE_MAX]; /* "dict" */
    double added;             /* entries, since the look before … */
    double bytes;             /* … and what they may come to, at most */
};

/* What one process told at its last look. */
struct kept_list {
    int32_t pid;
    int64_t since_step, step; /* of the look before, and of this one; -1: not known */
    struct kept at[KEPT_MAX];
    size_t count; /* 0: nothing gained much */
};

struct kept_lists {
    struct kept_list at[KEPT_PROCESSES];
    size_t count;
};

/* Takes one mark; those of other kinds, and nonsense, change nothing. */
void kept_take(struct kept_lists *l, const struct mark *mark);
/* What process PID told; NULL: nothing. */
const struct kept_list *kept_of(const struct kept_lists *l, int32_t pid);

/* "cache of a __main__.Features (dict): 76 entries more at step 40 than at step 21, 19.0 MiB at
 * most", raw. */
enum { KEPT_TEXT_MAX = KEPT_NAME_MAX + KEPT_TYPE_MAX + 160 };
const char *kept_text(char out[KEPT_TEXT_MAX], const struct kept_list *l, size_t i);
/* As `ebb heap` and `ebb diagnose` give it: an array. L may be NULL. */
json_t *kept_json(const struct kept_list *l);
