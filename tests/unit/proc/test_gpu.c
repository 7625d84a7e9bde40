/* Tests the GPU thread with drivers that work, fail or hang. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/eventually.h"
#include "proc/gpu.h"

static void nap(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* A fake driver whose calls all succeed. */
static atomic_int good_reads, good_closed;
static atomic_bool good_saw_signals;

static int good_open(void **ret_state)
{
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    atomic_store(&good_saw_signals, !sigismember(&mask, SIGTERM) || !sigismember(&mask, SIGINT));
    *ret_state = &good_reads;
    return 0;
}

static int good_read(void *state, struct gpu_snapshot *ret)
{
    assert_ptr_equal(state, &good_reads);
    assert_int_equal(ret->devices, 0); /* The snapshot is zeroed before each read. */
    int n = atomic_fetch_add(&good_reads, 1) + 1;
    ret->devices = 1;
    strcpy(ret->device[0].name, "fake");
    ret->device[0].memory_known = true;
    ret->device[0].total_bytes = 1000;
    ret->device[0].used_bytes = (uint64_t)n;
    ret->processes = 1;
    ret->process[0] = (struct gpu_process){42, 0, (uint64_t)n};
    return 0;
}

static void good_close(void *state)
{
    (void)state;
    atomic_fetch_add(&good_closed, 1);
}

static const struct gpu_vendor good = {"good", NULL, good_open, good_read, good_close};

static void gpu_snapshots_are_delivered_in_order(void **state)
{
    (void)state;
    struct gpu *g;
    static struct gpu_snapshot s;
    atomic_store(&good_reads, 0);
    atomic_store(&good_closed, 0);
    assert_int_equal(gpu_new(&good, 20 * NS_PER_MS, &g), 0);
    EVENTUALLY(gpu_latest(g, &s) == 1, (void)0);
    uint64_t first_t = s.t_ns, first = s.device[0].used_bytes;
    EVENTUALLY(gpu_latest(g, &s) == 1, (void)0);
    assert_true(s.t_ns > first_t);
    assert_true(s.device[0].used_bytes > first);
    assert_string_equal(s.device[0].name, "fake");
    assert_int_equal(s.process[0].pid, 42);
    assert_int_equal(gpu_status(g), 0);
    assert_false(atomic_load(&good_saw_signals));
    gpu_free(g);
    EVENTUALLY(atomic_load(&good_closed) == 1,
               (void)0); /* This driver does not hang, so the thread closes it. */
}

static void gpu_thread_stops_at_once_even_with_a_long_sampling_period(void **state)
{
    (void)state;
    struct gpu *g;
    static struct gpu_snapshot s;
    memset(&s, 0, sizeof(s));
    atomic_store(&good_reads, 0);
    atomic_store(&good_closed, 0);
    assert_int_equal(gpu_new(&good, 3600 * NS_PER_S, &g), 0);
    EVENTUALLY(gpu_latest(g, &s) == 1, (void)0);
    assert_int_equal(gpu_latest(g, &s), 0); /* The same snapshot is not returned twice. */
    gpu_free(g);
    EVENTUALLY(atomic_load(&good_closed) == 1, (void)0);
    gpu_free(NULL);
}

/* Fake drivers that are absent or cannot be opened. */
static bool is_absent(void)
{
    return false;
}
static int fails_to_open(void **ret_state)
{
    (void)ret_state;
    return -EIO;
}
static int must_not_read(void *state, struct gpu_snapshot *ret)
{
    (void)state;
    (void)ret;
    abort();
}
static void must_not_close(void *state)
{
    (void)state;
    abort();
}

static void absent_gpu_driver_is_reported_at_once(void **state)
{
    (void)state;
    static const struct gpu_vendor absent = {"absent", is_absent, fails_to_open, must_not_read,
                                             must_not_close};
    struct gpu *g = NULL;
    assert_int_equal(gpu_new(&absent, NS_PER_S, &g), -ENOENT);
    assert_null(g);
}

static void error_of_a_gpu_driver_that_cannot_be_opened_is_returned(void **state)
{
    (void)state;
    static const struct gpu_vendor broken = {"broken", NULL, fails_to_open, must_not_read,
                                             must_not_close};
    struct gpu *g;
    static struct gpu_snapshot s;
    assert_int_equal(gpu_new(&broken, NS_PER_MS, &g), 0);
    EVENTUALLY(gpu_status(g) == -EIO, (void)0);
    assert_int_equal(gpu_latest(g, &s), 0);
    assert_int_equal(s.t_ns, 0);
    gpu_free(g);
}

/* A fake driver in which every second read fails. */
static atomic_int flaky_reads;
static int flaky_read(void *state, struct gpu_snapshot *ret)
{
    (void)state;
    ret->devices = 3;
    return atomic_fetch_add(&flaky_reads, 1) % 2 == 0 ? -EIO : 0;
}

static void failed_gpu_read_is_retried_in_the_next_period(void **state)
{
    (void)state;
    static const struct gpu_vendor flaky = {"flaky", NULL, good_open, flaky_read, good_close};
    struct gpu *g;
    static struct gpu_snapshot s;
    atomic_store(&flaky_reads, 0);
    assert_int_equal(gpu_new(&flaky, NS_PER_MS, &g), 0);
    EVENTUALLY(gpu_latest(g, &s) == 1, (void)0);
    assert_int_equal(s.devices, 3);
    EVENTUALLY(atomic_load(&flaky_reads) > 5, (void)0);
    gpu_free(g);
}

/* Fake drivers that hang until the test releases them. */
static pthread_mutex_t hang = PTHREAD_MUTEX_INITIALIZER;
static atomic_int hanging, released;

static int hang_here(void)
{
    atomic_fetch_add(&hanging, 1);
    pthread_mutex_lock(&hang);
    pthread_mutex_unlock(&hang);
    return 0;
}
static int hang_in_open(void **ret_state)
{
    *ret_state = NULL;
    return hang_here();
}
static int open_nothing(void **ret_state)
{
    *ret_state = NULL;
    return 0;
}
static int hang_in_read(void *state, struct gpu_snapshot *ret)
{
    (void)state;
    (void)ret;
    return hang_here();
}
static void note_release(void *state)
{
    (void)state;
    atomic_fetch_add(&released, 1);
}

static void free_of_a_hanging_driver_returns(const struct gpu_vendor *vendor)
{
    struct gpu *g;
    static struct gpu_snapshot s;
    atomic_store(&hanging, 0);
    atomic_store(&released, 0);
    memset(&s, 0, sizeof(s));
    pthread_mutex_lock(&hang);
    assert_int_equal(gpu_new(vendor, NS_PER_MS, &g), 0);
    EVENTUALLY(atomic_load(&hanging) == 1, (void)0);
    assert_int_equal(gpu_latest(g, &s), 0); /* gpu_latest does not wait for the driver. */
    assert_int_equal(gpu_status(g), -EINPROGRESS);
    gpu_free(g);
    assert_int_equal(atomic_load(&released), 0); /* gpu_free did not wait for the driver. */
    pthread_mutex_unlock(&hang);
    EVENTUALLY(atomic_load(&released) == 1, (void)0);
    /* Gives the thread time to free its memory, which the leak checker would report otherwise. */
    nap(50);
}

static void hanging_gpu_driver_does_not_block_the_caller(void **state)
{
    (void)state;
    static const struct gpu_vendor in_read = {"r", NULL, open_nothing, hang_in_read, note_release};
    static const struct gpu_vendor in_open = {"o", NULL, hang_in_open, hang_in_read, note_release};
    free_of_a_hanging_driver_returns(&in_read);
    free_of_a_hanging_driver_returns(&in_open);
}

static void nvml_readings_are_plausible_if_nvidia_hardware_is_present(void **state)
{
    (void)state;
    struct gpu *g;
    static struct gpu_snapshot s;
    int r = gpu_new(&gpu_vendor_nvml, 100 * NS_PER_MS, &g);
    if (r == -ENOENT)
        return;
    /* On NVIDIA hardware, a reading either fails or contains plausible sizes. */
    assert_int_equal(r, 0);
    EVENTUALLY(gpu_status(g) != -EINPROGRESS, (void)0);
    if (gpu_status(g) == 0) {
        EVENTUALLY(gpu_latest(g, &s) == 1, (void)0);
        for (size_t i = 0; i < s.devices; i++)
            assert_true(!s.device[i].memory_known ||
                        s.device[i].used_bytes <= s.device[i].total_bytes);
    }
    gpu_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpu_snapshots_are_delivered_in_order),
        cmocka_unit_test(gpu_thread_stops_at_once_even_with_a_long_sampling_period),
        cmocka_unit_test(absent_gpu_driver_is_reported_at_once),
        cmocka_unit_test(error_of_a_gpu_driver_that_cannot_be_opened_is_returned),
        cmocka_unit_test(failed_gpu_read_is_retried_in_the_next_period),
        cmocka_unit_test(hanging_gpu_driver_does_not_block_the_caller),
        cmocka_unit_test(nvml_readings_are_plausible_if_nvidia_hardware_is_present),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
