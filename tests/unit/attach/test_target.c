/* Tests the error messages for processes whose memory the kernel refuses to open. A folder replaces
 * /proc. */
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

#include "attach/target.h"
#include "base/err.h"
#include "base/io.h"

enum { NOBODY = 65534 };

struct fake_proc {
    char path[64];
    struct proc_root root;
};

static void put_file(const struct fake_proc *f, const char *name, const char *text)
{
    int fd = openat(f->root.proc_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

static void put_folder(const struct fake_proc *f, const char *name)
{
    assert_int_equal(mkdirat(f->root.proc_fd, name, 0755), 0);
}

/* Creates process 77 of the user UID. The file "mem" of the process is a symbolic link to itself,
 * so even root cannot open it. */
static int make_proc(void **state, unsigned uid)
{
    static const char *const folders[] = {"77",  "77/ns",      "self",           "self/ns",
                                          "sys", "sys/kernel", "sys/kernel/yama"};
    struct fake_proc *f = calloc(1, sizeof *f);
    char status[128];
    assert_non_null(f);
    snprintf(f->path, sizeof f->path, "/tmp/ebb-test-target.XXXXXX");
    assert_non_null(mkdtemp(f->path));
    assert_int_equal(chmod(f->path, 0755), 0);
    assert_int_equal(proc_root_open(f->path, NULL, &f->root, NULL), 0);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        put_folder(f, folders[i]);
    assert_int_equal(symlinkat("mem", f->root.proc_fd, "77/mem"), 0);
    put_file(f, "77/stat",
             "77 (python3) S 1 77 77 0 -1 4194304 100 0 0 0 10 10 0 0 20 0 1 0 5000 10000000 500 "
             "18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n");
    snprintf(status, sizeof status, "Name:\tpython3\nTgid:\t77\nUid:\t%u\t%u\t%u\t%u\n", uid, uid,
             uid, uid);
    put_file(f, "77/status", status);
    unsetenv("KUBERNETES_SERVICE_HOST");
    *state = f;
    return 0;
}

static int set_up(void **state)
{
    return make_proc(state, (unsigned)geteuid());
}

static int tear_down(void **state)
{
    struct fake_proc *f = *state;
    char command[128];
    proc_root_close(&f->root);
    snprintf(command, sizeof command, "rm -rf '%s'", f->path);
    unsetenv("KUBERNETES_SERVICE_HOST");
    int r = system(command);
    free(f);
    return r;
}

static void assert_refused(const struct fake_proc *f, enum attach_access access, const char *text)
{
    struct attach_target t;
    struct err err = {""};
    assert_true(attach_target_open(&f->root, 77, access, &t, &err) < 0);
    assert_string_equal(err.text, text);
}

static void attach_error_lists_remedies_if_ptrace_scope_forbids_attach(void **state)
{
    const struct fake_proc *f = *state;
    put_file(f, "sys/kernel/yama/ptrace_scope", "1\n");
    assert_refused(
        f, ATTACH_WRITE,
        "only root can attach to process 77 (python3), because kernel.yama.ptrace_scope is "
        "1; run ebb with sudo, or run sudo sysctl kernel.yama.ptrace_scope=0, or start "
        "the job with EBB_ATTACH=1");
    put_file(f, "sys/kernel/yama/ptrace_scope", "2\n");
    assert_refused(
        f, ATTACH_READ,
        "only root can attach to process 77 (python3), because kernel.yama.ptrace_scope is "
        "2; run ebb with sudo, or run sudo sysctl kernel.yama.ptrace_scope=0");
    put_file(f, "sys/kernel/yama/ptrace_scope", "3\n");
    assert_refused(
        f, ATTACH_WRITE,
        "cannot attach to any process: kernel.yama.ptrace_scope is 3 until the machine is "
        "rebooted with another setting; start the job with ebb run or with EBB_ATTACH=1");
}

static void attach_error_lists_remedies_if_job_is_in_a_container(void **state)
{
    static const char sentence[] =
        "access to process 77 (python3) is refused in this container; add the capability "
        "SYS_PTRACE (docker run --cap-add=SYS_PTRACE, kubectl debug --profile=general), or start "
        "the job with EBB_ATTACH=1";
    const struct fake_proc *f = *state;
    put_file(f, "sys/kernel/yama/ptrace_scope", "0\n");
    setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
    assert_refused(f, ATTACH_WRITE, sentence);
    unsetenv("KUBERNETES_SERVICE_HOST");
    put_file(f, "self/ns/user", "");
    put_file(f, "77/ns/user", ""); /* A different inode means a different user namespace. */
    assert_refused(f, ATTACH_WRITE, sentence);
}

static void attach_error_contains_errno_text_if_cause_is_unknown(void **state)
{
    const struct fake_proc *f = *state;
    if (access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0) {
        print_message("this is a container\n");
        skip();
    }
    assert_refused(f, ATTACH_WRITE,
                   "access to process 77 (python3) is refused: Too many levels of symbolic links; "
                   "run ebb with sudo, or start the job with EBB_ATTACH=1");
}

static int set_up_other_user(void **state)
{
    return make_proc(state, NOBODY - 1);
}

static void attach_error_names_the_user_who_owns_the_process(void **state)
{
    const struct fake_proc *f = *state;
    struct attach_target t;
    struct err err = {""};
    int status;
    put_file(f, "sys/kernel/yama/ptrace_scope", "1\n");
    pid_t child = fork();
    if (child == 0) { /* root may attach to all processes */
        if (geteuid() == 0 && setuid(NOBODY) < 0)
            _exit(2);
        int r = attach_target_open(&f->root, 77, ATTACH_WRITE, &t, &err);
        _exit(r < 0 && strcmp(err.text, "process 77 (python3) belongs to user 65533; run ebb as "
                                        "that user, or with sudo") == 0
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void attach_is_refused_if_process_is_in_another_pid_namespace(void **state)
{
    const struct fake_proc *f = *state;
    assert_int_equal(unlinkat(f->root.proc_fd, "77/mem", 0), 0);
    /* The file is not empty, because end of file would mean that the process has exited. */
    put_file(f, "77/mem", "x");
    put_file(f, "self/ns/pid", "");
    put_file(f, "77/ns/pid", "");
    assert_refused(f, ATTACH_WRITE,
                   "process 77 (python3) is in another pid namespace; run ebb inside that "
                   "container");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(attach_error_lists_remedies_if_ptrace_scope_forbids_attach,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(attach_error_lists_remedies_if_job_is_in_a_container,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(attach_error_contains_errno_text_if_cause_is_unknown,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(attach_error_names_the_user_who_owns_the_process,
                                        set_up_other_user, tear_down),
        cmocka_unit_test_setup_teardown(attach_is_refused_if_process_is_in_another_pid_namespace,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
