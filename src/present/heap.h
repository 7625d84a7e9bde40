/* Renders a heap profile. */
#pragma once

#include <stddef.h>

struct doc;
struct kept_list;
struct name;
struct profile_branch;
struct profile_row;
struct profile_view;

/* Renders the output of `ebb heap` for one process: the table of call sites, growing containers
 * (KEPT may be NULL) and the cost of the profiler. MEANING is the title of the growth column,
 * such as "growth" or "since step 40". */
void heap_doc(struct doc *d, const struct profile_view *v, const char *meaning,
              const struct kept_list *kept);
/* Renders the heap section of a report. A page contains folded stacks. A terminal and Markdown
 * contain only the first rows. */
void heap_report_doc(struct doc *d, const struct profile_view *v);
/* Adds the call site of ROW, followed by its callers, in code style, such as "figure.py:71 draw ←
 * train.py:41 plot ← main". */
void heap_site_doc(struct doc *d, const struct profile_row *row);
/* Adds "train.py:41 plot" or "c10::alloc_cpu (libc10.so)". */
void heap_frame_doc(struct doc *d, const struct name *frame);
/* Renders the output of `ebb heap --tree`. */
void heap_tree_doc(struct doc *d, const struct profile_branch *root);
/* Adds the fact "grows" to a summary: the growing call sites. */
void heap_summary(struct doc *d, const struct profile_row *rows, size_t count);
