/* Starts a recording, whose header describes the job and the machine. */
#include "engine/private.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json.h"
#include "base/loop.h"
#include "version.h"

static json_t *header_limit_json(const struct machine_limit *limit)
{
    return json_pack("{s:s,s:b,s:o,s:o,s:o,s:o,s:o}", "kind", limit_kind_name(limit->kind), "soft",
                     limit->soft, "where", json_text0(limit->where), "limit_bytes",
                     json_u64(limit->limit_bytes), "used_bytes",
                     limit->used_known ? json_u64(limit->used_bytes) : json_null(),
                     "headroom_bytes", json_u64(limit->headroom_bytes), "peak_bytes",
                     limit->peak_known ? json_u64(limit->peak_bytes) : json_null());
}

/* Returns the word in brackets in a text such as "always [madvise] never". */
static json_t *thp_json(void)
{
    char text[128];
    ssize_t n =
        io_read_small(AT_FDCWD, "/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    const char *open = n > 0 ? strchr(text, '[') : NULL, *close = open ? strchr(open, ']') : NULL;
    return close ? json_text(open + 1, (size_t)(close - open - 1)) : json_null();
}

static json_t *header_json(struct engine *e, const json_t *given)
{
    json_t *doc = given ? json_copy((json_t *)(uintptr_t)given) : json_object();
    struct utsname uts = {0};
    struct machine_limit limit;
    uname(&uts);
    json_object_set_new(doc, "ebb", json_string(EBB_VERSION));
    json_object_set_new(doc, "host", json_text0(uts.nodename));
    json_object_set_new(doc, "kernel", json_text0(uts.release));
    json_object_set_new(doc, "arch", json_text0(uts.machine));
    json_object_set_new(doc, "page_bytes", json_u64(e->options.root->page_bytes));
    json_object_set_new(doc, "interval_ns", json_u64(e->options.interval_ns));
    json_object_set_new(doc, "start_mono_ns", json_u64(e->started_ns));
    json_object_set_new(doc, "start_wall_ns", json_u64(e->started_wall_ns));
    json_object_set_new(doc, "thp", thp_json());
    if (machine_limit(e->machine, &limit) == 0)
        json_object_set_new(doc, "limit", header_limit_json(&limit));
    return doc;
}

/* Records the processes that started before the recording. */
static void write_living(struct engine *e)
{
    for (size_t i = 0; i < proc_tree_count(e->tree); i++) {
        const struct proc_node *node = proc_tree_at(e->tree, i);
        trace_writer_process(e->writer, node->born_ns, PROCESS_BORN, node->slot, &node->info);
    }
}

static void on_trouble(void *user, int fd, uint32_t events)
{
    struct engine *e = user;
    struct trace_writer_status status;
    uint64_t count;
    (void)events;
    (void)!read(fd, &count, sizeof count);
    trace_writer_status(e->writer, &status);
    if (!e->is_trouble_reported)
        engine_report(e,
                      "cannot write the recording: %s; the job continues, and later readings are "
                      "written if possible",
                      strerror(-status.first_error));
    e->is_trouble_reported = true;
}

int engine_record(struct engine *e, int dirfd, const json_t *header, struct err *err)
{
    const struct trace_writer_options options = {.mark_bytes_per_s = ENGINE_MARK_BYTES_PER_S};
    json_auto_t *doc = header_json(e, header);
    int r = trace_writer_new(dirfd, "trace.ebb", doc, &options, &e->writer, err);
    if (r < 0) {
        e->writer = NULL;
        return r;
    }
    e->was_recorded = true;
    e->record_dir_fd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
    write_living(e);
    return loop_add_fd(e->loop, trace_writer_error_fd(e->writer), EPOLLIN, on_trouble, e,
                       &e->sources.trouble);
}
