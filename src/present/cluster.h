/* Renders a run on several nodes: the answer, the ranks (worst first), their median, and the nodes.
 */
#pragma once

#include <stddef.h>

struct cluster;
struct doc;
struct summary;

/* In the functions below, WORST is the summary of the worst node (cluster.worst_node). The
 * allocating line and the advice come from WORST. WORST may be NULL. */

/* Renders the end of `ebb run`: two lines for a healthy job, otherwise about ten. */
void cluster_brief(struct doc *d, const struct cluster *c, const struct summary *worst);
/* Renders the output of `ebb show` and `ebb verdict`. */
void cluster_full(struct doc *d, const struct cluster *c, const struct summary *worst);
/* Adds the lead: lost nodes, how the job ended, the verdict, the allocating line, and the advice.
 * LABEL has the same meaning as in summary_lead. */
void cluster_lead(struct doc *d, const struct cluster *c, const struct summary *worst,
                  const char *label);
/* Adds the table of at most MOST ranks, and the nodes that need attention. */
void cluster_tables(struct doc *d, const struct cluster *c, size_t most);
