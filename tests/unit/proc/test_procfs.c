/* Tests the parsers of /proc and cgroupfs files with valid and malformed input. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io.h"
#include "proc/procfs.h"

#define TEXT(s) (s), sizeof(s) - 1

/* The part of a stat line after the name: state S, parent 7, start 4242, stack 140721. */
#define STAT_TAIL                                                                                  \
    " S 7 8 9 0 -1 4194304 1 2 3 4 5 6 7 8 20 -5 3 0 4242 104857600 512 18446744073709551615 1 1 " \
    "140721 0 0 0 0\n"

static void expect_stat(const char *line, size_t len, const char *comm, size_t comm_len)
{
    struct proc_stat st;
    assert_int_equal(proc_stat_parse(line, len, &st), 0);
    assert_int_equal(st.ppid, 7);
    assert_int_equal(st.pgrp, 8);
    assert_int_equal(st.state, 'S');
    assert_int_equal(st.threads, 3);
    assert_int_equal(st.start_ticks, 4242);
    assert_int_equal(st.size_bytes, 104857600);
    assert_int_equal(st.rss_pages, 512);
    assert_int_equal(st.start_stack, 140721);
    assert_int_equal(st.comm_len, comm_len);
    assert_memory_equal(st.comm, comm, comm_len);
}

static void stat_parser_reads_state_and_parent_and_start_time(void **state)
{
    (void)state;
    expect_stat(TEXT("123 (python3)" STAT_TAIL), TEXT("python3"));
}

static void stat_parser_accepts_parens_in_name(void **state)
{
    (void)state;
    expect_stat(TEXT("123 () R 1 1 1)" STAT_TAIL), TEXT(") R 1 1 1"));
    expect_stat(TEXT("123 (a) Z 0 (b)" STAT_TAIL), TEXT("a) Z 0 (b"));
    expect_stat(TEXT("123 (a\n\033[2J\tb)" STAT_TAIL), TEXT("a\n\033[2J\tb"));
    expect_stat(TEXT("123 ()" STAT_TAIL), "", 0);
}

static void stat_parser_truncates_an_overlong_name(void **state)
{
    (void)state;
    char line[512] = "1 (", name[100];
    memset(name, 'x', sizeof(name));
    memcpy(line + 3, name, sizeof(name));
    strcpy(line + 3 + sizeof(name), ")" STAT_TAIL);
    expect_stat(line, strlen(line), name, 63);
}

static void stat_parser_leaves_output_unchanged_for_truncated_line(void **state)
{
    (void)state;
    static const char line[] = "123 (x)" STAT_TAIL;
    struct proc_stat st, before;
    memset(&before, 0x5a, sizeof(before));
    size_t stack = (size_t)(strstr(line, "140721") - line);
    for (size_t len = 0; len <= stack; len++) {
        st = before;
        assert_int_equal(proc_stat_parse(line, len, &st), -EBADMSG);
        assert_memory_equal(&st, &before, sizeof(st));
    }
    assert_int_equal(proc_stat_parse(TEXT(")("), &st), -EBADMSG);
    assert_int_equal(proc_stat_parse(TEXT("1 (x) S 99999999999 1 1"), &st), -EBADMSG);
}

static void stat_parser_rejects_numbers_beyond_64_bits(void **state)
{
    (void)state;
    struct proc_statm m;
    uint64_t v = 7;
    assert_int_equal(proc_statm_parse(TEXT("18446744073709551616 1 1 0 0 0 0\n"), &m), -EBADMSG);
    assert_int_equal(proc_statm_parse(TEXT("18446744073709551615 1 1 0 0 0 0\n"), &m), 0);
    assert_int_equal(proc_smaps_rollup_parse(TEXT("Pss: 18446744073709551615 kB\n"), &v), -EBADMSG);
    assert_int_equal(v, 7);
}

static void statm_parser_reads_resident_and_shared_pages(void **state)
{
    (void)state;
    struct proc_statm m;
    assert_int_equal(proc_statm_parse(TEXT("1184 952 417 3 0 500 0\n"), &m), 0);
    assert_int_equal(m.size_pages, 1184);
    assert_int_equal(m.rss_pages, 952);
    assert_int_equal(m.shared_pages, 417);
    assert_int_equal(proc_statm_parse(TEXT("0 0 0 0 0 0 0\n"), &m), 0);
    assert_int_equal(m.size_pages, 0);
    assert_int_equal(proc_statm_parse(TEXT("12 "), &m), -EBADMSG);
    assert_int_equal(proc_statm_parse("", 0, &m), -EBADMSG);
}

static void status_parser_sets_a_bit_for_each_line_present(void **state)
{
    (void)state;
    struct proc_status st;
    assert_int_equal(proc_status_parse(TEXT("Name:\tx\\nUid:\\t0\nTgid:\t12\nTracerPid:\t5\n"
                                            "Uid:\t1000\t0\t0\t0\nVmHWM:\t    2048 kB\n"
                                            "VmRSS:\t   1500 kB\nRssAnon:\t   1024 kB\n"
                                            "RssFile:\t     400 kB\nRssShmem:\t  76 kB\n"
                                            "VmSwap:\t       4 kB\nThreads:\t9\n"),
                                       &st),
                     0);
    assert_int_equal(st.has, STATUS_UID | STATUS_HWM | STATUS_ANON | STATUS_FILE | STATUS_SHMEM |
                                 STATUS_SWAP | STATUS_TGID);
    assert_int_equal(st.uid, 1000);
    assert_int_equal(st.tgid, 12);
    assert_int_equal(st.hwm_bytes, 2048 * 1024);
    assert_int_equal(st.anon_bytes, 1024 * 1024);
    assert_int_equal(st.file_bytes, 400 * 1024);
    assert_int_equal(st.shmem_bytes, 76 * 1024);
    assert_int_equal(st.swap_bytes, 4096);
}

static void status_parser_accepts_a_kernel_thread_without_memory_lines(void **state)
{
    (void)state;
    struct proc_status st;
    assert_int_equal(
        proc_status_parse(TEXT("Name:\tkthreadd\nUid:\t0\t0\t0\t0\nThreads:\t1\n"), &st), 0);
    assert_int_equal(st.has, STATUS_UID);
    assert_int_equal(proc_status_parse("", 0, &st), -EBADMSG);
    assert_int_equal(proc_status_parse(TEXT("VmSwap:\tmuch kB\n"), &st), -EBADMSG);
}

static void meminfo_parser_requires_memtotal_and_memavailable(void **state)
{
    (void)state;
    struct proc_meminfo m;
    assert_int_equal(proc_meminfo_parse(TEXT("MemTotal:       100 kB\nMemFree:  1 kB\n"
                                             "MemAvailable:    50 kB\nSwapTotal:   8 kB\n"
                                             "SwapFree:        4 kB\nAnonPages:  30 kB\n"
                                             "Mapped:         20 kB\nShmem:       2 kB\n"
                                             "ShmemHugePages:  9 kB\n"),
                                        &m),
                     0);
    assert_int_equal(m.total_bytes, 100 * 1024);
    assert_int_equal(m.available_bytes, 50 * 1024);
    assert_int_equal(m.swap_total_bytes, 8 * 1024);
    assert_int_equal(m.swap_free_bytes, 4 * 1024);
    assert_int_equal(m.anon_bytes, 30 * 1024);
    assert_int_equal(m.mapped_bytes, 20 * 1024);
    assert_int_equal(m.shmem_bytes, 2 * 1024);
    assert_int_equal(proc_meminfo_parse(TEXT("MemTotal:       100 kB\n"), &m), -EBADMSG);
}

static void psi_parser_returns_hundredths_of_a_percent(void **state)
{
    (void)state;
    struct proc_psi p;
    assert_int_equal(
        proc_psi_parse(TEXT("some avg10=12.34 avg60=0.00 avg300=0.00 total=99\n"
                            "full avg10=0.07 avg60=0.00 avg300=0.00 total=18446744073709551615\n"),
                       &p),
        0);
    assert_true(p.has_full);
    assert_int_equal(p.some_avg10_permyriad, 1234);
    assert_int_equal(p.full_avg10_permyriad, 7);
    assert_int_equal(proc_psi_parse(TEXT("some avg10=1.00 avg60=0.00 avg300=0.00 total=5\n"), &p),
                     0);
    assert_false(p.has_full);
    assert_int_equal(proc_psi_parse(TEXT("some avg10=1 total=5\n"), &p), -EBADMSG);
    assert_int_equal(proc_psi_parse("", 0, &p), -EBADMSG);
}

static void smaps_rollup_parser_does_not_confuse_pss_with_pss_anon(void **state)
{
    (void)state;
    uint64_t pss;
    assert_int_equal(proc_smaps_rollup_parse(TEXT("55-7f ---p 00000000 00:00 0 [rollup]\n"
                                                  "Rss:  9 kB\nPss:   5 kB\nPss_Anon: 1 kB\n"),
                                             &pss),
                     0);
    assert_int_equal(pss, 5 * 1024);
    assert_int_equal(proc_smaps_rollup_parse(TEXT("Pss_Anon: 1 kB\n"), &pss), -EBADMSG);
}

static void maps_parser_returns_lines_with_raw_paths(void **state)
{
    (void)state;
    static const char text[] =
        "00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/a b\\012c (deleted)\n"
        "7f0000000000-7f0000001000 rw-s 00001000 00:05 77 /dev/shm/x\n"
        "7ffc00000000-7ffc00021000 ---p 00000000 00:00 0 \n"
        "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]";
    const char *p = text, *end = text + sizeof(text) - 1;
    struct proc_map m;
    assert_int_equal(proc_maps_next(&p, end, &m), 1);
    assert_int_equal(m.start, 0x400000);
    assert_int_equal(m.end, 0x452000);
    assert_true(m.readable && m.executable && !m.writable && !m.shared);
    assert_int_equal(m.dev_major, 8);
    assert_int_equal(m.dev_minor, 2);
    assert_int_equal(m.inode, 173521);
    assert_int_equal(m.path_len, strlen("/usr/bin/a b\\012c (deleted)"));
    assert_memory_equal(m.path, "/usr/bin/a b\\012c (deleted)", m.path_len);
    assert_int_equal(proc_maps_next(&p, end, &m), 1);
    assert_true(m.shared && m.writable);
    assert_int_equal(m.dev_major, 0);
    assert_int_equal(m.dev_minor, 5);
    assert_int_equal(m.inode, 77);
    assert_int_equal(proc_maps_next(&p, end, &m), 1);
    assert_int_equal(m.path_len, 0);
    assert_int_equal(proc_maps_next(&p, end, &m), 1);
    assert_int_equal(m.start, UINT64_C(0xffffffffff600000));
    assert_int_equal(proc_maps_next(&p, end, &m), 0);
}

static void maps_parser_rejects_malformed_lines(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "\n",
        "xyz\n",
        "400000-300000 r--p 0 00:00 0\n",
        "400000-500000 r--q 0 00:00 0\n",
        "400000-500000 r--p 0 0000 0\n",
        "11112222333344445-11112222333344446 r--p 0 00:00 0\n",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        const char *p = lines[i];
        struct proc_map m;
        assert_int_equal(proc_maps_next(&p, lines[i] + strlen(lines[i]), &m), -EBADMSG);
    }
}

static void environ_lookup_returns_the_first_non_empty_value(void **state)
{
    static const char text[] = "XA=0\0A=\0AB=1\0A\0A=x=y\0A=z";
    size_t len = 0;
    (void)state;
    const char *value = proc_environ_find(text, sizeof text - 1, "A", &len);
    assert_non_null(value);
    assert_int_equal(len, 3);
    assert_memory_equal(value, "x=y", 3);
    /* The last value need not end in NUL. */
    assert_non_null(proc_environ_find(TEXT("A=long"), "A", &len));
    assert_int_equal(len, 4);
    assert_null(proc_environ_find(TEXT("A="), "A", &len));
    assert_null(proc_environ_find(TEXT("A"), "A", &len));
    assert_null(proc_environ_find("", 0, "A", &len));
}

static void pid_list_parser_stops_at_a_non_number(void **state)
{
    (void)state;
    int32_t pids[4];
    assert_int_equal(proc_pids_parse(TEXT("12 345 6 "), pids, 4), 3);
    assert_int_equal(pids[0], 12);
    assert_int_equal(pids[2], 6);
    assert_int_equal(proc_pids_parse(TEXT("1 2 3 4 5 6"), pids, 4), 4);
    assert_int_equal(proc_pids_parse(TEXT("7 99999999999 8"), pids, 4), 1);
    assert_int_equal(proc_pids_parse(TEXT("7 -8"), pids, 4), 1);
    assert_int_equal(proc_pids_parse("", 0, pids, 4), 0);
}

static void cgroup_limit_parser_treats_max_and_v1_maximum_as_unlimited(void **state)
{
    (void)state;
    bool unlimited;
    uint64_t v;
    assert_int_equal(proc_cgroup_number_parse(TEXT("max\n"), &unlimited, &v), 0);
    assert_true(unlimited);
    assert_int_equal(proc_cgroup_number_parse(TEXT("9223372036854771712\n"), &unlimited, &v), 0);
    assert_true(unlimited);
    assert_int_equal(proc_cgroup_number_parse(TEXT("4096\n"), &unlimited, &v), 0);
    assert_false(unlimited);
    assert_int_equal(v, 4096);
    assert_int_equal(proc_cgroup_number_parse(TEXT("40x\n"), &unlimited, &v), -EBADMSG);
    assert_int_equal(proc_cgroup_number_parse("", 0, &unlimited, &v), -EBADMSG);
}

static void keyed_file_parser_does_not_match_a_prefix_of_a_key(void **state)
{
    (void)state;
    uint64_t v = 7;
    assert_int_equal(proc_keyed_parse(TEXT("oom 1\noom_kill 3\n"), "oom_kill", &v), 0);
    assert_int_equal(v, 3);
    assert_int_equal(proc_keyed_parse(TEXT("oom_kill 3\noom 1"), "oom", &v), 0);
    assert_int_equal(v, 1);
    assert_int_equal(proc_keyed_parse(TEXT("oom_kill 3\n"), "oom", &v), -ENOENT);
    assert_int_equal(proc_keyed_parse(TEXT("oom 3x\n"), "oom", &v), -EBADMSG);
    assert_int_equal(v, 1);
}

static void error_for_a_missing_proc_folder_contains_the_path(void **state)
{
    (void)state;
    struct proc_root root;
    struct err err;
    assert_int_equal(proc_root_open("/nowhere/proc", NULL, &root, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nowhere/proc"));
    assert_int_equal(proc_root_open("/proc", "/nowhere", &root, &err), 0);
    assert_int_equal(root.cgroup_fd, -1);
    proc_root_close(&root);
    proc_root_close(&root);
}

static void proc_of_another_pid_namespace_is_recognized(void **state)
{
    (void)state;
    char path[] = "/tmp/ebb-test-procfs.XXXXXX", self[16];
    struct proc_root root;
    assert_non_null(mkdtemp(path));
    assert_int_equal(proc_root_open(path, NULL, &root, NULL), 0);
    assert_false(proc_root_is_foreign(&root)); /* A recorded /proc has no symbolic link "self". */
    assert_int_equal(symlinkat("999999999", root.proc_fd, "self"), 0);
    assert_true(proc_root_is_foreign(&root));
    assert_int_equal(unlinkat(root.proc_fd, "self", 0), 0);
    snprintf(self, sizeof(self), "%d", (int)getpid());
    assert_int_equal(symlinkat(self, root.proc_fd, "self"), 0);
    assert_false(proc_root_is_foreign(&root));
    /* The process has the same pid in both namespaces by coincidence. */
    assert_int_equal(mkdirat(root.proc_fd, self, 0777), 0);
    int fd = openat(root.proc_fd, "self/status", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(dprintf(fd, "Name:\tx\nNSpid:\t%s\t%s\nVmPeak:\t1 kB\n", self, self) > 0, 1);
    close(fd);
    assert_true(proc_root_is_foreign(&root));
    assert_int_equal(unlinkat(root.proc_fd, "self/status", 0), 0);
    assert_int_equal(unlinkat(root.proc_fd, self, AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(root.proc_fd, "self", 0), 0);
    proc_root_close(&root);
    assert_int_equal(rmdir(path), 0);
}

static void proc_of_the_same_pid_namespace_is_not_foreign_after_a_fork(void **state)
{
    (void)state;
    struct proc_root root;
    int status;
    assert_int_equal(proc_root_open("/proc", NULL, &root, NULL), 0);
    assert_false(proc_root_is_foreign(&root));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(proc_root_is_foreign(&root));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    proc_root_close(&root);
}

/* This test reads files of this process, written by the running kernel. */
static void proc_parsers_accept_files_of_the_running_kernel(void **state)
{
    (void)state;
    char text[8192];
    struct proc_stat st;
    struct proc_statm m;
    struct proc_status status;
    struct proc_meminfo mem;
    ssize_t n = io_read_small(AT_FDCWD, "/proc/self/stat", text, sizeof(text));
    assert_int_equal(proc_stat_parse(text, (size_t)n, &st), 0);
    assert_int_equal(st.ppid, getppid());
    assert_int_not_equal(st.start_stack, 0);
    n = io_read_small(AT_FDCWD, "/proc/self/statm", text, sizeof(text));
    assert_int_equal(proc_statm_parse(text, (size_t)n, &m), 0);
    assert_true(m.rss_pages > 0 && m.size_pages >= m.rss_pages);
    n = io_read_small(AT_FDCWD, "/proc/self/status", text, sizeof(text));
    assert_int_equal(proc_status_parse(text, (size_t)n, &status), 0);
    assert_int_equal(status.uid, getuid());
    assert_int_equal(status.tgid, getpid());
    assert_true(status.has & STATUS_ANON);
    n = io_read_small(AT_FDCWD, "/proc/meminfo", text, sizeof(text));
    assert_int_equal(proc_meminfo_parse(text, (size_t)n, &mem), 0);
    assert_true(mem.mapped_bytes > 0 && mem.anon_bytes > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stat_parser_reads_state_and_parent_and_start_time),
        cmocka_unit_test(stat_parser_accepts_parens_in_name),
        cmocka_unit_test(stat_parser_truncates_an_overlong_name),
        cmocka_unit_test(stat_parser_leaves_output_unchanged_for_truncated_line),
        cmocka_unit_test(stat_parser_rejects_numbers_beyond_64_bits),
        cmocka_unit_test(statm_parser_reads_resident_and_shared_pages),
        cmocka_unit_test(status_parser_sets_a_bit_for_each_line_present),
        cmocka_unit_test(status_parser_accepts_a_kernel_thread_without_memory_lines),
        cmocka_unit_test(meminfo_parser_requires_memtotal_and_memavailable),
        cmocka_unit_test(psi_parser_returns_hundredths_of_a_percent),
        cmocka_unit_test(smaps_rollup_parser_does_not_confuse_pss_with_pss_anon),
        cmocka_unit_test(maps_parser_returns_lines_with_raw_paths),
        cmocka_unit_test(maps_parser_rejects_malformed_lines),
        cmocka_unit_test(pid_list_parser_stops_at_a_non_number),
        cmocka_unit_test(environ_lookup_returns_the_first_non_empty_value),
        cmocka_unit_test(cgroup_limit_parser_treats_max_and_v1_maximum_as_unlimited),
        cmocka_unit_test(keyed_file_parser_does_not_match_a_prefix_of_a_key),
        cmocka_unit_test(error_for_a_missing_proc_folder_contains_the_path),
        cmocka_unit_test(proc_of_another_pid_namespace_is_recognized),
        cmocka_unit_test(proc_of_the_same_pid_namespace_is_not_foreign_after_a_fork),
        cmocka_unit_test(proc_parsers_accept_files_of_the_running_kernel),
    };
    return cmocka_run_group_tests_name("procfs", tests, NULL, NULL);
}
