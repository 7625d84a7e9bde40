/* Tests which limit is effective, in recorded cgroup trees of v1, v2 and hybrid machines and on
 * this machine. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "kit.h"
#include "proc/limit.h"
#include "proc/machine.h"

static const uint64_t GiB = UINT64_C(1) << 30;

/* Opens a recorded machine from tests/proc-fixtures. Process 100 is its job. */
static struct proc_root recorded(const char *name)
{
    char proc[128], cgroup[128];
    struct proc_root root;
    struct err err;
    snprintf(proc, sizeof(proc), "tests/proc-fixtures/machine-%s/proc", name);
    snprintf(cgroup, sizeof(cgroup), "tests/proc-fixtures/machine-%s/cgroup", name);
    if (proc_root_open(proc, cgroup, &root, &err) < 0)
        fail_msg("%s", err.text);
    root.page_bytes = 4096;
    return root;
}

static struct machine_limit limit_of(const char *name)
{
    struct proc_root root = recorded(name);
    struct machine *m;
    struct machine_limit l;
    assert_int_equal(machine_new(&root, 100, &m), 0);
    assert_int_equal(machine_limit(m, &l), 0);
    machine_free(m);
    proc_root_close(&root);
    return l;
}

static void expect(const char *name, enum limit_kind kind, const char *where, uint64_t limit,
                   uint64_t used)
{
    struct machine_limit l = limit_of(name);
    assert_string_equal(limit_kind_name(l.kind), limit_kind_name(kind));
    assert_string_equal(l.where, where);
    assert_int_equal(l.limit_bytes, limit);
    assert_true(l.used_known);
    assert_int_equal(l.used_bytes, used);
    assert_int_equal(l.headroom_bytes, limit - used);
    assert_false(l.soft);
}

static void cgroup_v1_usage_includes_subtree_but_not_file_cache(void **state)
{
    (void)state;
    expect("v1", LIMIT_CGROUP_V1, "/slurm/job_7", 4 * GiB, 2 * GiB);
    struct machine_limit l = limit_of("v1");
    assert_true(l.peak_known);
    assert_int_equal(l.peak_bytes, 3 * GiB + 5);
}

static void cgroup_v2_limit_is_found_in_the_unified_hierarchy(void **state)
{
    (void)state;
    expect("v2", LIMIT_CGROUP_V2, "/user.slice/job.scope", 8 * GiB, 3 * GiB);
    assert_int_equal(limit_of("v2").peak_bytes, 6 * GiB);
}

/* The recording is of a Python process with 7.1 MiB of live anonymous memory, 20 MiB freed lazily,
 * 80 MiB of huge pages of which one page in 512 is in use, 4 MiB in tmpfs, 8 MiB of file cache and
 * 29 MiB of dentries. */
static void memory_in_use_excludes_reclaimable_memory(void **state)
{
    (void)state;
    expect("v1-reclaimable", LIMIT_CGROUP_V1, "/job", 160 << 20, 11698176);
    /* The v2 keys include 0.97 MiB of kernel memory that cannot be reclaimed. */
    expect("v2-reclaimable", LIMIT_CGROUP_V2, "/job", 160 << 20, 12714560);
}

/* The unmapped part of huge pages can be computed only if all keys are present. */
static void huge_page_estimate_is_skipped_if_memory_stat_lacks_a_key(void **state)
{
    static const char text[] = "inactive_anon 7000\nactive_anon 0\nunevictable 0\n"
                               "inactive_file 30\nactive_file 3\nfile 33\nslab_reclaimable 200\n";
    static const char anon[] = "anon 6000\n";
    struct limit_stats stats;
    char whole[sizeof text + sizeof anon];
    (void)state;
    limit_stats_parse(limit_files(LIMIT_CGROUP_V2), text, strlen(text), &stats);
    assert_int_equal(limit_reclaimable(&stats), 233);
    snprintf(whole, sizeof whole, "%s%s", anon, text);
    limit_stats_parse(limit_files(LIMIT_CGROUP_V2), whole, strlen(whole), &stats);
    assert_int_equal(limit_reclaimable(&stats), 1233);
}

static void hybrid_machine_uses_the_v1_memory_limit(void **state)
{
    (void)state;
    expect("hybrid", LIMIT_CGROUP_V1, "/a/b", 2 * GiB, GiB);
}

static void cgroup_without_a_limit_has_the_limit_of_its_parent(void **state)
{
    (void)state;
    expect("nested", LIMIT_CGROUP_V2, "/top/mid", 6 * GiB, 4 * GiB);
}

static void cgroup_with_the_least_headroom_has_the_effective_limit(void **state)
{
    (void)state;
    expect("crowded", LIMIT_CGROUP_V2, "/top", 12 * GiB, 11 * GiB);
}

static void mounted_cgroup_is_used_if_the_cgroup_path_does_not_exist(void **state)
{
    (void)state;
    expect("container", LIMIT_CGROUP_V1, "/", 3 * GiB, GiB);
    expect("outside", LIMIT_CGROUP_V2, "/", 5 * GiB, GiB);
}

static void cgroup_path_is_resolved_relative_to_the_mount_root(void **state)
{
    (void)state;
    expect("bind", LIMIT_CGROUP_V1, "/job", GiB, GiB / 2);
}

static void cgroup_soft_limit_below_the_hard_limit_is_effective(void **state)
{
    (void)state;
    struct machine_limit l = limit_of("high");
    assert_int_equal(l.limit_bytes, 3 * GiB);
    assert_int_equal(l.headroom_bytes, GiB);
    assert_true(l.soft);
}

static void machine_without_cgroups_is_limited_by_host_memory(void **state)
{
    (void)state;
    expect("none", LIMIT_HOST, "host", 32 * GiB, 8 * GiB);
}

static void cgroup_limit_files_with_invalid_content_are_ignored(void **state)
{
    (void)state;
    expect("garbage", LIMIT_HOST, "host", 32 * GiB, 8 * GiB);
}

static void cgroup_limit_is_effective_even_if_usage_is_unreadable(void **state)
{
    (void)state;
    struct machine_limit l = limit_of("unreadable-usage");
    assert_int_equal(l.kind, LIMIT_CGROUP_V2);
    assert_int_equal(l.limit_bytes, GiB);
    assert_false(l.used_known);
    assert_false(l.peak_known);
    assert_int_equal(l.headroom_bytes, GiB);
}

static void rlimits_of_address_space_and_data_are_memory_limits(void **state)
{
    (void)state;
    expect("rlimit", LIMIT_RLIMIT_AS, "RLIMIT_AS", 2 * GiB, GiB + GiB / 2);
    expect("rlimit-data", LIMIT_RLIMIT_DATA, "RLIMIT_DATA", GiB + GiB / 2, GiB);
}

static void machine_tick_reads_meminfo_and_pressure_and_limit(void **state)
{
    (void)state;
    struct proc_root root = recorded("v1");
    struct machine *m;
    struct sample s = {0};
    sample_put(&s, MACHINE_TREE_LOW, 5);
    assert_int_equal(machine_new(&root, 100, &m), 0);
    assert_int_equal(machine_tick(m, &s), 0);
    assert_int_equal(s.v[MACHINE_TOTAL], 32 * GiB);
    assert_int_equal(s.v[MACHINE_AVAILABLE], 24 * GiB);
    assert_int_equal(s.v[MACHINE_SWAP_TOTAL], 2 * GiB);
    assert_int_equal(s.v[MACHINE_SWAP_FREE], GiB);
    assert_int_equal(s.v[MACHINE_ANON_PAGES], 4 * GiB);
    assert_int_equal(s.v[MACHINE_SHMEM], GiB / 8);
    assert_int_equal(s.v[MACHINE_PSI_SOME], 1234);
    assert_int_equal(s.v[MACHINE_PSI_FULL], 120);
    assert_int_equal(s.v[MACHINE_LIMIT], 4 * GiB);
    assert_int_equal(s.v[MACHINE_LIMIT_USED], 2 * GiB);
    assert_int_equal(s.v[MACHINE_LIMIT_PEAK], 3 * GiB + 5);
    /* machine_tick has not changed the fields of the process tree. */
    assert_true(s.read >> MACHINE_TREE_LOW & 1u);
    machine_free(m);
    proc_root_close(&root);
}

static void machine_tick_reads_the_memory_that_an_rlimit_restricts(void **state)
{
    (void)state;
    static const char *const names[] = {"rlimit", "rlimit-data"};
    for (int i = 0; i < 2; i++) {
        struct proc_root root = recorded(names[i]);
        struct machine *m;
        struct sample s = {0};
        assert_int_equal(machine_new(&root, 100, &m), 0);
        assert_int_equal(machine_tick(m, &s), 0);
        assert_int_equal(s.v[MACHINE_LIMIT_USED], i == 0 ? GiB + GiB / 2 : GiB);
        assert_false(sample_has(&s, MACHINE_LIMIT_PEAK));
        machine_free(m);
        proc_root_close(&root);
    }
}

static void machine_sample_is_unknown_if_proc_files_are_missing(void **state)
{
    (void)state;
    struct proc_root root = recorded("v1");
    close(root.proc_fd);
    root.proc_fd = open("tests/proc-fixtures/machine-v1/cgroup", O_RDONLY | O_DIRECTORY);
    struct machine *m;
    struct sample s = {0};
    struct machine_limit l = {.limit_bytes = 77};
    assert_int_equal(machine_new(&root, 100, &m), 0);
    assert_int_equal(machine_limit(m, &l), -ENODATA);
    assert_int_equal(l.limit_bytes, 77);
    assert_int_equal(machine_tick(m, &s), -ENOENT);
    assert_int_equal(s.known, 0);
    machine_free(m);
    machine_free(NULL);
    proc_root_close(&root);
}

/* Copies a recorded machine to a temporary folder, whose path is stored in TMP. */
static struct proc_root copied(const char *name, char tmp[64])
{
    char command[256], proc[96], cgroup[96];
    struct proc_root root;
    strcpy(tmp, "/tmp/ebb-test-machine.XXXXXX");
    assert_non_null(mkdtemp(tmp));
    snprintf(command, sizeof(command), "cp -r tests/proc-fixtures/machine-%s/* %s", name, tmp);
    assert_int_equal(system(command), 0);
    snprintf(proc, sizeof(proc), "%s/proc", tmp);
    snprintf(cgroup, sizeof(cgroup), "%s/cgroup", tmp);
    assert_int_equal(proc_root_open(proc, cgroup, &root, NULL), 0);
    root.page_bytes = 4096;
    return root;
}

static void shell(const char *tmp, const char *line)
{
    char command[512];
    snprintf(command, sizeof(command), "cd %s && %s", tmp, line);
    assert_int_equal(system(command), 0);
}

static void limit_is_read_from_the_new_cgroup_after_a_job_has_moved(void **state)
{
    (void)state;
    char tmp[64];
    struct proc_root root = copied("v1", tmp);
    struct machine *m;
    struct machine_limit l;
    assert_int_equal(machine_new(&root, 100, &m), 0);
    shell(tmp, "mkdir cgroup/memory/new && cp cgroup/memory/slurm/job_7/* cgroup/memory/new &&"
               " echo 2500000000 > cgroup/memory/new/memory.limit_in_bytes &&"
               " echo 4:memory:/new > proc/100/cgroup");
    assert_int_equal(machine_limit(m, &l), 0);
    assert_string_equal(l.where, "/new");
    shell(tmp, "echo 4:memory:/ > proc/100/cgroup && echo 0 0 0 0 0 0 0 > proc/100/statm");
    assert_int_equal(machine_limit(m, &l), 0); /* The process is a zombie now. */
    assert_string_equal(l.where, "/new");
    shell(tmp, "rm -r proc/100");
    assert_int_equal(machine_limit(m, &l), 0);
    assert_string_equal(l.where, "/new");
    machine_free(m);
    proc_root_close(&root);
    shell(tmp, "rm -r proc cgroup && rmdir $PWD");
}

static void headroom_on_this_machine_does_not_exceed_total_memory(void **state)
{
    (void)state;
    struct proc_root root;
    struct machine *m;
    struct machine_limit l;
    struct sample s = {0};
    assert_int_equal(proc_root_open("/proc", "/sys/fs/cgroup", &root, NULL), 0);
    assert_int_equal(machine_new(&root, 0, &m), 0);
    assert_int_equal(machine_limit(m, &l), 0);
    assert_int_equal(machine_tick(m, &s), 0);
    assert_true(sample_has(&s, MACHINE_TOTAL) && sample_has(&s, MACHINE_AVAILABLE));
    assert_true(l.headroom_bytes <= s.v[MACHINE_TOTAL]);
    assert_true(sample_has(&s, MACHINE_LIMIT));
    machine_free(m);
    proc_root_close(&root);
}

/* Starts a child that sleeps, with RLIMIT_AS set, as another user if this process is root. */
static pid_t limited_child(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit r = {UINT64_C(1) << 46, UINT64_C(1) << 46};
        if (setrlimit(RLIMIT_AS, &r) < 0 || (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0))
            _exit(1);
        for (;;)
            pause();
    }
    return pid;
}

static void memory_limits_can_be_read_without_root_privileges(void **state)
{
    (void)state;
    if (!can_be_nobody()) {
        print_message("skipped: cannot become another user here\n");
        skip();
    }
    pid_t other = limited_child();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct proc_root root;
        struct machine *m;
        struct machine_limit l;
        struct sample s = {0};
        if (geteuid() == 0 && setresuid(65533, 65533, 65533) < 0)
            _exit(1);
        if (proc_root_open("/proc", "/sys/fs/cgroup", &root, NULL) < 0 ||
            machine_new(&root, 0, &m) < 0 || machine_limit(m, &l) < 0 || machine_tick(m, &s) < 0)
            _exit(2);
        machine_free(m);
        /* The limits of another user's job are in files that are readable by everyone. */
        if (machine_new(&root, other, &m) < 0 || machine_limit(m, &l) < 0 ||
            machine_tick(m, &s) < 0 || !sample_has(&s, MACHINE_LIMIT))
            _exit(3);
        machine_free(m);
        proc_root_close(&root);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void proc_cgroup_parser_accepts_colons_and_controller_lists(void **state)
{
    (void)state;
    char path[64];
    static const char text[] = "5:cpu,memory,pids:/a:b/c d\n0::/x\n6:memory2:/no";
    assert_int_equal(proc_cgroup_parse(text, sizeof(text) - 1, false, path, sizeof(path)), 0);
    assert_string_equal(path, "/a:b/c d");
    assert_int_equal(proc_cgroup_parse(text, sizeof(text) - 1, true, path, sizeof(path)), 0);
    assert_string_equal(path, "/x");
    assert_int_equal(proc_cgroup_parse(text, sizeof(text) - 1, false, path, 5), -ENAMETOOLONG);
    assert_int_equal(proc_cgroup_parse(text, 0, false, path, sizeof(path)), -ENOENT);
    assert_string_equal(path, "/x");
}

static void cgroup_parsers_read_no_byte_past_the_end_of_mutated_files(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "5:memory:/a/b\n0::/x\n",
        "35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
        "Max address space         18446744073709551616 unlimited bytes\n",
        "VmData:\t 99999999999999999999 kB\n",
    };
    uint32_t seed = 7;
    for (int round = 0; round < 40000; round++) {
        const char *from = seeds[round % 4];
        size_t len = strlen(from);
        /* The copy has exactly the length of the text, so that the sanitizer detects reads beyond
         * its end. */
        char *text = malloc(len);
        char path[32];
        bool unlimited;
        uint64_t v;
        memcpy(text, from, len);
        for (int k = 0; k < 3; k++) {
            seed = seed * 1664525 + 1013904223;
            text[(seed >> 8) % len] = "\n :/,-0m\0"[(seed >> 24) % 9];
        }
        size_t cut = (seed >> 4) % (len + 1);
        (void)proc_cgroup_parse(text, cut, round & 8, path, sizeof(path));
        (void)proc_mount_parse(text, cut, round & 8, path, sizeof(path));
        (void)proc_rlimit_parse(text, cut, "Max address space", &unlimited, &v);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cgroup_v1_usage_includes_subtree_but_not_file_cache),
        cmocka_unit_test(cgroup_v2_limit_is_found_in_the_unified_hierarchy),
        cmocka_unit_test(memory_in_use_excludes_reclaimable_memory),
        cmocka_unit_test(huge_page_estimate_is_skipped_if_memory_stat_lacks_a_key),
        cmocka_unit_test(hybrid_machine_uses_the_v1_memory_limit),
        cmocka_unit_test(cgroup_without_a_limit_has_the_limit_of_its_parent),
        cmocka_unit_test(cgroup_with_the_least_headroom_has_the_effective_limit),
        cmocka_unit_test(mounted_cgroup_is_used_if_the_cgroup_path_does_not_exist),
        cmocka_unit_test(cgroup_path_is_resolved_relative_to_the_mount_root),
        cmocka_unit_test(cgroup_soft_limit_below_the_hard_limit_is_effective),
        cmocka_unit_test(machine_without_cgroups_is_limited_by_host_memory),
        cmocka_unit_test(cgroup_limit_files_with_invalid_content_are_ignored),
        cmocka_unit_test(cgroup_limit_is_effective_even_if_usage_is_unreadable),
        cmocka_unit_test(rlimits_of_address_space_and_data_are_memory_limits),
        cmocka_unit_test(machine_tick_reads_meminfo_and_pressure_and_limit),
        cmocka_unit_test(machine_tick_reads_the_memory_that_an_rlimit_restricts),
        cmocka_unit_test(machine_sample_is_unknown_if_proc_files_are_missing),
        cmocka_unit_test(limit_is_read_from_the_new_cgroup_after_a_job_has_moved),
        cmocka_unit_test(headroom_on_this_machine_does_not_exceed_total_memory),
        cmocka_unit_test(memory_limits_can_be_read_without_root_privileges),
        cmocka_unit_test(proc_cgroup_parser_accepts_colons_and_controller_lists),
        cmocka_unit_test(cgroup_parsers_read_no_byte_past_the_end_of_mutated_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
