/* The JSON form of a report, printed by `ebb report --json`. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "judge/cluster.h"
#include "present/report_private.h"
#include "version.h"

static json_t *report_process_json(const struct run_entity *e)
{
    static const struct {
        const char *key;
        unsigned field;
    } lasts[] = {{"rss_bytes", SAMPLE_RSS},     {"unique_bytes", SAMPLE_UNIQUE},
                 {"anon_bytes", SAMPLE_ANON},   {"file_bytes", SAMPLE_FILE},
                 {"shmem_bytes", SAMPLE_SHMEM}, {"swap_bytes", SAMPLE_SWAP},
                 {"gpu_bytes", SAMPLE_GPU}};
    const struct process_info *p = &e->info;
    const struct series *rss = e->signal[SAMPLE_RSS];
    json_t *o = json_pack(
        "{s:i,s:o,s:i,s:s,s:o,s:o,s:f,s:o,s:I,s:o,s:o}", "pid", (int)p->id.pid, "start_ticks",
        json_u64(p->id.start_ticks), "ppid", (int)p->ppid, "role", process_role_name(p->role),
        "name", json_text(p->comm, p->comm_len), "command",
        json_arguments(p->cmdline, p->cmdline_len), "born_s", (double)e->born_ns / (double)NS_PER_S,
        "died_s", e->is_dead ? json_real((double)e->died_ns / (double)NS_PER_S) : json_null(), "id",
        (json_int_t)e->id, "first_bytes", rss ? json_u64(rss->first.v) : json_null(), "peak_bytes",
        rss ? json_u64(e->peak_bytes) : json_null());
    for (size_t i = 0; o && i < sizeof lasts / sizeof *lasts; i++) {
        uint64_t v;
        bool has = run_value(e, lasts[i].field, &v);
        json_object_set_new(o, lasts[i].key, has ? json_u64(v) : json_null());
    }
    return o;
}

static json_t *report_processes_json(const struct run *run)
{
    struct run_entity **all;
    size_t count = run_list(run, RUN_PROCESS, &all);
    json_t *list = json_array();
    for (size_t i = 0; i < count && i < REPORT_PROCESSES; i++)
        json_array_append_new(list, report_process_json(all[i]));
    free(all);
    return list;
}

static json_t *guard_json(const struct run *run)
{
    size_t count = run->guard_count;
    json_t *list = json_array();
    for (size_t i = count > REPORT_GUARD_EVENTS ? count - REPORT_GUARD_EVENTS : 0; i < count; i++) {
        json_t *o = json_copy(run->guard_notes[i].doc);
        json_object_set_new(o, "t_s", json_real((double)run->guard_notes[i].t_ns / NS_PER_S));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *versions_json(const struct run *run)
{
    json_t *o = json_object();
    for (size_t i = 0; i < run->version_count; i++)
        json_object_set_new(o, run->versions[i].name, json_text0(run->versions[i].text));
    return o;
}

static json_t *data_json(const struct run *run)
{
    struct buf damage = {0};
    json_t *o = report_data(run, false);
    if (!o)
        return NULL;
    json_object_set_new(o, "processes", report_processes_json(run));
    json_object_set_new(o, "processes_seen", json_u64(run->processes_seen));
    json_object_set_new(o, "steps_seen", json_u64(run->steps_seen));
    json_object_set_new(o, "guard", guard_json(run));
    json_object_set_new(o, "guard_seen", json_u64(run->guard_seen));
    json_object_set_new(o, "versions", versions_json(run));
    report_add_damage(&damage, &run->damage);
    json_object_set_new(o, "damage", damage.len ? json_text(damage.data, damage.len) : json_null());
    buf_fini(&damage);
    return o;
}

static json_t *trouble_json(const struct report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->trouble_count; i++)
        json_array_append_new(list, json_text0(r->trouble[i]));
    return list;
}

json_t *report_json(const struct report *r)
{
    json_t *header = r->recorded.run && r->recorded.run->header
                         ? json_incref(r->recorded.run->header)
                         : json_null();
    json_t *o = json_pack(
        "{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "ebb", EBB_VERSION, "made",
        json_local_time(clock_wall_ns()), "path", json_text0(r->path), "title",
        json_text0(report_title(r)), "run",
        r->recorded.run_json ? json_incref(r->recorded.run_json) : json_null(), "header", header,
        "verdict", r->has_verdicts ? verdicts_json(&r->recorded.verdicts) : json_null(), "data",
        r->recorded.run ? data_json(r->recorded.run) : json_null(), "heap",
        r->has_heap ? profile_json(&r->heap) : json_null(), "trouble", trouble_json(r));
    if (o && r->has_gpu)
        json_object_set_new(o, "gpu_heap", profile_json(&r->gpu));
    if (o && r->heap_trouble)
        json_object_set_new(o, "heap_trouble", json_text0(r->heap_trouble));
    if (o && r->diagnosis)
        json_object_set_new(o, "diagnosis", diagnosis_json(r->diagnosis));
    if (o && r->cluster)
        json_object_set_new(o, "job", cluster_json(r->cluster));
    return o;
}
