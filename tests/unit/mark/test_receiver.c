/* Tests the receiver of marks with real sockets and processes, and the requests it sends to
 * them. */
#include "mark/receiver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/loop.h"

struct fixture {
    struct loop *loop;
    struct mark_receiver *receiver;
    char folder[32]; /* Folder for the sockets on which peers receive requests. */
    unsigned seen;
    struct mark last;
    char last_text[MARK_TEXT_MAX];
};

static void on_mark(void *user, const struct mark *m)
{
    struct fixture *f = user;

    f->seen++;
    f->last = *m;
    memcpy(f->last_text, m->text, m->len);
    f->last.text = f->last_text;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct err err = {0};

    snprintf(f->folder, sizeof(f->folder), "/tmp/ebb-test-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    assert_int_equal(loop_new(&f->loop), 0);
    assert_int_equal(mark_receiver_new(f->loop, on_mark, f, &f->receiver, &err), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    mark_receiver_free(f->receiver);
    loop_free(f->loop);
    assert_int_equal(rmdir(f->folder), 0);
    free(f);
    return 0;
}

static int send_text(const struct fixture *f, const char *s)
{
    return mark_send(mark_receiver_path(f->receiver), s, strlen(s), 0);
}

static struct mark_receiver_stats stats_of(const struct fixture *f)
{
    struct mark_receiver_stats s;

    mark_receiver_stats(f->receiver, &s);
    return s;
}

/* Opens a socket at FOLDER/NAME, on which a job would listen. */
static int listen_at(const struct fixture *f, const char *name, char path[108])
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", f->folder, name);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    memcpy(path, a.sun_path, sizeof(a.sun_path));
    return fd;
}

/* Sends S from another process; the receiver reads it before that process is reaped. */
static pid_t send_from_child(struct fixture *f, const char *s)
{
    unsigned seen = f->seen;
    pid_t pid = fork();

    if (pid == 0)
        _exit(send_text(f, s) == 0 ? 0 : 1);
    while (f->seen == seen)
        assert_true(loop_once(f->loop, 10000) >= 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

static void received_mark_has_a_time_and_the_pid_of_its_sender(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(send_text(f, "KIND=step\nSTEP=7\n"), 0);
    loop_once(f->loop, 10000);
    assert_int_equal(f->seen, 1);
    assert_int_equal(f->last.kind, MARK_STEP);
    assert_int_equal(f->last.step, 7);
    assert_int_equal(f->last.pid, getpid());
    assert_true(f->last.t_ns > 0);
    assert_int_equal(stats_of(f).received, 1);
}

static void mark_for_several_steps_arrives_as_several_marks(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(send_text(f, "KIND=step\nSTEP=40\nSTEPS=30\nSECONDS=0.05\n"), 0);
    loop_once(f->loop, 10000);
    assert_int_equal(f->seen, 30);
    assert_int_equal(f->last.step, 40);
    assert_int_equal(f->last.pid, getpid());
    assert_memory_equal(f->last_text, "KIND=step\nSTEP=40", f->last.len);
    assert_int_equal(stats_of(f).received, 1);
}

static void sender_pid_of_a_mark_comes_from_the_kernel_not_from_the_text(void **state)
{
    struct fixture *f = *state;
    pid_t pid = send_from_child(f, "KIND=step\nPID=1\n");

    assert_int_equal(f->last.pid, pid);
}

static void invalid_mark_datagrams_are_counted_and_dropped(void **state)
{
    struct fixture *f = *state;
    char big[MARK_TEXT_MAX + 1];

    memset(big, 'x', sizeof(big));
    memcpy(big, "KIND=step\nA=", 12);
    assert_int_equal(send_text(f, "hello there"), 0);
    assert_int_equal(send_text(f, ""), 0);
    assert_int_equal(send_text(f, "KIND=step\nSTEP=abc"), 0);
    assert_int_equal(mark_send(mark_receiver_path(f->receiver), big, sizeof(big), 0), 0);
    assert_int_equal(mark_send(mark_receiver_path(f->receiver), big, sizeof(big) - 1, 0), 0);
    while (stats_of(f).bad + stats_of(f).received < 5)
        loop_once(f->loop, 10000);
    assert_int_equal(stats_of(f).bad, 4);
    assert_int_equal(f->seen, 1);
    assert_int_equal(f->last.len, MARK_TEXT_MAX);
}

static void burst_of_marks_arrives_complete_if_the_sender_may_wait(void **state)
{
    enum { COUNT = 5000 };
    struct fixture *f = *state;
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        for (int i = 0; i < COUNT; i++) {
            char s[64];
            int n = snprintf(s, sizeof(s), "KIND=step\nSTEP=%d\n", i);

            if (mark_send(mark_receiver_path(f->receiver), s, (size_t)n, 60000) < 0)
                _exit(1);
        }
        _exit(0);
    }
    while (f->seen < COUNT) {
        loop_once(f->loop, 10000);
        assert_true(f->seen == 0 || f->last.step == (int64_t)f->seen - 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(stats_of(f).bad, 0);
}

static unsigned open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void descriptors_attached_to_a_mark_are_closed(void **state)
{
    struct fixture *f = *state;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    union {
        char bytes[CMSG_SPACE(3 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    char text[] = "KIND=step\nSTEP=1\n";
    struct iovec iov = {text, sizeof(text) - 1};
    struct msghdr msg = {.msg_name = &a,
                         .msg_namelen = sizeof(a),
                         .msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    int fds[3] = {0, 1, 2}, fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    unsigned before = open_fds();

    snprintf(a.sun_path, sizeof(a.sun_path), "%s", mark_receiver_path(f->receiver));
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(c), fds, sizeof(fds));
    assert_int_equal(sendmsg(fd, &msg, 0), (ssize_t)iov.iov_len);
    loop_once(f->loop, 10000);
    assert_int_equal(f->seen, 1);
    assert_int_equal(open_fds(), before);
    close(fd);
}

static void socket_folder_is_private_and_removed_at_the_end(void **state)
{
    struct fixture *f = *state;
    struct mark_receiver *r;
    struct err err = {0};
    char folder[108], path[108], link[128];
    struct stat st;

    umask(0777);
    assert_int_equal(mark_receiver_new(f->loop, on_mark, f, &r, &err), 0);
    umask(022);
    snprintf(folder, sizeof(folder), "%s", mark_receiver_folder(r));
    snprintf(path, sizeof(path), "%s", mark_receiver_path(r));
    assert_int_equal(strncmp(path, folder, strlen(folder)), 0);
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    snprintf(link, sizeof(link), "%s/link", folder);
    assert_int_equal(symlink(f->folder, link), 0);
    mark_receiver_free(r);
    assert_int_equal(stat(folder, &st), -1);
    assert_int_equal(stat(f->folder, &st), 0);
    mark_receiver_free(NULL);
}

static bool exists(const char *folder, const char *name)
{
    char path[256];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return lstat(path, &st) == 0;
}

static void put_file(const char *folder, const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void socket_folder_is_removed_even_if_the_job_added_files(void **state)
{
    struct fixture *f = *state;
    char folder[108], path[160];
    struct err err = {0};
    struct mark_receiver *r;

    put_file(f->folder, "other");
    assert_int_equal(mark_receiver_new(f->loop, on_mark, f, &r, &err), 0);
    snprintf(folder, sizeof(folder), "%s", mark_receiver_folder(r));
    put_file(folder, "file");
    snprintf(path, sizeof(path), "%s/sub", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    put_file(folder, "sub/file");
    snprintf(path, sizeof(path), "%s/sub/link", folder);
    assert_int_equal(symlink(f->folder, path), 0);
    mark_receiver_free(r);
    assert_false(exists(folder, ""));
    assert_true(exists(f->folder, "other")); /* Links in the socket folder are not followed. */
    snprintf(path, sizeof(path), "%s/other", f->folder);
    assert_int_equal(unlink(path), 0);
}

static void ordinary_files_in_a_folder_not_created_by_ebb_are_kept(void **state)
{
    struct fixture *f = *state;
    char path[160];

    put_file(f->folder, "file");
    mark_folder_remove(f->folder);
    assert_true(exists(f->folder, "file"));
    snprintf(path, sizeof(path), "%s/file", f->folder);
    assert_int_equal(unlink(path), 0);
}

/* Creates a receiver below FOLDER in a child process and kills the child, so that the receiver's
 * folder remains. Stores the path of this folder in RET. */
static void make_abandoned(struct fixture *f, const char *folder, char ret[108])
{
    int pair[2], status;
    struct err err = {0};
    struct mark_receiver *r;

    assert_int_equal(pipe(pair), 0);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("XDG_RUNTIME_DIR", folder, 1);
        if (mark_receiver_new(f->loop, on_mark, f, &r, &err) == 0)
            (void)!write(pair[1], mark_receiver_folder(r), 108);
        raise(SIGKILL);
    }
    close(pair[1]);
    assert_int_equal(read(pair[0], ret, 108), 108);
    close(pair[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(exists(ret, "marks"));
}

static void change_boot(const char *folder, const char *boot)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/boot", folder);
    assert_int_equal(unlink(path), 0);
    assert_true(!boot || symlink(boot, path) == 0);
}

static void abandoned_socket_folders_are_removed_by_a_later_receiver(void **state)
{
    struct fixture *f = *state;
    char dead[108], elsewhere[108], old[108], alive[108];
    char *before = getenv("XDG_RUNTIME_DIR") ? strdup(getenv("XDG_RUNTIME_DIR")) : NULL;
    struct err err = {0};
    struct mark_receiver *living, *next;

    make_abandoned(f, f->folder, dead);
    make_abandoned(f, f->folder, elsewhere);
    /* The boot id of this folder is that of another machine. */
    change_boot(elsewhere, "00000000-0000-0000-0000-000000000000");
    make_abandoned(f, f->folder, old);
    /* Without a boot id, the folder looks as if an earlier version of ebb had created it. */
    change_boot(old, NULL);
    setenv("XDG_RUNTIME_DIR", f->folder, 1);
    assert_int_equal(mark_receiver_new(f->loop, on_mark, f, &living, &err), 0);
    snprintf(alive, sizeof(alive), "%s", mark_receiver_folder(living));
    assert_int_equal(mark_receiver_new(f->loop, on_mark, f, &next, &err), 0);
    mark_receiver_free(next);
    assert_false(exists(dead, ""));
    assert_true(exists(elsewhere, "marks"));
    assert_true(exists(old, "marks"));
    assert_true(exists(alive, "marks"));
    mark_receiver_free(living);
    mark_folder_remove(elsewhere);
    mark_folder_remove(old);
    if (before)
        setenv("XDG_RUNTIME_DIR", before, 1);
    else
        unsetenv("XDG_RUNTIME_DIR");
    free(before);
}

static void runtime_folder_that_cannot_be_written_is_skipped(void **state)
{
    static const char *const bad[] = {"", "relative/folder", "/no/such/folder", "/proc"};
    struct fixture *f = *state;
    struct mark_receiver *r;
    struct err err = {0};
    char deep[512];

    for (size_t i = 0; i <= sizeof(bad) / sizeof(bad[0]); i++) {
        memset(deep, 'd', sizeof(deep) - 1);
        deep[0] = '/';
        deep[sizeof(deep) - 1] = '\0';
        setenv("XDG_RUNTIME_DIR", i < sizeof(bad) / sizeof(bad[0]) ? bad[i] : deep, 1);
        setenv("TMPDIR", f->folder, 1);
        assert_int_equal(mark_receiver_new(f->loop, on_mark, f, &r, &err), 0);
        assert_int_equal(strncmp(mark_receiver_path(r), f->folder, strlen(f->folder)), 0);
        mark_receiver_free(r);
        setenv("TMPDIR", deep, 1);
        assert_int_equal(mark_receiver_new(f->loop, on_mark, f, &r, &err), 0);
        assert_int_equal(strncmp(mark_receiver_path(r), "/tmp/ebb-", 9), 0);
        mark_receiver_free(r);
    }
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("TMPDIR");
}

/* The test runs as nobody in a separate process, because root may access everything. */
static void marks_of_another_user_are_refused(void **state)
{
    struct fixture *f = *state;
    const char *path = mark_receiver_path(f->receiver);
    int status = -1;
    pid_t pid;

    /* If the test is not run as root, it cannot act as a second user, so only the mode of the
     * folder is checked. */
    if (geteuid() != 0) {
        struct stat st;

        assert_int_equal(stat(mark_receiver_folder(f->receiver), &st), 0);
        assert_int_equal(st.st_mode & 0077, 0);
        return;
    }
    pid = fork();
    if (pid == 0) {
        if (setgid(65534) < 0 || setuid(65534) < 0)
            _exit(9);
        _exit(mark_send(path, "KIND=step", 9, 0) == -EACCES ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 9) {
        print_message("skipped: cannot become another user here\n");
        skip();
    }
    assert_int_equal(status, 0);

    /* Starts a receiver as a user other than root, and opens the receiver's folder to all users. */
    pid = fork();
    if (pid == 0) {
        struct mark_receiver *r;
        struct loop *loop;
        struct err err = {0};
        pid_t stranger;

        if (setgid(65534) < 0 || seteuid(65533) < 0 || loop_new(&loop) < 0 ||
            mark_receiver_new(loop, on_mark, f, &r, &err) < 0 ||
            chmod(mark_receiver_folder(r), 0777) < 0 || chmod(mark_receiver_path(r), 0777) < 0)
            _exit(9);
        f->receiver = r;
        stranger = fork();
        if (stranger == 0) {
            if (seteuid(0) < 0 || setuid(65532) < 0)
                _exit(9);
            _exit(send_text(f, "KIND=step") == 0 ? 0 : 1);
        }
        while (stats_of(f).bad + stats_of(f).received == 0)
            loop_once(loop, 10000);
        status = stats_of(f).bad == 1 && f->seen == 0 ? 0 : 2;
        waitpid(stranger, NULL, 0);
        mark_receiver_free(r);
        loop_free(loop);
        _exit(status);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void say_hello(struct fixture *f, const char *reply, const char *more)
{
    unsigned seen = f->seen;
    char s[512];

    snprintf(s, sizeof(s), "KIND=hello\nREPLY=%s\n%s", reply, more);
    assert_int_equal(send_text(f, s), 0);
    while (f->seen == seen)
        loop_once(f->loop, 10000);
}

static void rank_that_sent_hello_receives_checkpoint_requests(void **state)
{
    struct fixture *f = *state;
    const struct mark_peer *peers;
    char path[108], got[64] = "";
    int fd = listen_at(f, "rank", path);

    assert_int_equal(mark_receiver_request(f->receiver, "CHECKPOINT", 1), 0);
    say_hello(f, path, "RANK=2\nROLE=rank\n");
    assert_int_equal(mark_receiver_peers(f->receiver, &peers), 1);
    assert_int_equal(peers[0].pid, getpid());
    assert_int_equal(peers[0].rank, 2);
    assert_false(peers[0].is_worker);
    assert_string_equal(peers[0].reply, path);
    assert_int_equal(mark_receiver_request(f->receiver, "CHECKPOINT", 18446744073709551615u), 1);
    assert_true(recv(fd, got, sizeof(got) - 1, 0) > 0);
    assert_string_equal(got, "CHECKPOINT=18446744073709551615\n");
    close(fd);
    unlink(path);
}

static void answer_to_a_checkpoint_request_arrives_as_a_mark(void **state)
{
    struct fixture *f = *state;
    char path[108];
    int fd = listen_at(f, "rank", path);
    size_t len;

    say_hello(f, path, "");
    assert_int_equal(mark_receiver_request(f->receiver, "CHECKPOINT", 4), 1);
    assert_int_equal(send_text(f, "KIND=ack\nID=4\nSTATUS=done\nPATH=/ck/pt-120\n"), 0);
    loop_once(f->loop, 10000);
    assert_int_equal(f->last.kind, MARK_ACK);
    assert_memory_equal(mark_get(&f->last, "PATH", &len), "/ck/pt-120", 10);
    close(fd);
    unlink(path);
}

static void loader_worker_receives_no_checkpoint_request(void **state)
{
    struct fixture *f = *state;
    const struct mark_peer *peers;
    char path[108], got[8];
    int fd = listen_at(f, "worker", path);

    say_hello(f, path, "ROLE=worker\n");
    assert_int_equal(mark_receiver_peers(f->receiver, &peers), 1);
    assert_true(peers[0].is_worker);
    assert_int_equal(peers[0].rank, -1);
    assert_int_equal(mark_receiver_request(f->receiver, "STOP", 1), 0);
    assert_int_equal(mark_receiver_peers(f->receiver, &peers), 1);
    assert_int_equal(recv(fd, got, sizeof(got), 0), -1);
    close(fd);
    unlink(path);
}

static void second_hello_of_a_process_replaces_the_first(void **state)
{
    struct fixture *f = *state;
    const struct mark_peer *peers;

    say_hello(f, "/tmp/first", "RANK=0\n");
    say_hello(f, "/tmp/second", "RANK=1\n");
    assert_int_equal(mark_receiver_peers(f->receiver, &peers), 1);
    assert_string_equal(peers[0].reply, "/tmp/second");
    assert_int_equal(peers[0].rank, 1);
    send_from_child(f, "KIND=hello\nREPLY=/tmp/third\n");
    assert_int_equal(mark_receiver_peers(f->receiver, &peers), 2);
    assert_string_equal(peers[1].reply, "/tmp/third");
}

static void hello_with_an_unusable_reply_address_adds_no_rank(void **state)
{
    struct fixture *f = *state;
    const struct mark_peer *peers;
    char deep[120];

    memset(deep, 'd', sizeof(deep));
    deep[0] = '/';
    deep[108] = '\0'; /* The reply path is one byte too long. */
    say_hello(f, deep, "");
    say_hello(f, "relative", "");
    say_hello(f, "", "");
    /* With its own path as reply address, the receiver would send requests to itself. */
    say_hello(f, mark_receiver_path(f->receiver), "");
    assert_int_equal(mark_receiver_peers(f->receiver, &peers), 0);
    assert_int_equal(f->seen, 4);
    deep[107] = '\0'; /* The reply path has the maximum length. */
    say_hello(f, deep, "");
    assert_int_equal(mark_receiver_peers(f->receiver, &peers), 1);
}

static void sending_a_request_removes_only_ranks_with_dead_sockets(void **state)
{
    struct fixture *f = *state;
    const struct mark_peer *peers;
    char busy[108], dead[108], file[108], s[256];
    int fd = listen_at(f, "busy", busy), gone = listen_at(f, "dead", dead), r = 0;
    struct stat st;

    snprintf(file, sizeof(file), "%s/file", f->folder);
    close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    /* Sending to "dead" fails with ECONNREFUSED. The other two addresses are a missing file and a
     * file that is not a socket. */
    close(gone);
    say_hello(f, busy, "");
    snprintf(s, sizeof(s), "KIND=hello\nREPLY=%s\n", dead);
    send_from_child(f, s);
    send_from_child(f, "KIND=hello\nREPLY=/no/such/socket\n");
    snprintf(s, sizeof(s), "KIND=hello\nREPLY=%s\n", file);
    send_from_child(f, s);
    assert_int_equal(mark_receiver_peers(f->receiver, &peers), 4);
    assert_int_equal(mark_receiver_request(f->receiver, "CENSUS", 1), 1);
    assert_int_equal(mark_receiver_peers(f->receiver, &peers), 1);
    for (int i = 0; i < 1000000 && (r = mark_receiver_request(f->receiver, "CENSUS", 2)) == 1; i++)
        ;
    assert_int_equal(r, 0);
    assert_int_equal(mark_receiver_peers(f->receiver, &peers), 1);
    /* A reply path is used only as an address, so the file is unchanged. */
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_size, 0);
    close(fd);
    unlink(busy);
    unlink(dead);
    unlink(file);
}

static void loop_iteration_reads_at_most_256_marks_of_a_flood(void **state)
{
    struct fixture *f = *state;
    unsigned turns = 0;
    pid_t pid = fork();

    if (pid == 0)
        for (;;)
            if (mark_send(mark_receiver_path(f->receiver), "KIND=step", 9, 60000) < 0)
                _exit(0);
    while (turns++ < 20) {
        unsigned seen = f->seen;

        assert_true(loop_once(f->loop, 10000) >= 0);
        assert_true(f->seen - seen <= 256);
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(received_mark_has_a_time_and_the_pid_of_its_sender),
        TEST(mark_for_several_steps_arrives_as_several_marks),
        TEST(sender_pid_of_a_mark_comes_from_the_kernel_not_from_the_text),
        TEST(invalid_mark_datagrams_are_counted_and_dropped),
        TEST(burst_of_marks_arrives_complete_if_the_sender_may_wait),
        TEST(descriptors_attached_to_a_mark_are_closed),
        TEST(socket_folder_is_private_and_removed_at_the_end),
        TEST(socket_folder_is_removed_even_if_the_job_added_files),
        TEST(ordinary_files_in_a_folder_not_created_by_ebb_are_kept),
        TEST(abandoned_socket_folders_are_removed_by_a_later_receiver),
        TEST(runtime_folder_that_cannot_be_written_is_skipped),
        TEST(marks_of_another_user_are_refused),
        TEST(rank_that_sent_hello_receives_checkpoint_requests),
        TEST(answer_to_a_checkpoint_request_arrives_as_a_mark),
        TEST(loader_worker_receives_no_checkpoint_request),
        TEST(second_hello_of_a_process_replaces_the_first),
        TEST(hello_with_an_unusable_reply_address_adds_no_rank),
        TEST(sending_a_request_removes_only_ranks_with_dead_sockets),
        TEST(loop_iteration_reads_at_most_256_marks_of_a_flood),
    };

    return cmocka_run_group_tests_name("receiver", tests, NULL, NULL);
}
