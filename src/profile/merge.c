/* Small rows that were reached from one function of the user's become one. */
#include "profile/merge.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "profile/tally.h"

/* A row of a tenth of all growth or more is worth its own line. */
static const double small_share = 0.1;

static bool may_grow(const struct tally *row)
{
    struct verdict_result result;
    verdict_judge(row->series, NULL, &result);
    double growth = tally_growth(row);
    return growth > 0 && (result.leak != VERDICT_LEAK_NO || growth < 2 * tally_sigma(row));
}

static double all_growth(struct tally **rows, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += may_grow(rows[i]) ? tally_growth(rows[i]) : 0;
    return sum;
}

/* A row that may be merged, and by what. */
struct small {
    struct tally *row;
    const struct name *own;
};

static int by_function(const void *a, const void *b)
{
    const struct small *x = a, *y = b;
    int order = strcmp(x->own->file, y->own->file);
    if (!order)
        order = strcmp(x->own->function, y->own->function);
    double left = tally_growth(x->row), right = tally_growth(y->row);
    return order ? order : (left < right) - (left > right);
}

static bool is_same_function(const struct small *a, const struct small *b)
{
    return strcmp(a->own->file, b->own->file) == 0 &&
           strcmp(a->own->function, b->own->function) == 0;
}

static size_t find_small(struct names *names, struct tally **rows, size_t n, struct small *ret)
{
    double most = small_share * all_growth(rows, n);
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        struct small one = {.row = rows[i]};
        if (tally_growth(rows[i]) < most && may_grow(rows[i]) &&
            names_program_of_site(names, rows[i]->site, 1, &one.own))
            ret[found++] = one;
    }
    qsort(ret, found, sizeof *ret, by_function);
    return found;
}

static void keep_own(struct tally *row)
{
    row->own_growth = tally_growth(row);
    row->own_live = row->live;
}

static void take_in(struct tallies *t, struct tally *row, struct tally *part)
{
    int32_t from = (int32_t)(part - t->at), into = (int32_t)(row - t->at);
    keep_own(part);
    part->part_of = into;
    row->parts++;
    row->sites += part->sites;
    row->live += part->live;
    row->objects += part->objects;
    row->variance += part->variance;
    row->allocated += part->allocated;
    part->live = part->objects = part->variance = part->allocated = 0;
    for (size_t i = 0; i <= t->p->n_sites; i++)
        if (t->of_site[i] == from)
            t->of_site[i] = into;
}

/* Those that took others in first, without those that were taken. */
static size_t reorder(struct tally **rows, size_t *count)
{
    size_t merged = 0, left = 0;
    for (size_t i = 0; i < *count; i++)
        if (rows[i]->part_of == TALLY_NONE)
            rows[left++] = rows[i];
    for (size_t i = 0; i < left; i++)
        if (rows[i]->parts) {
            struct tally *one = rows[i];
            rows[i] = rows[merged];
            rows[merged++] = one;
        }
    *count = left;
    return merged;
}

size_t merge_small(struct tallies *t, struct names *names, struct tally **rows, size_t *count)
{
    struct small *list = calloc(*count + 1, sizeof *list);
    size_t n = list ? find_small(names, rows, *count, list) : 0;
    for (size_t i = 0, j; i < n; i = j) {
        struct tally *row = list[i].row;
        keep_own(row);
        for (j = i + 1; j < n && is_same_function(&list[i], &list[j]); j++) {
            row->parts += row->parts == 0;
            take_in(t, row, list[j].row);
        }
    }
    free(list);
    return reorder(rows, count);
}
