/* The facts for GET /api/v1/machine. They are read on request, from a few small files of /proc and
 * /sys. */
#include "server/http/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "proc/gpu.h"
#include "proc/machine.h"

static const uint64_t limit_every_ns = 30 * NS_PER_S, gpu_every_ns = 2 * NS_PER_S;

struct machine_facts {
    struct proc_root root;
    struct machine *machine;
    struct machine_limit limit;
    bool limit_known;
    uint64_t limit_ns;
    struct gpu *gpu; /* NULL: no driver */
    struct gpu_snapshot snapshot;
};

int machine_facts_new(struct machine_facts **ret, struct err *err)
{
    struct machine_facts *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(err, -ENOMEM, "out of memory");
    m->root = (struct proc_root){.proc_fd = -1, .cgroup_fd = -1};
    int r = proc_root_open("/proc", "/sys/fs/cgroup", &m->root, err);
    if (r == 0) {
        r = machine_new(&m->root, 0, &m->machine);
        if (r < 0)
            err_set(err, r, "cannot read the machine's memory: %s", strerror(-r));
    }
    if (r < 0) {
        machine_facts_free(m);
        return r;
    }
    if (gpu_new(&gpu_vendor_nvml, gpu_every_ns, &m->gpu) < 0)
        m->gpu = NULL;
    *ret = m;
    return 0;
}

void machine_facts_free(struct machine_facts *m)
{
    if (!m)
        return;
    gpu_free(m->gpu);
    machine_free(m->machine);
    proc_root_close(&m->root);
    free(m);
}

unsigned machine_facts_gpus(struct machine_facts *m, uint64_t wait_ns)
{
    uint64_t until = clock_mono_ns() + wait_ns;
    if (!m->gpu)
        return 0;
    while (gpu_status(m->gpu) == -EINPROGRESS && clock_mono_ns() < until)
        nanosleep(&(struct timespec){.tv_nsec = 10 * (long)NS_PER_MS}, NULL);
    gpu_latest(m->gpu, &m->snapshot);
    return (unsigned)m->snapshot.devices;
}

static void read_limit(struct machine_facts *m, uint64_t now_ns)
{
    if (m->limit_ns && now_ns - m->limit_ns < limit_every_ns)
        return;
    m->limit_ns = now_ns;
    m->limit_known = machine_limit(m->machine, &m->limit) == 0;
}

uint64_t machine_facts_limit_bytes(struct machine_facts *m)
{
    read_limit(m, clock_mono_ns());
    return m->limit_known ? m->limit.limit_bytes : 0;
}

static json_t *field(const struct sample *s, unsigned index)
{
    return s->known & 1u << index ? json_u64(s->v[index]) : json_null();
}

static json_t *share(const struct sample *s, unsigned index)
{
    return s->known & 1u << index ? json_real((double)s->v[index] / 10000) : json_null();
}

static json_t *memory_json(const struct sample *s)
{
    bool is_known = s->known & 1u << MACHINE_TOTAL && s->known & 1u << MACHINE_AVAILABLE;
    uint64_t total = s->v[MACHINE_TOTAL], available = s->v[MACHINE_AVAILABLE];
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "total_bytes", field(s, MACHINE_TOTAL),
                     "available_bytes", field(s, MACHINE_AVAILABLE), "used_bytes",
                     is_known && total >= available ? json_u64(total - available) : json_null(),
                     "anon_bytes", field(s, MACHINE_ANON_PAGES), "shm_bytes",
                     field(s, MACHINE_SHMEM));
}

static json_t *limit_json(const struct machine_facts *m, const struct sample *s)
{
    if (!m->limit_known)
        return json_null();
    return json_pack("{s:s, s:o, s:o, s:o}", "kind", limit_kind_name(m->limit.kind), "where",
                     json_text0(m->limit.where), "limit_bytes", json_u64(m->limit.limit_bytes),
                     "used_bytes", field(s, MACHINE_LIMIT_USED));
}

static json_t *machine_gpus_json(struct machine_facts *m)
{
    json_t *list = json_array();
    if (m->gpu)
        gpu_latest(m->gpu, &m->snapshot);
    for (size_t i = 0; i < m->snapshot.devices; i++) {
        const struct gpu_device *d = &m->snapshot.device[i];
        json_array_append_new(
            list, json_pack("{s:i, s:o, s:o, s:o}", "index", (int)i, "name", json_text0(d->name),
                            "total_bytes", d->memory_known ? json_u64(d->total_bytes) : json_null(),
                            "used_bytes", d->memory_known ? json_u64(d->used_bytes) : json_null()));
    }
    return list;
}

static json_t *load_json(void)
{
    double load[3];
    int n = getloadavg(load, 3);
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_real(load[i]));
    return list;
}

json_t *machine_facts_json(struct machine_facts *m, uint64_t now_ns)
{
    struct sample s = {0};
    struct utsname name = {0};
    uname(&name);
    read_limit(m, now_ns);
    machine_tick(m->machine, &s);
    return json_pack("{s:o, s:o, s:i, s:o, s:o, s:{s:o, s:o}, s:o, s:{s:o, s:o}, s:o}", "host",
                     json_text0(name.nodename), "kernel", json_text0(name.release), "cpus",
                     (int)sysconf(_SC_NPROCESSORS_ONLN), "load", load_json(), "memory",
                     memory_json(&s), "swap", "total_bytes", field(&s, MACHINE_SWAP_TOTAL),
                     "free_bytes", field(&s, MACHINE_SWAP_FREE), "limit", limit_json(m, &s),
                     "pressure", "some_avg10", share(&s, MACHINE_PSI_SOME), "full_avg10",
                     share(&s, MACHINE_PSI_FULL), "gpus", machine_gpus_json(m));
}
