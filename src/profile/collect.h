/* Collects the tables of a job's processes as they arrive: a listening socket, one mapped table per
 * process, and a file per process once it has enough data. Runs on the supervisor's event loop. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct collect;
struct err;
struct loop;
struct mark;

enum {
    COLLECT_TABLES = 256, /* at one time; later processes are counted but not profiled */
    COLLECT_FILES = 64, /* per run folder; beyond that, exited processes with the fewest live bytes
                           lose their file */
};

/* Listens at PATH ("$EBB_SOCKET.heap"). DIRFD is the run folder (borrowed), or -1: then only the
 * current state is available. A process gets a file heap.PID.ebbheap (heap.PID-2.ebbheap if that
 * exists, after a reused pid or an exec) with its first reading, 2 s after it connected, or at its
 * exit if it has 1 MiB of live bytes. */
int collect_new(struct loop *loop, const char *path, int dirfd, struct collect **ret,
                struct err *err);
/* Takes a last reading of all processes, waits briefly for the disk and removes the socket. Accepts
 * NULL. */
void collect_free(struct collect *c);
/* Called at every tick: takes the readings that are due. Takes at most a few milliseconds; the
 * remaining ones follow at the next tick. */
void collect_tick(struct collect *c, uint64_t now_ns);
/* Reports live memory and allocated bytes of each process, at most once per second: heap_sampled
 * (private memory), heap_shared, heap_pool, heap_allocated. NAME is a literal. */
typedef void collect_figure_fn(void *user, int32_t pid, const char *name, uint64_t value);
/* Reports, at every tick, the memory of all processes on one GPU according to PyTorch's allocator.
 * GPU is the driver's number, from CUDA_VISIBLE_DEVICES of the processes. */
typedef void collect_gpu_fn(void *user, unsigned gpu, uint64_t allocated_bytes,
                            uint64_t reserved_bytes);
void collect_on_figure(struct collect *c, collect_figure_fn *fn, collect_gpu_fn *on_gpu,
                       void *user);
/* Takes a mark for a step or epoch; a process uses its own marks if it sends any, otherwise the
 * job's. A reading that is due is taken at the next step. */
void collect_mark(struct collect *c, const struct mark *mark);
/* Called when PID has exited: takes a last reading and closes its table. Exits that are not
 * reported here are noticed a moment later. */
void collect_gone(struct collect *c, int32_t pid, uint64_t now_ns);
/* Takes a reading and snapshot of all processes (PID 0) or one, on disk when this returns (at most
 * WAIT_NS). Returns their number. Processes that connected within the last 2 s are only included if
 * there is no file yet. */
size_t collect_refresh(struct collect *c, int32_t pid, uint64_t now_ns, uint64_t wait_ns);
/* Waits at most WAIT_NS until everything read so far is on disk. */
void collect_flush(struct collect *c, uint64_t wait_ns);
/* Returns -errno and an error for the next unreported problem, each kind once: a write error, a
 * table of another version or an invalid one, too many processes. Returns 0 if there is none. */
int collect_trouble(struct collect *c, struct err *err);
/* For run.json: {"processes": [{pid, is_alive, file, file_bytes, live_bytes, cost (see
 * profile_cost_json)}], "not_followed": n, "without_file": n}. NULL: out of memory. */
json_t *collect_json(const struct collect *c);
