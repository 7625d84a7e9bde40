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
    COLLECT_FILES = 64, /* in one run folder: then those that held least and have gone make room */
};

/* Listens at PATH ("$EBB_SOCKET.heap"). DIRFD: the run folder (borrowed), -1: none, then only the
 * present can be asked for. A process gets a file heap.PID.ebbheap (heap.PID-2.ebbheap if that is
 * there: a pid used again, another program by exec) with its first reading, 2 s after it came, or
 * if at its end it holds 1 MiB. */
int collect_new(struct loop *loop, const char *path, int dirfd, struct collect **ret,
                struct err *err);
/* Takes a last reading of all that is left, waits a few seconds for the disk and removes the
 * socket. NULL is fine. */
void collect_free(struct collect *c);
/* Every tick: takes the readings that are due. At most a few milliseconds; the rest the next time.
 */
void collect_tick(struct collect *c, uint64_t now_ns);
/* Steps and epochs; those of a process are its own, where it sends any, else those of the job. A
 * reading that is due is taken at the next step. */
void collect_mark(struct collect *c, const struct mark *mark);
/* PID has gone: a last reading of what it left, then its table is let go. One that was not told of
 * is noticed here too, if a moment later. */
void collect_gone(struct collect *c, int32_t pid, uint64_t now_ns);
/* A fresh reading and snapshot of all (PID 0) or one, on disk when this returns (at most WAIT_NS):
 * how many. Of all: those that came within the last 2 s only where there is no file yet. */
size_t collect_refresh(struct collect *c, int32_t pid, uint64_t now_ns, uint64_t wait_ns);
/* Waits at most WAIT_NS until the disk has what was read so far. */
void collect_flush(struct collect *c, uint64_t wait_ns);
/* Trouble that was not told yet, each kind once: -errno and a sentence (the disk refuses a file, a
 * table is of another version or none, too many processes). 0: none. */
int collect_trouble(struct collect *c, struct err *err);
/* For run.json: {"processes": [{pid, is_alive, file, file_bytes, live_bytes, cost (as
 * profile_cost_json has it)}], "not_followed": n, "without_file": n}. The caller
 * owns it; NULL: no memory. */
json_t *collect_json(const struct collect *c);
