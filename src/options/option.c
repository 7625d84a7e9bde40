/* Parses the text of an option into its value. */
#include "options/option.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/quantity.h"

enum { WORD_MAX = 48 }; /* longer words are not considered in the search for a similar name */

struct option_text {
    struct option_text *next;
    char s[];
};

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edit distance between A and B: the number of insertions, deletions, substitutions and swaps of
 * neighbours. Both are shorter than WORD_MAX. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    size_t rows[3][WORD_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++)
        last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = lesser(last[j - 1] + (a[i - 1] != b[j - 1]), lesser(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = lesser(row[j], before[j - 2] + 1);
        }
        size_t *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[m];
}

const char *option_nearest(const char *word, const char *const *words, size_t count)
{
    const char *best = NULL;
    size_t len = strlen(word);
    /* a name is suggested only if it needs fewer edits than this */
    size_t best_distance = len < 3 ? 2 : len < 9 ? 3 : 4;
    if (len < 2 || len > WORD_MAX)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        if (strlen(words[i]) > WORD_MAX)
            continue;
        size_t d = strncmp(word, words[i], len) == 0 ? 1 : edit_distance(word, words[i]);
        if (d < best_distance) {
            best = words[i];
            best_distance = d;
        }
    }
    return best;
}

static int option_parse_choice(const char *what, const struct option_desc *o, const char *text,
                               const char **ret, struct err *err)
{
    size_t len = strlen(text);
    for (const char *word = o->arg; *word;) {
        size_t n = strcspn(word, "|");
        if (n == len && memcmp(word, text, n) == 0) {
            *ret = text;
            return 0;
        }
        word += n + (word[n] == '|');
    }
    return err_set(err, -EINVAL, "%s: \"%.100s\" is not one of %s", what, text, o->arg);
}

static int option_parse_duration(const char *what, const struct option_desc *o, const char *text,
                                 uint64_t *ret, struct err *err)
{
    uint64_t max = o->max ? (uint64_t)o->max * NS_PER_MS : UINT64_MAX;
    return quantity_parse_duration(what, text, (uint64_t)o->min * NS_PER_MS, max, ret, err);
}

static int option_parse_seconds(const char *what, const struct option_desc *o, const char *text,
                                double *ret, struct err *err)
{
    uint64_t ns = 0;
    int r = option_parse_duration(what, o, text, &ns, err);
    if (r == 0)
        *ret = (double)ns / (double)NS_PER_S;
    return r;
}

/* Writes 65536 as "64K". */
static const char *option_round_size(char out[24], int64_t bytes)
{
    static const char units[] = "BKMGT";
    size_t unit = 0;
    for (; bytes && bytes % 1024 == 0 && unit < 4; unit++)
        bytes /= 1024;
    snprintf(out, 24, "%lld%c", (long long)bytes, units[unit]);
    return out;
}

static int option_parse_bytes(const char *what, const struct option_desc *o, const char *text,
                              uint64_t *ret, struct err *err)
{
    struct quantity_size size = {0};
    char min[24], max[24];
    bool is_size = quantity_parse_size(what, text, &size, NULL) == 0 && !size.is_percent;
    if (is_size && size.bytes >= (uint64_t)o->min && (!o->max || size.bytes <= (uint64_t)o->max)) {
        *ret = size.bytes;
        return 0;
    }
    option_round_size(min, o->min);
    return o->max ? err_set(err, -EINVAL, "%s: \"%.100s\" is not a size from %s to %s", what, text,
                            min, option_round_size(max, o->max))
                  : err_set(err, -EINVAL, "%s: \"%.100s\" is not a size of %s or more", what, text,
                            min);
}

static int option_parse_int(const char *what, const struct option_desc *o, const char *text,
                            int64_t *ret, struct err *err)
{
    bool is_free = o->min == 0 && o->max == 0;
    return quantity_parse_int(what, text, is_free ? INT64_MIN : o->min, o->max ? o->max : INT64_MAX,
                              ret, err);
}

static int option_add_text(const char *what, const char *text, struct option_texts *ret,
                           struct err *err)
{
    if (ret->count == OPTION_TEXTS_MAX)
        return err_set(
            err, -EINVAL,
            "%s: \"%.100s\" is one value too many; the option can be given at most %d times", what,
            text, (int)OPTION_TEXTS_MAX);
    ret->v[ret->count++] = text;
    return 0;
}

/* Parses TEXT into the option's value, which may point into TEXT. */
static int option_set(const struct option_desc *o, const char *what, const char *text, void *values,
                      struct err *err)
{
    void *at = (char *)values + o->offset;
    bool is_text = o->type == OPTION_TEXT || o->type == OPTION_TEXTS || o->type == OPTION_PATH ||
                   o->type == OPTION_PARSED;
    if (is_text && !*text)
        return err_set(err, -EINVAL, "%s: the value is empty; write it like %s %s", what, what,
                       o->arg);
    switch (o->type) {
    case OPTION_FLAG:
        *(bool *)at = true;
        return 0;
    case OPTION_TEXT:
    case OPTION_PATH:
        *(const char **)at = text;
        return 0;
    case OPTION_TEXTS:
        return option_add_text(what, text, at, err);
    case OPTION_CHOICE:
        return option_parse_choice(what, o, text, at, err);
    case OPTION_DURATION:
        return option_parse_duration(what, o, text, at, err);
    case OPTION_SECONDS:
        return option_parse_seconds(what, o, text, at, err);
    case OPTION_SIZE:
        return quantity_parse_size(what, text, at, err);
    case OPTION_BYTES:
        return option_parse_bytes(what, o, text, at, err);
    case OPTION_INT:
        return option_parse_int(what, o, text, at, err);
    case OPTION_PARSED:
        return o->parse(what, text, at, err);
    }
    return -EINVAL;
}

/* ---- given options ---- */

const struct option_given *options_find(const struct options_given *given, const char *name)
{
    for (size_t i = 0; i < given->count; i++)
        if (strcmp(given->v[i].option->name, name) == 0)
            return &given->v[i];
    return NULL;
}

static const char *option_keep_text(struct options_given *given, const char *text)
{
    size_t size = strlen(text) + 1;
    struct option_text *t = malloc(sizeof *t + size);
    if (!t)
        return NULL;
    memcpy(t->s, text, size);
    t->next = given->texts;
    given->texts = t;
    return t->s;
}

int options_give(struct options_given *given, const struct option_desc *o, const char *what,
                 const char *text, void *values, struct err *err)
{
    const char *kept = o->type == OPTION_FLAG ? NULL : option_keep_text(given, text);
    if (o->type != OPTION_FLAG && !kept)
        return err_set(err, -ENOMEM, "%s: out of memory", what);
    int r = option_set(o, what, kept, values, err);
    if (r < 0)
        return r;
    size_t i = 0;
    while (i < given->count && given->v[i].option != o)
        i++;
    given->v[i] = (struct option_given){.option = o, .text = kept};
    given->count += i == given->count;
    return 0;
}

void options_given_fini(struct options_given *given)
{
    for (struct option_text *t = given->texts, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    *given = (struct options_given){0};
}

int options_fall_back(const struct option_desc *table, void *values, struct err *err)
{
    for (const struct option_desc *o = table; o && o->name; o++) {
        if (o->fallback && option_set(o, o->name, o->fallback, values, err) < 0)
            return err_prefix(err, -EINVAL, "the default of");
    }
    return 0;
}

const struct option_desc *options_row(const struct option_desc *table, const char *name,
                                      const char *command, struct err *err)
{
    const char *names[OPTIONS_MAX];
    size_t count = 0;
    for (const struct option_desc *o = table; o->name && count < OPTIONS_MAX; o++) {
        if (o->scope != OPTION_ANYWHERE)
            continue;
        if (strcmp(o->name, name) == 0)
            return o;
        names[count++] = o->name;
    }
    const char *nearest = option_nearest(name, names, count);
    if (nearest)
        err_set(err, -EINVAL, "unknown option \"%.100s\"; did you mean \"%s\"?", name, nearest);
    else
        err_set(err, -EINVAL, "unknown option \"%.100s\"; `ebb help %s` lists all options", name,
                command);
    return NULL;
}
