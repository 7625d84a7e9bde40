/* Containers of the job that keep growing, as reported by the Python package. Such a container
 * keeps the allocations of its entries alive. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mark;
struct run;

enum { KEPT_MAX = 3, KEPT_PROCESSES = 16, KEPT_NAME_MAX = 160, KEPT_TYPE_MAX = 24 };

struct kept {
    /* Name such as "Features.cache"; not escaped, like all text from the job. */
    char name[KEPT_NAME_MAX];
    char type[KEPT_TYPE_MAX]; /* type such as "dict", or "" if unknown */
    double added; /* entries, or nodes of a tensor's graph, added since the previous report */
    double bytes; /* upper bound of the added bytes */
    /* limit on the number of entries, or on the bytes of an array; 0 if there is no limit */
    double limit;
    /* true if the container belongs to an installed package or the standard library */
    bool is_library;
    /* true if most of the added bytes are in autograd graphs that the container or its entries keep
     * alive */
    bool is_graph;
};

/* The last report of growing containers from one process. */
struct kept_list {
    int32_t pid;
    int64_t since_step,
        step; /* steps at which the previous report and this one were made, or -1 if unknown */
    struct kept at[KEPT_MAX];
    size_t count; /* number of containers; 0 if nothing grew significantly */
};

struct kept_lists {
    struct kept_list at[KEPT_PROCESSES];
    size_t count;
};

/* Adds one mark. Marks of other kinds and invalid marks are ignored. */
void kept_take(struct kept_lists *l, const struct mark *mark);
/* Adds containers from figures (container:NAME, container_bytes:NAME), for processes that have sent
 * no KIND=kept mark. The Python package sends these marks only once memory has grown considerably,
 * but sends the figures earlier. */
void kept_take_figures(struct kept_lists *l, const struct run *run);
/* Returns the report of process PID, or NULL. */
const struct kept_list *kept_of(const struct kept_lists *l, int32_t pid);

/* Returns true if the container's length is counted in bytes, as for an array or a text. */
bool kept_is_value(const struct kept *k);
/* Writes "Features.cache (dict): 76 entries added from step 21 to step 40, at most
 * 19.0 MiB"; not sanitised. */
enum { KEPT_TEXT_MAX = KEPT_NAME_MAX + KEPT_TYPE_MAX + 192 };
const char *kept_text(char out[KEPT_TEXT_MAX], const struct kept_list *l, size_t i);
/* Returns the containers as the JSON array that `ebb heap` and `ebb diagnose` show. L may be
 * NULL. */
json_t *kept_json(const struct kept_list *l);
