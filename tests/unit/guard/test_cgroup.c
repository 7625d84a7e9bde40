/* Tests the job's cgroup in fake trees and, if permitted, in the real cgroups of this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "guard/cgroup.h"
#include "guard/cgroup_place.h"

enum { MIB = 1 << 20 };

/* ---- fake trees ---- */

struct tree {
    char path[64];
    struct proc_root root;
};

static void in_tree(const struct tree *t, const char *script)
{
    char command[2048];
    snprintf(command, sizeof(command), "umask 022 && cd %s && { %s; }", t->path, script);
    assert_int_equal(system(command), 0);
}

/* Creates a tree: SCRIPT creates cgroup/, and GROUPS is the content of /proc/self/cgroup. */
static void tree_begin(struct tree *t, const char *groups, const char *script)
{
    char proc[96], cgroup[96], write_groups[256];
    strcpy(t->path, "/tmp/ebb-test-cgroup.XXXXXX");
    assert_non_null(mkdtemp(t->path));
    in_tree(t, "chmod 755 . && mkdir -p cgroup proc/self && : >proc/self/mountinfo");
    snprintf(write_groups, sizeof(write_groups), "printf '%s' >proc/self/cgroup", groups);
    in_tree(t, write_groups);
    in_tree(t, script);
    snprintf(proc, sizeof(proc), "%s/proc", t->path);
    snprintf(cgroup, sizeof(cgroup), "%s/cgroup", t->path);
    assert_int_equal(proc_root_open(proc, cgroup, &t->root, NULL), 0);
}

static void tree_end(struct tree *t)
{
    proc_root_close(&t->root);
    in_tree(t, "chmod -R u+w . && rm -r proc cgroup && rmdir $PWD");
}

static void assert_file(const struct tree *t, const char *path, const char *text)
{
    char got[256];
    assert_true(io_read_small(t->root.cgroup_fd, path, got, sizeof(got)) >= 0);
    assert_string_equal(got, text);
}

static bool is_there(const struct proc_root *root, const char *path)
{
    return faccessat(root->cgroup_fd, path, F_OK, 0) == 0;
}

static bool is_none(const struct guard_cgroup *g)
{
    return g->dir[0] == '\0' && g->join_fd < 0 && g->fds.usage < 0 && g->fds.stat < 0 &&
           g->kill_fd < 0 && g->events_fd < 0 && !g->is_limited;
}

static void cgroup_v1_parent_search_ends_at_the_root(void **state)
{
    struct tree t;
    struct guard_place p;
    (void)state;
    tree_begin(&t, "4:memory:/a/b\\n",
               "mkdir -p cgroup/memory/a/b &&"
               " echo 9223372036854771712 | tee cgroup/memory/a/memory.limit_in_bytes"
               " >cgroup/memory/a/b/memory.limit_in_bytes");
    assert_int_equal(guard_place_own(&t.root, true, &p), -ENOENT);
    assert_int_equal(guard_place_own(&t.root, false, &p), 0);
    assert_true(p.is_own);
    assert_string_equal(p.group.dir, "memory/a/b");
    assert_string_equal(guard_place_name(&p), "/a/b");
    assert_int_equal(guard_place_divide(&t.root, &p), 0);
    assert_int_equal(guard_place_up(&t.root, &p), 0);
    assert_false(p.is_own);
    assert_string_equal(p.group.dir, "memory/a");
    assert_int_equal(guard_place_up(&t.root, &p), 0);
    assert_string_equal(guard_place_name(&p), "/");
    assert_int_equal(guard_place_up(&t.root, &p), -ENOENT);
    tree_end(&t);
}

static void cgroup_warm_up_rejoins_only_the_current_v1_cgroup(void **state)
{
    struct tree t;
    char text[8] = "";
    (void)state;
    tree_begin(&t, "4:memory:/a/b\\n0::/c\\n",
               "mkdir -p cgroup/memory/a/b cgroup/unified/c &&"
               ": >cgroup/memory/a/b/cgroup.procs; : >cgroup/memory/a/cgroup.procs;"
               ": >cgroup/unified/c/cgroup.procs");
    guard_cgroup_warm(&t.root);
    assert_int_equal(io_read_small(t.root.cgroup_fd, "memory/a/b/cgroup.procs", text, sizeof text),
                     1);
    assert_string_equal(text, "0");
    assert_int_equal(io_read_small(t.root.cgroup_fd, "memory/a/cgroup.procs", text, sizeof text),
                     0);
    assert_int_equal(io_read_small(t.root.cgroup_fd, "unified/c/cgroup.procs", text, sizeof text),
                     0);
    tree_end(&t);
    tree_begin(&t, "", ":"); /* The simulated machine has no cgroups. */
    guard_cgroup_warm(&t.root);
    tree_end(&t);
}

static void job_cgroup_is_never_placed_above_an_existing_memory_limit(void **state)
{
    struct tree t;
    struct guard_place p;
    (void)state;
    tree_begin(&t, "4:memory:/a\\n0::/b\\n",
               "mkdir -p cgroup/memory/a cgroup/unified/b &&"
               " echo memory >cgroup/unified/cgroup.controllers &&"
               " echo 1073741824 | tee cgroup/memory/a/memory.limit_in_bytes"
               " >cgroup/unified/b/memory.max");
    for (int v2 = 0; v2 < 2; v2++) {
        assert_int_equal(guard_place_own(&t.root, v2, &p), 0);
        assert_int_equal(guard_place_up(&t.root, &p), -EPERM);
    }
    tree_end(&t);
}

static void cgroup_v2_parent_without_memory_controller_is_rejected(void **state)
{
    struct tree t;
    struct guard_place p;
    (void)state;
    tree_begin(&t, "0::/a/b\\n",
               "mkdir -p cgroup/a/b && echo cpu memory >cgroup/cgroup.controllers && cd cgroup &&"
               " echo cpu memoryless >a/b/cgroup.subtree_control &&"
               " echo cpu memory pids >a/cgroup.subtree_control && echo max >a/b/memory.max &&"
               " touch a/b/cgroup.procs a/cgroup.procs a/b/cgroup.events a/cgroup.events");
    assert_int_equal(guard_place_own(&t.root, true, &p), 0);
    assert_int_equal(guard_place_divide(&t.root, &p), -EOPNOTSUPP);
    assert_int_equal(guard_place_up(&t.root, &p), 0);
    assert_string_equal(guard_place_name(&p), "/a");
    assert_int_equal(guard_place_divide(&t.root, &p), 0);
    tree_end(&t);
}

static void memory_controller_is_not_enabled_in_a_cgroup_namespace_root(void **state)
{
    struct tree t;
    struct guard_place p;
    (void)state;
    tree_begin(&t, "0::/\\n",
               "echo cpu memory >cgroup/cgroup.controllers &&"
               " touch cgroup/cgroup.procs cgroup/cgroup.subtree_control cgroup/cgroup.events");
    assert_int_equal(guard_place_own(&t.root, true, &p), 0);
    assert_int_equal(guard_place_divide(&t.root, &p), -EOPNOTSUPP);
    assert_file(&t, "cgroup.subtree_control", "");
    in_tree(&t, "rm cgroup/cgroup.events");
    assert_int_equal(guard_place_divide(&t.root, &p), 0);
    assert_file(&t, "cgroup.subtree_control", "+memory");
    tree_end(&t);
}

/* Marks GROUP as delegated, as systemd does for a scope or for a unit with Delegate=yes. */
static void delegate(struct tree *t, const char *group)
{
    char path[128];
    snprintf(path, sizeof path, "%s/cgroup/%s", t->path, group);
    if (setxattr(path, "user.delegate", "1", 1, 0) < 0) {
        /* A tmpfs before Linux 6.6 does not support user extended attributes. */
        assert_int_equal(errno, ENOTSUP);
        tree_end(t);
        skip();
    }
}

static void memory_controller_is_enabled_in_a_delegated_parent_cgroup(void **state)
{
    struct tree t;
    struct guard_place p;
    (void)state;
    tree_begin(
        &t, "0::/slice/ebb.service/server\\n",
        "mkdir -p cgroup/slice/ebb.service/server && cd cgroup &&"
        " echo memory | tee cgroup.controllers slice/cgroup.controllers"
        "  slice/ebb.service/cgroup.controllers >slice/ebb.service/server/cgroup.controllers;"
        " for g in slice slice/ebb.service slice/ebb.service/server; do"
        "  touch $g/cgroup.procs $g/cgroup.subtree_control $g/cgroup.events; done");
    assert_int_equal(guard_place_own(&t.root, true, &p), 0);
    assert_int_equal(guard_place_divide(&t.root, &p), -EOPNOTSUPP);
    assert_int_equal(guard_place_up(&t.root, &p), 0);
    if (geteuid() == 0) /* Root owns every group, whether delegated or not. */
        assert_int_equal(guard_place_divide(&t.root, &p), -EOPNOTSUPP);
    delegate(&t, "slice/ebb.service");
    assert_int_equal(guard_place_divide(&t.root, &p), 0);
    assert_file(&t, "slice/ebb.service/cgroup.subtree_control", "+memory");
    assert_file(&t, "slice/cgroup.subtree_control", "");
    tree_end(&t);
}

/* Creates a tree in which this process and PROCS are in GROUP. */
static void vacate_tree(struct tree *t, const char *group, const char *procs)
{
    char groups[128], script[512];
    snprintf(groups, sizeof groups, "0::/%s\\n", group);
    snprintf(script, sizeof script,
             "mkdir -p cgroup/%s/ebb && cd cgroup && echo memory >cgroup.controllers && cd %s &&"
             " echo memory >cgroup.controllers && : >cgroup.subtree_control && : >ebb/cgroup.procs"
             " && printf '%d\\n%s' >cgroup.procs",
             group, group, getpid(), procs);
    tree_begin(t, groups, script);
}

static void ebb_alone_in_a_delegated_scope_moves_into_a_child_cgroup(void **state)
{
    struct tree t;
    (void)state;
    vacate_tree(&t, "run-1.scope", "");
    if (geteuid() == 0) {
        assert_int_equal(guard_place_vacate(&t.root), 0);
        assert_file(&t, "run-1.scope/ebb/cgroup.procs", "");
    }
    delegate(&t, "run-1.scope");
    assert_int_equal(guard_place_vacate(&t.root), 0);
    assert_file(&t, "run-1.scope/ebb/cgroup.procs", "0");
    tree_end(&t);
}

static void ebb_does_not_move_out_of_a_shared_scope_or_a_service(void **state)
{
    static const char *const cases[][2] = {{"run-1.scope", "1\\n"}, {"ebb.service", ""}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct tree t;
        char moved[64];
        vacate_tree(&t, cases[i][0], cases[i][1]);
        delegate(&t, cases[i][0]);
        assert_int_equal(guard_place_vacate(&t.root), 0);
        snprintf(moved, sizeof moved, "%s/ebb/cgroup.procs", cases[i][0]);
        assert_file(&t, moved, "");
        tree_end(&t);
    }
}

/* Runs FN in a child process, as the user nobody if this process is root. Returns FN's result, or
 * 100 if the child was killed. */
static int as_nobody(int (*fn)(void *), void *user)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
            _exit(99);
        _exit(fn(user));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static int divide_gives_eacces(void *user)
{
    const struct tree *t = user;
    struct guard_place p;
    return guard_place_own(&t->root, true, &p) == 0 && guard_place_divide(&t->root, &p) == -EACCES
               ? 0
               : 1;
}

static void parent_cgroup_with_unwritable_procs_file_is_rejected(void **state)
{
    struct tree t;
    (void)state;
    tree_begin(&t, "0::/\\n",
               "echo memory | tee cgroup/cgroup.controllers >cgroup/cgroup.subtree_control &&"
               " touch cgroup/cgroup.procs && chmod 444 cgroup/cgroup.procs");
    assert_int_equal(as_nobody(divide_gives_eacces, &t), 0);
    tree_end(&t);
}

/* A new folder in a fake tree contains no cgroup files, so creating a group fails after the folder
 * was created. */
static void incomplete_cgroup_is_removed_after_creation_fails(void **state)
{
    struct tree t;
    struct err err;
    struct guard_cgroup g = guard_cgroup_none;
    (void)state;
    tree_begin(&t, "4:memory:/a\\n0::/b\\n",
               "mkdir -p cgroup/memory/a cgroup/unified/b &&"
               " echo memory | tee cgroup/unified/cgroup.controllers"
               " cgroup/unified/b/cgroup.subtree_control >cgroup/unified/cgroup.subtree_control &&"
               " touch cgroup/unified/cgroup.procs cgroup/unified/b/cgroup.procs");
    assert_int_equal(guard_cgroup_make(&t.root, "ebb-7-8", MIB, &g, &err), -ENOENT);
    assert_non_null(strstr(err.text, "cgroup: cannot create a group below /a"));
    assert_true(is_none(&g));
    in_tree(&t, "test -z \"$(find cgroup -name 'ebb-*')\"");
    tree_end(&t);
}

static void cgroup_creation_reports_an_error_if_no_hierarchy_exists(void **state)
{
    struct tree t;
    struct err err;
    struct guard_cgroup g = guard_cgroup_none;
    (void)state;
    tree_begin(&t, "", ":");
    assert_int_equal(guard_cgroup_make(&t.root, "ebb-7-8", 0, &g, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no hierarchy"));
    assert_int_equal(guard_cgroup_limit(&t.root, &g, MIB), -EOPNOTSUPP);
    assert_int_equal(guard_cgroup_kill(&g), -EOPNOTSUPP);
    assert_int_equal(guard_cgroup_join(&g), 0);
    assert_int_equal(guard_cgroup_tidy(&t.root, &g), 0);
    assert_int_equal(guard_cgroup_remove(&t.root, &g, 0), 0);
    tree_end(&t);
}

static void cgroup_v2_limit_disables_swap(void **state)
{
    struct tree t;
    struct guard_cgroup g = guard_cgroup_none;
    uint64_t n = 0;
    (void)state;
    tree_begin(&t, "0::/\\n",
               "mkdir cgroup/ebb-7-8 && cd cgroup/ebb-7-8 && touch cgroup.procs cgroup.kill"
               " memory.stat memory.current memory.max memory.swap.max memory.high &&"
               " printf 'oom 4\\noom_kill 3\\noom_group_kill 1\\n' >memory.events &&"
               " echo 4096 >memory.peak");
    strcpy(g.dir, "./ebb-7-8");
    g.is_v2 = true;
    assert_int_equal(guard_cgroup_reopen(&t.root, &g), 0);
    assert_int_equal(guard_cgroup_limit(&t.root, &g, 0), -EINVAL);
    assert_false(g.is_limited);
    assert_int_equal(guard_cgroup_limit(&t.root, &g, UINT64_C(5000000000)), 0);
    assert_true(g.is_limited);
    assert_file(&t, "ebb-7-8/memory.max", "5000000000");
    assert_file(&t, "ebb-7-8/memory.swap.max", "0");
    assert_file(&t, "ebb-7-8/memory.high", "");
    assert_int_equal(guard_cgroup_oom_kills(&g, &n), 0);
    assert_int_equal(n, 3);
    assert_true(g.peak_fd >= 0);
    assert_int_equal(guard_cgroup_join(&g), 0);
    assert_int_equal(guard_cgroup_kill(&g), 0);
    assert_file(&t, "ebb-7-8/cgroup.procs", "0");
    assert_file(&t, "ebb-7-8/cgroup.kill", "1");
    in_tree(&t, "rm cgroup/ebb-7-8/*");
    assert_int_equal(guard_cgroup_remove(&t.root, &g, 0), 0);
    tree_end(&t);
}

static void child_is_forked_outside_the_job_cgroup_if_clone3_fails(void **state)
{
    struct tree t;
    struct guard_cgroup g = guard_cgroup_none;
    bool is_in = true;
    int status;
    (void)state;
    tree_begin(&t, "0::/\\n", "mkdir cgroup/ebb-7-8");
    g.is_v2 = true;
    strcpy(g.dir, "ebb-7-8"); /* clone3 fails, because this folder is not a cgroup. */
    pid_t pid = guard_cgroup_fork(&t.root, &g, &is_in);
    if (pid == 0)
        _exit(is_in ? 1 : 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_false(is_in);
    in_tree(&t, "rmdir cgroup/ebb-7-8");
    tree_end(&t);
}

static void cgroup_v1_limit_covers_memory_and_swap(void **state)
{
    struct tree t;
    struct guard_cgroup g = guard_cgroup_none;
    uint64_t n = 0;
    (void)state;
    tree_begin(&t, "4:memory:/\\n",
               "mkdir -p cgroup/memory/ebb-7-8 && cd cgroup/memory/ebb-7-8 && touch cgroup.procs "
               "memory.stat memory.usage_in_bytes"
               " memory.limit_in_bytes memory.memsw.limit_in_bytes &&"
               " printf 'oom_kill_disable 0\\nunder_oom 0\\noom_kill 2\\n' >memory.oom_control");
    strcpy(g.dir, "memory/ebb-7-8");
    assert_int_equal(guard_cgroup_reopen(&t.root, &g), 0);
    assert_int_equal(guard_cgroup_limit(&t.root, &g, MIB), 0);
    assert_file(&t, "memory/ebb-7-8/memory.limit_in_bytes", "1048576");
    assert_file(&t, "memory/ebb-7-8/memory.memsw.limit_in_bytes", "1048576");
    assert_int_equal(guard_cgroup_oom_kills(&g, &n), 0);
    assert_int_equal(n, 2);
    assert_true(g.peak_fd < 0);
    assert_int_equal(guard_cgroup_join(&g), 0);
    assert_file(&t, "memory/ebb-7-8/cgroup.procs", "0");
    assert_int_equal(guard_cgroup_kill(&g), -EOPNOTSUPP);
    in_tree(&t, "rm cgroup/*/ebb-7-8/*");
    assert_int_equal(guard_cgroup_remove(&t.root, &g, 0), 0);
    assert_false(is_there(&t.root, "memory/ebb-7-8"));
    tree_end(&t);
}

static void cgroup_removal_includes_nested_but_not_sibling_groups(void **state)
{
    struct tree t;
    struct guard_cgroup g = guard_cgroup_none;
    (void)state;
    tree_begin(&t, "",
               "mkdir -p cgroup/p/ebb-7-8/x/y cgroup/p/ebb-7-8/z cgroup/p/beside/empty &&"
               " ln -s ../beside cgroup/p/ebb-7-8/link");
    strcpy(g.dir, "p/ebb-7-8");
    /* The symbolic link remains because it is not a group. */
    assert_int_equal(guard_cgroup_remove(&t.root, &g, 0), -EBUSY);
    assert_string_equal(g.dir, "p/ebb-7-8");
    assert_false(is_there(&t.root, "p/ebb-7-8/x"));
    assert_false(is_there(&t.root, "p/ebb-7-8/z"));
    assert_true(is_there(&t.root, "p/beside/empty"));
    in_tree(&t, "rm cgroup/p/ebb-7-8/link");
    assert_int_equal(guard_cgroup_remove(&t.root, &g, 0), 0);
    assert_string_equal(g.dir, "");
    assert_false(is_there(&t.root, "p/ebb-7-8"));
    assert_true(is_there(&t.root, "p/beside/empty"));
    tree_end(&t);
}

static void folder_without_an_ebb_cgroup_name_is_never_removed(void **state)
{
    static const char *const dirs[] = {"p/beside", "p/ebb-7-8/..", "p", "ebb-7-8"};
    struct tree t;
    (void)state;
    tree_begin(&t, "", "mkdir -p cgroup/p/beside cgroup/p/ebb-7-8 cgroup/ebb-7-8");
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        struct guard_cgroup g = guard_cgroup_none;
        strcpy(g.dir, dirs[i]);
        assert_int_equal(guard_cgroup_remove(&t.root, &g, 0), -EINVAL);
        assert_true(is_there(&t.root, dirs[i]));
    }
    tree_end(&t);
}

static void cgroup_name_parser_accepts_only_names_that_ebb_generates(void **state)
{
    static const char *const bad[] = {"",
                                      "ebb",
                                      "ebb-",
                                      "ebb-1",
                                      "ebb-1-",
                                      "ebb--1-2",
                                      "ebb-01-2",
                                      "ebb-1-2-3",
                                      "ebb-1--2",
                                      "ebb-0-2",
                                      "ebb-doctor-1",
                                      "ebb-1-2/..",
                                      "ebb-2147483648-1",
                                      "xebb-1-2"};
    struct process_id id = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(guard_cgroup_name_parse(bad[i], &id), -EINVAL);
    assert_int_equal(id.pid, 0);
    assert_int_equal(guard_cgroup_name_parse("ebb-123-456789", &id), 0);
    assert_int_equal(id.pid, 123);
    assert_int_equal(id.start_ticks, 456789);
}

/* ---- this machine ---- */

static struct proc_root root;
static struct guard_cgroup group;
static char own_name[64];
static pid_t bystander;

static _Noreturn void stay(void)
{
    for (;;)
        pause();
}

/* Forks a child that is killed when its parent exits. */
static pid_t fork_tied(void)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
    }
    assert_true(pid >= 0);
    return pid;
}

static int set_up(void **state)
{
    (void)state;
    group = guard_cgroup_none;
    if (proc_root_open("/proc", "/sys/fs/cgroup", &root, NULL) < 0)
        return -1;
    guard_cgroup_name(&root, own_name);
    bystander = fork_tied();
    if (bystander == 0)
        stay();
    return 0;
}

static int tear_down(void **state)
{
    int status;
    (void)state;
    int r = guard_cgroup_remove(&root, &group, clock_mono_ns() + 30 * NS_PER_S);
    bool survived = waitpid(bystander, &status, WNOHANG) == 0;
    kill(bystander, SIGKILL);
    waitpid(bystander, &status, 0);
    proc_root_close(&root);
    return r == 0 && survived ? 0 : -1;
}

/* Creates GROUP, or skips the test with a reason. */
static void need_group(uint64_t limit_bytes, bool needs_kill)
{
    struct err err;
    int r = guard_cgroup_make(&root, own_name, limit_bytes, &group, &err);
    if (r == 0 && (!needs_kill || group.kill_fd >= 0))
        return;
    assert_true(r == 0 || err.text[0] != '\0');
    print_message("skipped: %s\n", r < 0 ? err.text : "no cgroup.kill here");
    skip();
}

/* Starts a process in GROUP that runs FN and then sleeps. Returns when FN has returned or the
 * process has exited. */
static pid_t start_in_group(void (*fn)(int fd), int *ret_fd)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork_tied();
    if (pid == 0) {
        close(ends[0]);
        if (guard_cgroup_join(&group) < 0)
            _exit(90);
        fn(ends[1]);
        stay();
    }
    close(ends[1]);
    (void)!read(ends[0], &byte, 1);
    if (ret_fd != NULL)
        *ret_fd = ends[0];
    else
        close(ends[0]);
    return pid;
}

static void tell(int fd)
{
    if (write(fd, "", 1) != 1)
        _exit(91);
}

static void touch(size_t bytes)
{
    volatile char *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        _exit(92);
    for (size_t i = 0; i < bytes; i += 4096)
        p[i] = 1;
}

static void touch_32_mib(int fd)
{
    touch(32 * MIB);
    tell(fd);
}

static void touch_128_mib(int fd)
{
    touch(128 * MIB);
    tell(fd);
}

static int end_and_reap(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static uint64_t usage(void)
{
    char text[64];
    uint64_t n = 0;
    bool unlimited;
    ssize_t len = io_pread_small(group.fds.usage, text, sizeof(text));
    assert_true(len > 0);
    assert_int_equal(proc_cgroup_number_parse(text, (size_t)len, &unlimited, &n), 0);
    return n;
}

static unsigned groups_named(pid_t pid, const char *name)
{
    char path[64], line[4096], end[80];
    unsigned n = 0;
    snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
    snprintf(end, sizeof(end), "/%s\n", name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL)
        n += strstr(line, end) != NULL;
    fclose(f);
    return n;
}

static void process_forked_into_a_cgroup_is_listed_as_a_member(void **state)
{
    bool is_in;
    int ends[2];
    char byte;
    (void)state;
    need_group(0, false);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = guard_cgroup_fork(&root, &group, &is_in);
    if (pid == 0) {
        if (!is_in && guard_cgroup_join(&group) < 0)
            _exit(90);
        tell(ends[1]);
        stay();
    }
    assert_true(pid > 0);
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    assert_int_equal(groups_named(pid, own_name), 1);
    assert_int_equal(groups_named(getpid(), own_name), 0);
    assert_int_equal(end_and_reap(pid), SIGKILL);
}

static void touched_memory_is_charged_to_the_cgroup_of_the_process(void **state)
{
    uint64_t kills = 1;
    struct stat st;
    (void)state;
    need_group(0, false);
    assert_int_equal(fstatat(root.cgroup_fd, group.dir, &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    assert_false(group.is_limited);
    assert_true(usage() < 16 * MIB);
    pid_t pid = start_in_group(touch_32_mib, NULL);
    assert_true(usage() >= 32 * MIB);
    assert_int_equal(guard_cgroup_oom_kills(&group, &kills), 0);
    assert_int_equal(kills, 0);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    end_and_reap(pid);
}

static void oom_kill_in_the_job_cgroup_spares_processes_outside_it(void **state)
{
    uint64_t kills = 0;
    int status;
    (void)state;
    need_group(64 * MIB, false);
    if (!group.is_limited) {
        print_message("skipped: no limit can be set here\n");
        skip();
    }
    pid_t pid = start_in_group(touch_128_mib, NULL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(guard_cgroup_oom_kills(&group, &kills), 0);
    assert_true(kills >= 1);
    assert_int_equal(waitpid(bystander, NULL, WNOHANG), 0);
}

static uint64_t limit_now(void)
{
    char path[GUARD_CGROUP_PATH + 64], text[64];
    uint64_t n = 0;
    bool unlimited;
    snprintf(path, sizeof(path), "%s/%s", group.dir,
             group.is_v2 ? "memory.max" : "memory.limit_in_bytes");
    ssize_t len = io_read_small(root.cgroup_fd, path, text, sizeof(text));
    assert_true(len > 0);
    assert_int_equal(proc_cgroup_number_parse(text, (size_t)len, &unlimited, &n), 0);
    return unlimited ? UINT64_MAX : n;
}

static void cgroup_limit_can_be_raised_and_lowered(void **state)
{
    static const uint64_t limits[] = {64 * MIB, 128 * MIB, 32 * MIB, 256 * MIB};
    (void)state;
    need_group(0, false);
    assert_true(limit_now() == UINT64_MAX);
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        assert_int_equal(guard_cgroup_limit(&root, &group, limits[i]), 0);
        assert_true(group.is_limited);
        assert_int_equal(limit_now(), limits[i]);
    }
}

/* Starts seven processes that keep FD open; some are orphans, some are in another session. */
static void fork_a_tree(int fd)
{
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            setsid();
            if (fork() == 0) {
                tell(fd);
                alarm(300); /* The alarm ends the process if the kill fails. */
                stay();
            }
            if (i == 0)
                _exit(0);
            alarm(300);
            stay();
        }
}

/* Reads two more messages, kills the group, and waits until all its processes have closed the
 * pipe. */
static void kill_and_see_them_gone(int fd, const struct guard_cgroup *g)
{
    char byte;
    for (int i = 0; i < 2; i++)
        assert_int_equal(read(fd, &byte, 1), 1);
    assert_int_equal(guard_cgroup_kill(g), 0);
    assert_int_equal(read(fd, &byte, 1), 0);
    close(fd);
}

static void cgroup_kill_ends_orphans_and_processes_in_other_sessions(void **state)
{
    char dir[GUARD_CGROUP_PATH];
    int fd, status;
    (void)state;
    need_group(0, true);
    strcpy(dir, group.dir);
    pid_t pid = start_in_group(fork_a_tree, &fd);
    kill_and_see_them_gone(fd, &group);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(guard_cgroup_remove(&root, &group, clock_mono_ns() + 30 * NS_PER_S), 0);
    assert_false(is_there(&root, dir));
    assert_int_equal(waitpid(bystander, NULL, WNOHANG), 0);
}

static void cgroup_reopened_by_path_can_be_killed_and_removed(void **state)
{
    struct guard_cgroup copy;
    int fd;
    (void)state;
    need_group(0, true);
    copy = group;
    copy.join_fd = copy.fds.usage = copy.fds.stat = copy.events_fd = 9999;
    copy.kill_fd = 9999;
    pid_t pid = start_in_group(fork_a_tree, &fd);
    assert_int_equal(guard_cgroup_reopen(&root, &copy), 0);
    kill_and_see_them_gone(fd, &copy);
    end_and_reap(pid);
    assert_int_equal(guard_cgroup_remove(&root, &copy, clock_mono_ns() + 30 * NS_PER_S), 0);
    assert_false(is_there(&root, group.dir));
    assert_int_equal(guard_cgroup_reopen(&root, &group), -ENOENT);
}

static void cgroup_is_removed_only_after_every_process_has_exited(void **state)
{
    char dir[GUARD_CGROUP_PATH];
    (void)state;
    need_group(0, false);
    strcpy(dir, group.dir);
    pid_t pid = start_in_group(tell, NULL);
    assert_int_equal(guard_cgroup_remove(&root, &group, 0), -EBUSY);
    assert_true(is_there(&root, dir));
    end_and_reap(pid);
    assert_int_equal(guard_cgroup_remove(&root, &group, clock_mono_ns() + 30 * NS_PER_S), 0);
    assert_false(is_there(&root, dir));
}

static void empty_leftover_cgroup_with_the_same_name_is_replaced(void **state)
{
    struct guard_cgroup forgotten;
    (void)state;
    need_group(0, false);
    forgotten = group;
    need_group(0, false);
    assert_string_equal(forgotten.dir, group.dir);
    /* The fds of the removed group return errors. The fds of the new group work. */
    pid_t pid = start_in_group(tell, NULL);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    end_and_reap(pid);
    forgotten.dir[0] = '\0';
    assert_int_equal(guard_cgroup_remove(&root, &forgotten, 0), 0);
}

static void cgroup_creation_fails_if_an_existing_cgroup_has_processes(void **state)
{
    struct guard_cgroup g = guard_cgroup_none;
    struct err err;
    (void)state;
    need_group(0, false);
    pid_t pid = start_in_group(tell, NULL);
    assert_int_equal(guard_cgroup_make(&root, own_name, 0, &g, &err), -EBUSY);
    assert_true(err.text[0] != '\0');
    assert_true(is_none(&g));
    end_and_reap(pid);
}

static void cgroups_that_a_job_created_are_removed_with_the_job_cgroup(void **state)
{
    char dir[GUARD_CGROUP_PATH], nested[GUARD_CGROUP_PATH + 16];
    (void)state;
    need_group(0, false);
    strcpy(dir, group.dir);
    snprintf(nested, sizeof(nested), "%s/x", dir);
    assert_int_equal(mkdirat(root.cgroup_fd, nested, 0755), 0);
    snprintf(nested, sizeof(nested), "%s/x/y", dir);
    assert_int_equal(mkdirat(root.cgroup_fd, nested, 0755), 0);
    assert_int_equal(guard_cgroup_remove(&root, &group, clock_mono_ns() + 30 * NS_PER_S), 0);
    assert_false(is_there(&root, dir));
}

/* Searches every cgroup in which ebb may create the job cgroup. Returns true if no folder named
 * own_name is found. */
static bool nothing_left(void)
{
    struct guard_place p;
    char path[LIMIT_PATH_MAX + 128];
    for (int v2 = 0; v2 < 2; v2++)
        for (int r = guard_place_own(&root, v2, &p); r == 0; r = guard_place_up(&root, &p)) {
            snprintf(path, sizeof(path), "%s/%s", p.group.dir, own_name);
            if (is_there(&root, path))
                return false;
        }
    return true;
}

static int is_denied(void *user)
{
    struct guard_cgroup g = guard_cgroup_none;
    struct err err;
    (void)user;
    if (guard_cgroup_make(&root, own_name, MIB, &g, &err) == 0)
        return guard_cgroup_remove(&root, &g, 0) == 0 ? 1 : 2;
    if (strncmp(err.text, "cgroup: ", 8) != 0)
        return 3;
    return is_none(&g) && nothing_left() ? 0 : 4;
}

static void cgroup_creation_without_permission_leaves_no_folder(void **state)
{
    (void)state;
    int r = as_nobody(is_denied, NULL);
    assert_true(nothing_left());
    if (r == 1 && geteuid() != 0) {
        print_message("skipped: this user may make groups\n");
        skip();
    }
    assert_int_equal(r, 0);
}

static void cgroup_name_contains_pid_and_start_time(void **state)
{
    struct process_id id;
    struct proc_stat stat;
    char text[1024];
    (void)state;
    assert_int_equal(guard_cgroup_name_parse(own_name, &id), 0);
    ssize_t len = io_read_small(root.proc_fd, "self/stat", text, sizeof(text));
    assert_int_equal(proc_stat_parse(text, (size_t)len, &stat), 0);
    assert_int_equal(id.start_ticks, stat.start_ticks);
    if (!proc_root_is_foreign(&root))
        assert_int_equal(id.pid, getpid());
}

/* Stores in RET the path of the job cgroup that an ebb with this pid and start time would create
 * next to the group under test. */
static void beside(int32_t pid, uint64_t start_ticks, char ret[GUARD_CGROUP_PATH + 64])
{
    const char *dir = group.dir;
    snprintf(ret, GUARD_CGROUP_PATH + 64, "%.*s/ebb-%d-%llu", (int)(strrchr(dir, '/') - dir), dir,
             pid, (unsigned long long)start_ticks);
}

static uint64_t start_of(pid_t pid)
{
    char path[32], text[1024];
    struct proc_stat stat = {0};
    snprintf(path, sizeof(path), "%d/stat", (int)pid);
    ssize_t len = io_read_small(root.proc_fd, path, text, sizeof(text));
    assert_true(len > 0);
    assert_int_equal(proc_stat_parse(text, (size_t)len, &stat), 0);
    return stat.start_ticks;
}

/* An ebb that runs on the same machine may remove an empty group of a dead process at any time, so
 * the test repeats the creation. */
enum { TRIES = 1000 };

/* Creates the folder DIR, moves PID into the new group, and returns the fd of cgroup.procs in
 * DIR. */
static int make_busy(const char *dir, pid_t pid)
{
    char procs[GUARD_CGROUP_PATH + 80];
    snprintf(procs, sizeof(procs), "%s/cgroup.procs", dir);
    for (int i = 0; i < TRIES; i++) {
        (void)mkdirat(root.cgroup_fd, dir, 0755);
        int fd = openat(root.cgroup_fd, procs, O_WRONLY | O_CLOEXEC);
        if (fd >= 0 && dprintf(fd, "%d", (int)pid) > 0)
            return fd;
        close(fd);
    }
    return -1;
}

/* Creates DIR and calls guard_cgroup_tidy, and repeats both until a call of guard_cgroup_tidy has
 * removed DIR. Returns false if no call did. */
static bool tidy_takes(const char *dir)
{
    char nested[GUARD_CGROUP_PATH + 80];
    snprintf(nested, sizeof(nested), "%s/x", dir);
    for (int i = 0; i < TRIES; i++) {
        (void)mkdirat(root.cgroup_fd, dir, 0755);
        (void)mkdirat(root.cgroup_fd, nested, 0755);
        if (guard_cgroup_tidy(&root, &group) >= 1 && !is_there(&root, dir))
            return true;
    }
    return false;
}

static void cgroup_tidy_removes_only_empty_groups_of_dead_processes(void **state)
{
    enum { LIVE, REUSED, BUSY, COUNT };
    struct guard_cgroup other = guard_cgroup_none;
    char dir[COUNT][GUARD_CGROUP_PATH + 64];
    (void)state;
    need_group(0, false);
    if (proc_root_is_foreign(&root)) {
        print_message("skipped: /proc is of another pid namespace\n");
        skip();
    }
    uint64_t start = start_of(bystander);
    int own_fd = group.join_fd;
    beside((int32_t)bystander, start, dir[LIVE]);
    beside((int32_t)bystander, start + 1, dir[REUSED]);
    beside((int32_t)bystander, start + 2, dir[BUSY]);
    assert_int_equal(mkdirat(root.cgroup_fd, dir[LIVE], 0755), 0);
    int busy_fd = make_busy(dir[BUSY], bystander);
    assert_true(busy_fd >= 0);

    assert_true(tidy_takes(dir[REUSED]));
    assert_true(is_there(&root, dir[LIVE]));
    assert_true(is_there(&root, dir[BUSY]));
    assert_true(is_there(&root, group.dir));

    assert_true(dprintf(own_fd, "%d", (int)bystander) > 0);
    close(busy_fd);
    for (int i = 0; i < COUNT; i++) {
        int length = snprintf(other.dir, sizeof(other.dir), "%s", dir[i]);
        assert_in_range(length, 1, sizeof(other.dir) - 1);
        assert_int_equal(guard_cgroup_remove(&root, &other, clock_mono_ns() + 30 * NS_PER_S), 0);
    }
    end_and_reap(bystander);
    /* The bystander is outside the group, and tear_down checks that it survived. */
    bystander = fork_tied();
    if (bystander == 0)
        stay();
}

#define HERE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cgroup_v1_parent_search_ends_at_the_root),
        cmocka_unit_test(cgroup_warm_up_rejoins_only_the_current_v1_cgroup),
        cmocka_unit_test(job_cgroup_is_never_placed_above_an_existing_memory_limit),
        cmocka_unit_test(cgroup_v2_parent_without_memory_controller_is_rejected),
        cmocka_unit_test(memory_controller_is_not_enabled_in_a_cgroup_namespace_root),
        cmocka_unit_test(memory_controller_is_enabled_in_a_delegated_parent_cgroup),
        cmocka_unit_test(ebb_alone_in_a_delegated_scope_moves_into_a_child_cgroup),
        cmocka_unit_test(ebb_does_not_move_out_of_a_shared_scope_or_a_service),
        cmocka_unit_test(parent_cgroup_with_unwritable_procs_file_is_rejected),
        cmocka_unit_test(incomplete_cgroup_is_removed_after_creation_fails),
        cmocka_unit_test(cgroup_creation_reports_an_error_if_no_hierarchy_exists),
        cmocka_unit_test(cgroup_v2_limit_disables_swap),
        cmocka_unit_test(child_is_forked_outside_the_job_cgroup_if_clone3_fails),
        cmocka_unit_test(cgroup_v1_limit_covers_memory_and_swap),
        cmocka_unit_test(cgroup_removal_includes_nested_but_not_sibling_groups),
        cmocka_unit_test(folder_without_an_ebb_cgroup_name_is_never_removed),
        cmocka_unit_test(cgroup_name_parser_accepts_only_names_that_ebb_generates),
        HERE(process_forked_into_a_cgroup_is_listed_as_a_member),
        HERE(touched_memory_is_charged_to_the_cgroup_of_the_process),
        HERE(oom_kill_in_the_job_cgroup_spares_processes_outside_it),
        HERE(cgroup_limit_can_be_raised_and_lowered),
        HERE(cgroup_kill_ends_orphans_and_processes_in_other_sessions),
        HERE(cgroup_reopened_by_path_can_be_killed_and_removed),
        HERE(cgroup_is_removed_only_after_every_process_has_exited),
        HERE(empty_leftover_cgroup_with_the_same_name_is_replaced),
        HERE(cgroup_creation_fails_if_an_existing_cgroup_has_processes),
        HERE(cgroups_that_a_job_created_are_removed_with_the_job_cgroup),
        HERE(cgroup_creation_without_permission_leaves_no_folder),
        HERE(cgroup_name_contains_pid_and_start_time),
        HERE(cgroup_tidy_removes_only_empty_groups_of_dead_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
