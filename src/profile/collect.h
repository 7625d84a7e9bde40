/* Collects the heap profiles of a job's processes. Each process connects to a socket and passes its
 * heap table, which ebb maps. ebb reads the table repeatedly and writes the readings to a file per
 * process. Runs on the supervisor's event loop. */
#pragma once

#include <jansson.h>
#include <stdint.h>

struct collect;
struct err;
struct loop;
struct mark;

enum {
    /* Maximum number of processes profiled at the same time. Additional processes are counted but
     * not profiled. */
    COLLECT_TABLES = 256,
    /* Maximum number of files per run folder. When more are needed, the file of the exited process
     * with the fewest live bytes is deleted. */
    COLLECT_FILES = 64,
};

/* Listens at PATH ("$EBB_SOCKET.heap"). DIRFD is the run folder (borrowed), or -1 if only the
 * current state is needed. A process gets a file heap.PID.ebbheap with its first reading, 2 s after
 * it connected. A process that exits before its first reading gets a file at its exit, if it has at
 * least 1 MiB of live bytes. If heap.PID.ebbheap exists already, because the pid was reused or the
 * process called exec, the new file is heap.PID-2.ebbheap. */
int collect_new(struct loop *loop, const char *path, int dirfd, struct collect **ret,
                struct err *err);
/* Takes a last reading of all processes, waits briefly for the disk and removes the socket. C
 * may be NULL. */
void collect_free(struct collect *c);
/* Takes the readings that are due; called at every tick. If the readings take more than a few
 * milliseconds, the remaining ones wait for the next tick. */
void collect_tick(struct collect *c, uint64_t now_ns);
/* Reports live memory and allocated bytes of each process, at most once per second: heap_sampled
 * (private memory), heap_shared, heap_pool, heap_allocated. NAME is a string literal. */
typedef void collect_figure_fn(void *user, int32_t pid, const char *name, uint64_t value);
struct collect_gpu {
    uint64_t allocated_bytes,
        reserved_bytes;  /* ALLOCATED is the minimum over the last half second */
    uint64_t peak_bytes; /* maximum of the allocated bytes since the start */
};
/* Reports, at every tick, the memory of all processes on one GPU according to PyTorch's allocator.
 * GPU is the driver's number, from CUDA_VISIBLE_DEVICES of the processes. */
typedef void collect_gpu_fn(void *user, unsigned gpu, const struct collect_gpu *now);
void collect_on_figure(struct collect *c, collect_figure_fn *fn, collect_gpu_fn *on_gpu,
                       void *user);
/* Handles a mark for a step or epoch. The progress of a process is taken from the process's own
 * marks. If the process has sent no marks, the job's marks are used. A reading that is due is taken
 * at the next step. */
void collect_mark(struct collect *c, const struct mark *mark);
/* Takes a last reading of process PID, which has exited, and closes its table. If this function is
 * not called after an exit, ebb notices the exit a moment later. */
void collect_gone(struct collect *c, int32_t pid, uint64_t now_ns);
/* Takes a reading and a snapshot of process PID, or of all processes if PID is 0, and waits at most
 * WAIT_NS until they are on disk. Returns the number of readings that are on disk. With PID 0,
 * processes that connected within the last 2 s are included only if no process has a file yet. */
size_t collect_refresh(struct collect *c, int32_t pid, uint64_t now_ns, uint64_t wait_ns);
/* Waits at most WAIT_NS until everything read so far is on disk. */
void collect_flush(struct collect *c, uint64_t wait_ns);
/* Returns -errno and a message for the next problem that was not reported yet: a write error, an
 * invalid table, a table of another version, or too many processes. Each kind of problem is
 * reported once. Returns 0 if there is none. */
int collect_trouble(struct collect *c, struct err *err);
/* Returns {"processes": [{pid, is_alive, file, file_bytes, live_bytes, cost (see
 * profile_cost_json)}], "not_followed": n, "without_file": n} for run.json, or NULL if out of
 * memory. */
json_t *collect_json(const struct collect *c);
