/* Combines all evidence on a process or the job into a probability. */
#pragma once

#include "judge/judge_private.h"

/* Collects the evidence on P, or on the whole job if P is NULL. Returns false if there are too few
 * readings. */
struct model_evidence;
bool judge_evidence(const struct judge *j, const struct run_entity *p, struct model_evidence *ret);
/* Returns the profiler's readings of P, or NULL. If P called exec, these are the readings of its
 * last program. */
const struct held *judge_held_of(const struct judge *j, const struct run_entity *p);
/* Combines the verdict on this segment with those on earlier segments, which ran the same
 * program. */
void judge_join_segments(struct judge *j);
/* Iterates over the containers that P reports. *AT starts at 0. Returns false at the end. */
bool judge_next_container(const struct judge *j, const struct run_entity *p, size_t *at,
                          struct verdict_container *ret);
/* Revises the verdicts on processes using all evidence. In a running job, this changes a verdict
 * only if a leak is probable enough. */
void judge_settle(struct judge *j);
void judge_settle_whole(struct judge *j);
/* Sets the probability that the job leaks, and revises the verdict on the job. The probability is
 * that of the gravest verdict on one of the MEMBERS or on the memory of the whole job. */
void judge_settle_job(struct judge *j, const struct verdict_member *members, size_t n);
