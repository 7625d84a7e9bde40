/* Combines all evidence on a process or the job into a probability. */
#pragma once

#include "judge/judge_private.h"

/* Collects the evidence on P, or on the whole job if P is NULL. Returns false if there are too few
 * readings. */
struct model_evidence;
bool judge_evidence(const struct judge *j, const struct run_entity *p, struct model_evidence *ret);
/* Returns the profiler's readings of P, or NULL. If P called exec, it has several sets of readings,
 * of which the last is returned. */
const struct held *judge_held_of(const struct judge *j, const struct run_entity *p);
/* Combines the verdict on this segment with those on earlier segments, which ran the same
 * program. */
void judge_join_segments(struct judge *j);
/* Iterates over the containers that P reports. *AT starts at 0. Returns false at the end. */
bool judge_next_container(const struct judge *j, const struct run_entity *p, size_t *at,
                          struct verdict_container *ret);
/* Revises the verdicts on processes using all evidence: on every process if the job is over, but
 * only for nearly certain leaks while it runs. */
void judge_settle(struct judge *j);
void judge_settle_whole(struct judge *j);
/* Sets the job's probability of a leak to the highest among its MEMBERS and the job as a whole. */
void judge_settle_job(struct judge *j, const struct verdict_member *members, size_t n);
