/* The profiler of the job's heap: its library in the job's environment, its tables gathered here.
 */
#include "supervise/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "judge/judge.h"
#include "mark/receiver.h"
#include "proc/node.h"
#include "profile/collect.h"
#include "profile/held.h"

enum { REFRESH_WAIT_MS = 2000, FLUSH_MS = 2000 };

void job_heap_begin(struct job *j)
{
    char path[108];
    if (!j->library[0] || !j->marks)
        return;
    int len = snprintf(path, sizeof path, "%s.heap", mark_receiver_path(j->marks));
    if (len >= (int)sizeof path)
        err_set(&j->no_heap, -ENAMETOOLONG, "the path of its socket would be too long");
    else
        collect_new(j->loop, path, j->options->rundir.fd, &j->heap, &j->no_heap);
    if (!j->heap)
        job_sayf(j, "the job's heap is not profiled: %s", j->no_heap.text);
}

/* Of system calls, on ebb and so on the job as it starts: who has more is in a sandbox of its own,
 * where the library keeps still. 0 where the kernel does not tell. */
static uint64_t count_filters(void)
{
    static const char count[] = "\nSeccomp_filters:\t", mode[] = "\nSeccomp:\t";
    char status[4096];
    uint64_t n = 0;
    if (io_read_small(AT_FDCWD, "/proc/self/status", status, sizeof status) < 0)
        return 0;
    const char *found = strstr(status, count);
    if (found)
        return sscanf(found + sizeof count - 1, "%" SCNu64, &n) == 1 ? n : 0;
    found = strstr(status, mode);
    return found && found[sizeof mode - 1] != '0';
}

/* The job's first process, our child, makes its table when it starts (src/heap/life.c). */
void job_heap_environment(const struct job *j)
{
    char settings[96];
    const char *preloaded = getenv("LD_PRELOAD");
    uint64_t interval = j->options->heap.interval_bytes, filters = count_filters();
    if (!j->heap) {
        if (preloaded && strstr(preloaded, "libebb-heap.so")) /* of a run around ours */
            setenv("EBB_HEAP", "0", 1);
        return;
    }
    unsetenv("EBB_HEAP");
    snprintf(settings, sizeof settings,
             "interval=%" PRIu64 ",python=%d,filters=%" PRIu64 ",parent=%d", interval,
             !j->options->heap.no_python, filters, (int)getpid());
    setenv("EBB_HEAP", settings, 1);
    job_parts_put_library(j);
}

void job_heap_tick(struct job *j, uint64_t now_ns)
{
    struct err err = {""};
    if (!j->heap)
        return;
    collect_tick(j->heap, now_ns);
    if (collect_trouble(j->heap, &err) < 0)
        job_say(j, err.text);
}

void job_heap_process(struct job *j, const struct proc_event *event)
{
    if (j->heap && event->kind == PROCESS_DIED)
        collect_gone(j->heap, event->node->info.id.pid, event->t_ns);
}

void job_heap_ended(struct job *j)
{
    size_t count;
    if (!j->heap || j->options->rundir.fd < 0 || !judge_wants_held(engine_verdict(j->engine)))
        return;
    collect_flush(j->heap, FLUSH_MS * NS_PER_MS);
    AUTO_FREE struct held *list = held_read(j->options->rundir.path, &count);
    engine_hear_held(j->engine, list, count);
}

size_t job_heap_refresh(struct job *j, int32_t pid)
{
    return j->heap ? collect_refresh(j->heap, pid, clock_mono_ns(), REFRESH_WAIT_MS * NS_PER_MS)
                   : 0;
}

json_t *job_heap_json(const struct job *j)
{
    const char *trouble = j->no_heap.text[0] ? j->no_heap.text : j->options->heap.trouble;
    json_t *o = j->heap ? collect_json(j->heap) : json_object();
    json_object_set_new(o, "on", json_boolean(j->heap != NULL));
    json_object_set_new(o, "trouble", trouble ? json_text0(trouble) : json_null());
    return o;
}
