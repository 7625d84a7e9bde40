/* Tests the readings of used memory before, during and after a job, on a fake machine. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "guard/memory_returned.h"

static const uint64_t MiB = UINT64_C(1) << 20;
static char folder[32];
static struct proc_root root;

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/ebb-test-give-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    root = (struct proc_root){open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), -1, 4096};
    return root.proc_fd < 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlinkat(root.proc_fd, "meminfo", 0);
    unlinkat(root.proc_fd, "next", 0);
    close(root.proc_fd);
    return rmdir(folder);
}

static int meminfo(char *out, size_t size, unsigned used_mib, unsigned shm_mib)
{
    return snprintf(
        out, size,
        "MemTotal:       %10u kB\nMemFree:  1 kB\nMemAvailable:   %10u kB\nShmem: %u kB\n",
        8192u << 10, (8192u - used_mib) << 10, shm_mib << 10);
}

static void machine_uses(unsigned used_mib, unsigned shm_mib)
{
    char text[256];
    int n = meminfo(text, sizeof(text), used_mib, shm_mib);
    int fd = openat(root.proc_fd, "meminfo", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, (size_t)n), n);
    close(fd);
}

static void figure_is(const struct outcome_returned *f, uint64_t before, uint64_t peak,
                      uint64_t after)
{
    assert_true(f->has_before_bytes && f->has_peak_bytes && f->has_after_bytes);
    assert_int_equal(f->before_bytes, before * MiB);
    assert_int_equal(f->peak_bytes, peak * MiB);
    assert_int_equal(f->after_bytes, after * MiB);
}

static void host_memory_is_recorded_before_and_during_and_after_job(void **state)
{
    (void)state;
    struct outcome_given_back g = {0};
    machine_uses(1000, 10);
    memory_returned_begin(&g, &root);
    figure_is(&g.host, 1000, 1000, 1000);
    figure_is(&g.shm, 10, 10, 10);
    memory_returned_tick(&g, 3000 * MiB, 90 * MiB);
    memory_returned_tick(&g, 2000 * MiB, 95 * MiB);
    machine_uses(1100, 40);
    memory_returned_end(&g, &root, clock_mono_ns() + 60 * NS_PER_S);
    figure_is(&g.host, 1000, 3000, 1100);
    figure_is(&g.shm, 10, 95, 40);
    assert_int_equal(g.host.freed_bytes, 1900 * MiB);
    assert_int_equal(g.shm.freed_bytes, 55 * MiB);
}

static void returned_memory_is_zero_if_usage_is_higher_than_before_job(void **state)
{
    (void)state;
    struct outcome_given_back g = {0};
    machine_uses(1000, 10);
    memory_returned_begin(&g, &root);
    machine_uses(1500, 10);
    memory_returned_end(&g, &root, 0);
    figure_is(&g.host, 1000, 1000, 1500);
    assert_int_equal(g.host.freed_bytes, 0);
}

static void returned_memory_is_unknown_without_proc_meminfo(void **state)
{
    (void)state;
    struct outcome_given_back g = {0};
    unlinkat(root.proc_fd, "meminfo", 0);
    memory_returned_begin(&g, &root);
    memory_returned_tick(&g, 5 * MiB, MiB);
    memory_returned_end(&g, &root, clock_mono_ns() + 60 * NS_PER_S);
    assert_false(g.has_host);
    assert_false(g.has_shm);

    g = (struct outcome_given_back){0};
    machine_uses(1000, 10);
    memory_returned_begin(&g, &root);
    unlinkat(root.proc_fd, "meminfo", 0);
    memory_returned_end(&g, &root, clock_mono_ns() + 60 * NS_PER_S);
    assert_false(g.has_host);
    assert_false(g.has_shm);
}

/* Host memory in use at the readings after the job, in MiB. Each reading uses its own FIFO, so the
 * order does not depend on timing. */
static const unsigned falling[] = {3000, 2000, 1500, 1400, 1400};
enum { READINGS = sizeof(falling) / sizeof(*falling) };
static unsigned served;

static int open_when_read(void)
{
    uint64_t until = clock_mono_ns() + 60 * NS_PER_S;
    while (clock_mono_ns() < until) {
        int fd = openat(root.proc_fd, "meminfo", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 || errno != ENXIO)
            return fd;
        usleep(500);
    }
    return -1;
}

static void *serve(void *unused)
{
    for (unsigned i = 0; i < READINGS; i++) {
        char text[256];
        int n = meminfo(text, sizeof(text), falling[i], falling[i] / 100);
        int fd = open_when_read();
        if (fd < 0)
            break;
        if (i + 1 < READINGS && (mkfifoat(root.proc_fd, "next", 0600) < 0 ||
                                 renameat(root.proc_fd, "next", root.proc_fd, "meminfo") < 0))
            n = 0;
        if (write(fd, text, (size_t)n) == n && n > 0)
            served = i + 1;
        close(fd);
    }
    return unused;
}

static void returned_memory_is_measured_after_usage_becomes_steady(void **state)
{
    (void)state;
    struct outcome_given_back g = {0};
    pthread_t thread;
    machine_uses(1000, 10);
    memory_returned_begin(&g, &root);
    memory_returned_tick(&g, 4000 * MiB, 50 * MiB);
    unlinkat(root.proc_fd, "meminfo", 0);
    assert_int_equal(mkfifoat(root.proc_fd, "meminfo", 0600), 0);
    served = 0;
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    memory_returned_end(&g, &root, clock_mono_ns() + 600 * NS_PER_S);
    pthread_join(thread, NULL);
    unlinkat(root.proc_fd, "meminfo", 0);
    assert_int_equal(served, READINGS);
    figure_is(&g.host, 1000, 4000, 1400);
    figure_is(&g.shm, 10, 50, 14);
}

static void first_gpu_reading_is_the_usage_before_the_job(void **state)
{
    (void)state;
    struct outcome_given_back g = {0};
    static struct gpu_snapshot s;
    machine_uses(1000, 10);
    memory_returned_begin(&g, &root);
    s = (struct gpu_snapshot){.devices = 1};
    s.device[0].memory_known = true;
    memory_returned_gpus(&g, &s);
    assert_int_equal(g.gpu_count, 0);
    static const unsigned used[] = {300, 9000, 400};
    for (unsigned i = 0; i < 3; i++) {
        s = (struct gpu_snapshot){.t_ns = 1 + i, .devices = 3};
        s.device[0] = (struct gpu_device){.memory_known = true, .used_bytes = used[i] * MiB};
        s.device[2] = (struct gpu_device){.memory_known = i > 0, .used_bytes = 7 * MiB};
        memory_returned_gpus(&g, &s);
    }
    assert_int_equal(g.gpu_count, 3);
    figure_is(&g.gpus[0], 300, 9000, 400);
    assert_int_equal(g.gpus[0].freed_bytes, 8600 * MiB);
    assert_false(g.gpus[1].has_before_bytes);
    figure_is(&g.gpus[2], 7, 7, 7);
    free(g.gpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_memory_is_recorded_before_and_during_and_after_job),
        cmocka_unit_test(returned_memory_is_zero_if_usage_is_higher_than_before_job),
        cmocka_unit_test(returned_memory_is_unknown_without_proc_meminfo),
        cmocka_unit_test(returned_memory_is_measured_after_usage_becomes_steady),
        cmocka_unit_test(first_gpu_reading_is_the_usage_before_the_job),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
