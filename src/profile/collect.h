/* The tables of a job's processes, gathered as they come: the listening socket, one look and, once
 * it is worth it, one file for each process. On the event loop of whoever supervises the job. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct collect;
struct err;
struct loop;
struct mark;

enum {
    COLLECT_TABLES = 256, /* at one time; later ones are counted and not followed */
    COLLECT_FILES = 64,   /* in one run folder */
};

/* Listens at PATH ("$EBB_SOCKET.heap"). DIRFD: the run folder (borrowed), -1: none, then only the
 * present can be asked for. */
int collect_new(struct loop *loop, const char *path, int dirfd, struct collect **ret,
                struct err *err);
void collect_free(struct collect *c); /* NULL is fine; removes the socket */
/* Every tick: takes the readings that are due. At most a few milliseconds; the rest the next time.
 */
void collect_tick(struct collect *c, uint64_t now_ns);
/* Steps and epochs; those of a process are its own, where it sends any, else those of the job. */
void collect_mark(struct collect *c, const struct mark *mark);
/* PID has gone: a last reading of what it left, then its table is let go. */
void collect_gone(struct collect *c, int32_t pid, uint64_t now_ns);
/* A fresh reading and snapshot of all (PID 0) or one, on disk when this returns (at most WAIT_NS):
 * how many. */
size_t collect_refresh(struct collect *c, int32_t pid, uint64_t now_ns, uint64_t wait_ns);
/* For run.json: {"processes": [{pid, file, samples, live_bytes, interval_bytes, hook_s, drops,
 * python, …}], "not_followed": n}. The caller owns it. */
json_t *collect_json(const struct collect *c);
