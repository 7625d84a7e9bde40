/* Memory before, at the peak and after: figures in use, by the kernel's and the driver's word. */
#include "guard/giveback.h"

#include <time.h>

#include "base/clock.h"
#include "base/io.h"

static const uint64_t SETTLED_BYTES = UINT64_C(1) << 20;
static const uint64_t SETTLING_NS = 20 * NS_PER_MS;

static bool read_meminfo(const struct proc_root *root, uint64_t *ret_host, uint64_t *ret_shm)
{
    char text[8192];
    struct proc_meminfo m;
    ssize_t len = io_read_small(root->proc_fd, "meminfo", text, sizeof(text));
    if (len <= 0 || proc_meminfo_parse(text, (size_t)len, &m) < 0)
        return false;
    /* both may be made up by a container, and not together */
    *ret_host = m.total_bytes > m.available_bytes ? m.total_bytes - m.available_bytes : 0;
    *ret_shm = m.shmem_bytes;
    return true;
}

static void figure_begin(struct giveback_figure *f, uint64_t bytes)
{
    *f = (struct giveback_figure){true, bytes, bytes, bytes};
}

static void figure_peak(struct giveback_figure *f, uint64_t bytes)
{
    if (f->known && bytes > f->peak_bytes)
        f->peak_bytes = bytes;
}

void giveback_begin(struct giveback *g, const struct proc_root *root)
{
    uint64_t host, shm;
    *g = (struct giveback){0};
    if (!read_meminfo(root, &host, &shm))
        return;
    figure_begin(&g->host, host);
    figure_begin(&g->shm, shm);
}

void giveback_tick(struct giveback *g, uint64_t host_used_bytes, uint64_t shm_bytes)
{
    figure_peak(&g->host, host_used_bytes);
    figure_peak(&g->shm, shm_bytes);
}

void giveback_gpu(struct giveback *g, const struct gpu_snapshot *snapshot)
{
    if (snapshot->t_ns == 0)
        return;
    for (size_t i = 0; i < snapshot->devices && i < GPU_MAX; i++) {
        const struct gpu_device *d = &snapshot->device[i];
        if (g->gpus <= i)
            g->gpus = i + 1;
        if (!d->memory_known)
            continue;
        if (!g->gpu[i].known)
            figure_begin(&g->gpu[i], d->used_bytes);
        figure_peak(&g->gpu[i], d->used_bytes);
        g->gpu[i].after_bytes = d->used_bytes;
    }
}

static void sleep_until(uint64_t until_ns)
{
    uint64_t now = clock_mono_ns();
    uint64_t ns = until_ns > now ? until_ns - now : 0;
    const struct timespec t = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    nanosleep(&t, NULL); /* cut short by a signal it is looked at earlier, no more */
}

void giveback_end(struct giveback *g, const struct proc_root *root, uint64_t until_ns)
{
    uint64_t host, shm;
    if (!read_meminfo(root, &host, &shm)) {
        g->host.known = g->shm.known = false;
        return;
    }
    for (uint64_t now = clock_mono_ns(); now < until_ns; now = clock_mono_ns()) {
        uint64_t last = host;
        sleep_until(until_ns - now < SETTLING_NS ? until_ns : now + SETTLING_NS);
        if (!read_meminfo(root, &host, &shm))
            break;
        if ((host > last ? host - last : last - host) < SETTLED_BYTES)
            break;
    }
    g->host.after_bytes = host;
    g->shm.after_bytes = shm;
}

uint64_t giveback_freed(const struct giveback_figure *f)
{
    return f->peak_bytes > f->after_bytes ? f->peak_bytes - f->after_bytes : 0;
}
