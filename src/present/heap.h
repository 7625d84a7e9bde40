/* A heap profile in words. */
#pragma once

#include <stddef.h>

struct doc;
struct kept_list;
struct profile_branch;
struct profile_frame;
struct profile_row;
struct profile_view;

/* What `ebb heap` prints of one process: the table of call sites, what keeps them alive (KEPT may
 * be NULL) and what the profiler cost. MEANING is the title of the column of growth: "growth",
 * "since step 40". */
void heap_doc(struct doc *d, const struct profile_view *v, const char *meaning,
              const struct kept_list *kept);
/* The same in a report: stacks are in a page alone, to be unfolded; a terminal and Markdown have
 * the first rows. */
void heap_report_doc(struct doc *d, const struct profile_view *v);
/* Where ROW allocates and for whom, as code: "figure.py:71 draw ← train.py:41 plot ← main". */
void heap_site_doc(struct doc *d, const struct profile_row *row);
/* The tree of --tree. */
void heap_tree_doc(struct doc *d, const struct profile_branch *root);
/* The fact "grows" of a summary: the call sites that grow. */
void heap_summary(struct doc *d, const struct profile_row *rows, size_t count);
