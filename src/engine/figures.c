/* Extracts the metrics that a process reports in series marks. */
#include "engine/figures.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"

static bool is(const struct mark_line *line, const char *key)
{
    return strlen(key) == line->key_len && memcmp(line->key, key, line->key_len) == 0;
}

/* True if the key describes the mark itself and is not a reported metric. */
static bool is_about_mark(const struct mark_line *line)
{
    static const char *const keys[] = {
        "KIND", "NAME",     "VALUE",           "STEP",           "EPOCH", "MAX_STEPS",
        "RANK", "EXAMPLES", "EFFECTIVE_BATCH", "STEPS_PER_EPOCH"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (is(line, keys[i]))
            return true;
    return false;
}

static struct figure *figure_find(struct figures *f, int32_t pid, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->at[i].pid == pid && strcmp(f->at[i].name, name) == 0)
            return &f->at[i];
    if (f->count == FIGURES_MAX)
        return NULL;
    struct figure *one = &f->at[f->count++];
    *one = (struct figure){.id = f->next_id++, .pid = pid};
    memcpy(one->name, name, strlen(name) + 1);
    return one;
}

static bool figure_set(struct figures *f, int32_t pid, const char *name, size_t len, uint64_t value)
{
    char full[FIGURE_NAME_MAX + 16];
    if (pid > 0)
        snprintf(full, sizeof full, "%.*s@%d", (int)len, name, (int)pid);
    else
        snprintf(full, sizeof full, "%.*s", (int)len, name);
    struct figure *one = figure_find(f, pid, full);
    if (!one)
        return false;
    one->value = value;
    one->is_fresh = true;
    return true;
}

void figures_put(struct figures *f, int32_t pid, const char *name, uint64_t value)
{
    figure_set(f, pid, name, strnlen(name, FIGURE_NAME_MAX), value);
}

static bool figure_take(struct figures *f, int32_t pid, const char *name, size_t len,
                        const char *value, size_t value_len)
{
    int64_t v;
    return len > 0 && len <= FIGURE_NAME_MAX && number_parse_i64(value, value_len, &v) == 0 &&
           v >= 0 && figure_set(f, pid, name, len, (uint64_t)v);
}

static bool figure_take_line(struct figures *f, int32_t pid, const struct mark_line *line)
{
    char name[FIGURE_NAME_MAX];
    if (line->key_len > sizeof name)
        return false;
    for (size_t i = 0; i < line->key_len; i++) {
        char c = line->key[i];
        name[i] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    return figure_take(f, pid, name, line->key_len, line->value, line->value_len);
}

bool figures_take(struct figures *f, const struct mark *mark)
{
    size_t at = 0;
    bool has_any = false, has_all = true;
    struct mark_line line, name = {0}, value = {0};
    while (mark_next(mark, &at, &line)) {
        if (is(&line, "NAME"))
            name = line;
        else if (is(&line, "VALUE"))
            value = line;
        bool is_pair = name.value && value.value;
        if (!is_pair && is_about_mark(&line))
            continue;
        has_any = true;
        if (is_pair ? !figure_take(f, mark->pid, name.value, name.value_len, value.value,
                                   value.value_len)
                    : !figure_take_line(f, mark->pid, &line))
            has_all = false;
        if (is_pair)
            name = value = (struct mark_line){0};
    }
    return has_any && has_all;
}

void figures_forget(struct figures *f, int32_t pid)
{
    size_t kept = 0;
    for (size_t i = 0; pid > 0 && i < f->count; i++)
        if (f->at[i].pid != pid)
            f->at[kept++] = f->at[i];
    f->count = pid > 0 ? kept : f->count;
}
