/* Tests checkpoint requests with real sockets, processes, signals, commands and files. */
#include "guard/checkpoint.h"

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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "proc/procfs.h"

enum { RANKS = 4, NOW = 1000, LATER = 2000 };

struct fixture {
    struct loop *loop;
    struct mark_receiver *marks;
    struct proc_root root;
    struct proc_tree *tree;
    struct checkpoint checkpoint;
    char folder[32], done[64], why[CHECKPOINT_TEXT_MAX];
    unsigned seen;
    bool has_changed;
    int rank_fd[RANKS];
    int32_t rank_pid[RANKS];
    size_t ranks;
    /* [0] is the number of children that are ready, and [1] is the number of signals that all
     * children have received. */
    volatile int *shared;
};

static void on_mark(void *user, const struct mark *m)
{
    struct fixture *f = user;

    f->has_changed = checkpoint_mark(&f->checkpoint, m);
    f->seen++;
}

static void on_event(void *user, const struct proc_event *event)
{
    (void)user;
    (void)event;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    snprintf(f->folder, sizeof f->folder, "/tmp/ebb-test-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->done, sizeof f->done, "%s/done", f->folder);
    assert_int_equal(loop_new(&f->loop), 0);
    assert_int_equal(mark_receiver_new(f->loop, on_mark, f, &f->marks, NULL), 0);
    assert_int_equal(proc_root_open("/proc", NULL, &f->root, NULL), 0);
    assert_int_equal(proc_tree_new(&f->root, on_event, f, &f->tree), 0);
    f->shared =
        mmap(NULL, 2 * sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(f->shared != MAP_FAILED);
    checkpoint_init(&f->checkpoint, &(struct checkpoint_options){0});
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    char path[108];

    for (size_t i = 0; i < f->ranks; i++) {
        snprintf(path, sizeof path, "%s/rank%zu", f->folder, i);
        close(f->rank_fd[i]);
        unlink(path);
    }
    proc_tree_free(f->tree);
    proc_root_close(&f->root);
    mark_receiver_free(f->marks);
    loop_free(f->loop);
    munmap((void *)(uintptr_t)f->shared, 2 * sizeof(int));
    unlink(f->done);
    assert_int_equal(rmdir(f->folder), 0);
    free(f);
    return 0;
}

/* ---- ranks on the socket ---- */

/* Sends TEXT from another process and receives it before that process is reaped. */
static int32_t say_from_child(struct fixture *f, const char *text)
{
    unsigned seen = f->seen;
    int status = -1;
    pid_t pid = fork();

    if (pid == 0)
        _exit(mark_send(mark_receiver_path(f->marks), text, strlen(text), 30000) ? 1 : 0);
    while (f->seen == seen)
        assert_true(loop_once(f->loop, 10000) >= 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return (int32_t)pid;
}

/* Adds a rank with its own socket. The child that reported the rank has exited already; the tests
 * themselves decide when the rank is treated as dead. */
static void add_rank(struct fixture *f, const char *role)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    char text[256];

    assert_true(f->ranks < RANKS);
    snprintf(a.sun_path, sizeof a.sun_path, "%s/rank%zu", f->folder, f->ranks);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    snprintf(text, sizeof text, "KIND=hello\nREPLY=%s\nROLE=%s\n", a.sun_path, role);
    f->rank_fd[f->ranks] = fd;
    f->rank_pid[f->ranks++] = say_from_child(f, text);
}

/* Returns the request that rank I received, or "". */
static const char *request_to(struct fixture *f, size_t i)
{
    static char text[64];
    ssize_t n = recv(f->rank_fd[i], text, sizeof text - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    return text;
}

static int now(struct fixture *f)
{
    return checkpoint_request(&f->checkpoint, NOW, f->marks, f->tree, f->why);
}

/* Passes a mark from process PID to the checkpoint, as the receiver does. */
static bool receive(struct fixture *f, int32_t pid, const char *text)
{
    struct mark m;

    assert_int_equal(mark_parse(text, strlen(text), &m), 0);
    m.pid = pid;
    m.t_ns = LATER;
    return checkpoint_mark(&f->checkpoint, &m);
}

static bool answer(struct fixture *f, int32_t pid, uint64_t id, const char *status)
{
    char text[128];

    snprintf(text, sizeof text, "KIND=ack\nID=%llu\nSTATUS=%s\n", (unsigned long long)id, status);
    return receive(f, pid, text);
}

static void checkpoint_without_a_request_method_fails_with_a_reason(void **state)
{
    struct fixture *f = *state;
    const char *expected = "no rank is connected to EBB_SOCKET, and neither --checkpoint-signal "
                           "nor --checkpoint-cmd is given";

    assert_false(checkpoint_is_possible(&f->checkpoint, f->marks, f->why));
    assert_string_equal(f->why, expected);
    assert_false(checkpoint_is_possible(&f->checkpoint, NULL, f->why));
    add_rank(f, "worker");
    assert_false(checkpoint_is_possible(&f->checkpoint, f->marks, f->why));
    assert_int_equal(now(f), 0);
    assert_string_equal(f->why, expected);
    assert_false(f->checkpoint.is_open);
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_FAILED);
    assert_string_equal(request_to(f, 0), "");
    add_rank(f, "rank");
    assert_true(checkpoint_is_possible(&f->checkpoint, f->marks, f->why));
    assert_string_equal(f->why, "");
}

static void checkpoint_is_done_when_all_ranks_report_done(void **state)
{
    struct fixture *f = *state;

    add_rank(f, "rank");
    add_rank(f, "worker");
    add_rank(f, "rank");
    assert_int_equal(now(f), 1);
    assert_string_equal(f->why, "");
    assert_int_equal(f->checkpoint.peers, 2);
    assert_string_equal(request_to(f, 0), "CHECKPOINT=1\n");
    assert_string_equal(request_to(f, 1), "");
    assert_string_equal(request_to(f, 2), "CHECKPOINT=1\n");
    assert_true(answer(f, f->rank_pid[0], 1, "started"));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_STARTED);
    assert_false(answer(f, f->rank_pid[2], 1, "started"));
    assert_false(receive(f, f->rank_pid[2], "KIND=ack\nID=1\nSTATUS=done\nPATH=/ck/120"));
    assert_true(f->checkpoint.is_open);
    assert_true(answer(f, f->rank_pid[0], 1, "done"));
    assert_false(f->checkpoint.is_open);
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_DONE);
    assert_string_equal(f->checkpoint.path, "/ck/120");
    assert_string_equal(f->checkpoint.by, "mark");
}

static void answer_of_a_helper_process_completes_a_checkpoint_request(void **state)
{
    struct fixture *f = *state;

    add_rank(f, "rank");
    assert_int_equal(now(f), 1);
    /* The answer comes from a helper process of the only rank. */
    say_from_child(f, "KIND=ack\nID=1\nSTATUS=started\n");
    assert_true(f->has_changed);
    say_from_child(f, "KIND=ack\nID=1\nSTATUS=done\n");
    assert_true(f->has_changed);
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_DONE);
}

static void acks_are_ignored_if_outdated_or_repeated_or_invalid(void **state)
{
    struct fixture *f = *state;
    int32_t *pid = f->rank_pid;

    add_rank(f, "rank");
    add_rank(f, "rank");
    assert_int_equal(now(f), 1);
    assert_int_equal(now(f), 1);
    assert_int_equal(f->checkpoint.id, 2);
    for (int i = 0; i < 2; i++)
        assert_false(answer(f, pid[i], 1, "done"));
    assert_false(answer(f, pid[0], 2, "finished"));
    assert_false(receive(f, pid[0], "KIND=ack\nID= 2\nSTATUS=done"));
    assert_false(receive(f, pid[0], "KIND=ack\nSTATUS=done"));
    assert_false(receive(f, pid[0], "KIND=ack\nID=2"));
    assert_false(receive(f, pid[0], "KIND=save"));
    /* This pid belongs to neither of the two ranks, so it is unknown which rank has answered. */
    assert_false(answer(f, 999999999, 2, "done"));
    assert_int_equal(f->checkpoint.ack, LADDER_NO_ACK);
    for (int i = 0; i < 3; i++)
        assert_false(answer(f, pid[0], 2, "done"));
    assert_false(answer(f, pid[0], 2, "failed")); /* Only the first answer of a rank is used. */
    assert_true(answer(f, pid[1], 2, "done"));
    assert_false(answer(f, pid[1], 2, "failed"));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_DONE);
}

static void checkpoint_fails_when_one_rank_reports_failure(void **state)
{
    struct fixture *f = *state;

    add_rank(f, "rank");
    add_rank(f, "rank");
    now(f);
    assert_false(answer(f, f->rank_pid[0], 1, "failed"));
    assert_true(f->checkpoint.is_open);
    assert_true(answer(f, f->rank_pid[1], 1, "done"));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_FAILED);
    assert_false(f->checkpoint.is_open);
    assert_string_equal(f->checkpoint.by, "");
}

static void checkpoint_request_does_not_wait_for_ranks_that_exited(void **state)
{
    struct fixture *f = *state;

    add_rank(f, "rank");
    add_rank(f, "rank");
    now(f);
    assert_false(answer(f, f->rank_pid[0], 1, "done"));
    assert_false(checkpoint_process_died(&f->checkpoint, 999999999));
    assert_true(checkpoint_process_died(&f->checkpoint, f->rank_pid[1]));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_DONE);
    now(f);
    assert_int_equal(f->checkpoint.ack, LADDER_NO_ACK);
    assert_false(checkpoint_process_died(&f->checkpoint, f->rank_pid[0]));
    /* An answer of a rank that is already dead is ignored. */
    assert_false(answer(f, f->rank_pid[0], 2, "done"));
    assert_true(checkpoint_process_died(&f->checkpoint, f->rank_pid[1]));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_FAILED);
}

static void acks_from_unknown_pids_are_assigned_to_different_ranks(void **state)
{
    struct fixture *f = *state;

    add_rank(f, "rank");
    add_rank(f, "rank");
    now(f);
    for (size_t i = 0; i < f->checkpoint.peers; i++)
        f->checkpoint.peer[i].pid = 0; /* A rank in another pid namespace has no known pid. */
    assert_false(checkpoint_process_died(&f->checkpoint, 0));
    assert_true(answer(f, 0, 1, "started"));
    assert_false(answer(f, 0, 1, "done"));
    assert_true(f->checkpoint.is_open);
    assert_false(answer(f, 0, 1, "started"));
    assert_false(answer(f, 0, 7, "done"));
    assert_true(answer(f, 0, 1, "done"));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_DONE);
}

static void checkpoint_path_beyond_the_maximum_length_is_dropped(void **state)
{
    struct fixture *f = *state;
    char text[CHECKPOINT_PATH_MAX + 64];
    int len = snprintf(text, sizeof text, "KIND=ack\nID=1\nSTATUS=done\nPATH=/");

    add_rank(f, "rank");
    now(f);
    memset(text + len, 'x', CHECKPOINT_PATH_MAX - 1);
    text[len + CHECKPOINT_PATH_MAX - 1] = '\0';
    assert_true(receive(f, f->rank_pid[0], text));
    assert_string_equal(f->checkpoint.path, "");
}

static void checkpoint_request_fails_if_the_rank_socket_is_gone(void **state)
{
    struct fixture *f = *state;
    char path[64];

    add_rank(f, "rank");
    snprintf(path, sizeof path, "%s/rank0", f->folder);
    unlink(path);
    assert_true(checkpoint_is_possible(&f->checkpoint, f->marks, f->why));
    assert_int_equal(now(f), 0);
    assert_string_equal(f->why, "no connected rank could be reached on EBB_SOCKET");
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_FAILED);
}

static void checkpoint_and_stop_requests_share_one_sequence_of_ids(void **state)
{
    struct fixture *f = *state;

    add_rank(f, "rank");
    now(f);
    assert_string_equal(request_to(f, 0), "CHECKPOINT=1\n");
    assert_int_equal(checkpoint_send_stop(&f->checkpoint, f->marks), 1);
    assert_string_equal(request_to(f, 0), "STOP=2\n");
    assert_false(answer(f, f->rank_pid[0], 2, "done"));
    assert_true(f->checkpoint.is_open);
    now(f);
    assert_string_equal(request_to(f, 0), "CHECKPOINT=3\n");
    assert_int_equal(checkpoint_send_stop(&f->checkpoint, NULL), 0);
}

/* ---- signals ---- */

/* Points to the shared counter of received signals. Used only in child processes. */
static volatile int *signals;

static void count_signal(int signo)
{
    (void)signo;
    __atomic_add_fetch(signals, 1, __ATOMIC_SEQ_CST);
}

static void wait_for(volatile int *what, int count)
{
    uint64_t until = clock_mono_ns() + 60 * NS_PER_S;

    while (__atomic_load_n(what, __ATOMIC_SEQ_CST) < count && clock_mono_ns() < until)
        usleep(1000);
    assert_int_equal(__atomic_load_n(what, __ATOMIC_SEQ_CST), count);
}

/* Starts a process that sleeps until it is killed or the test program exits. */
static pid_t start_process(struct fixture *f, bool has_handler)
{
    int before = f->shared[0];
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        signals = &f->shared[1];
        signal(SIGUSR1, has_handler ? count_signal : SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        __atomic_add_fetch(&f->shared[0], 1, __ATOMIC_SEQ_CST);
        for (;;)
            pause();
    }
    wait_for(&f->shared[0], before + 1);
    assert_int_equal(proc_tree_add(f->tree, (int32_t)pid, NOW, NULL), 0);
    return pid;
}

static void set_role(struct fixture *f, pid_t pid, enum process_role role)
{
    proc_tree_find(f->tree, (int32_t)pid)->info.role = role;
}

static void set_parent(struct fixture *f, pid_t pid, pid_t parent)
{
    proc_tree_find(f->tree, (int32_t)pid)->info.ppid = (int32_t)parent;
}

/* Kills PID, which must still be alive. */
static void end_process(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void use(struct fixture *f, int signo, const char *command, const char *done)
{
    checkpoint_init(&f->checkpoint,
                    &(struct checkpoint_options){.signo = signo, .command = command, .done = done});
}

/* Checks that the last request signalled exactly these processes, in this order. */
static void assert_signalled(struct fixture *f, size_t count, const pid_t *pids)
{
    assert_int_equal(f->checkpoint.signalled_count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(f->checkpoint.signalled[i], pids[i]);
}

static void process_without_a_signal_handler_gets_no_checkpoint_signal(void **state)
{
    struct fixture *f = *state;
    pid_t pid = start_process(f, false);
    struct process_info *info = &proc_tree_find(f->tree, (int32_t)pid)->info;
    char expected[CHECKPOINT_TEXT_MAX];

    info->role = ROLE_MAIN;
    info->comm_len = (uint16_t)snprintf(info->comm, sizeof info->comm, "a\nb\x1b[2J");
    use(f, SIGUSR1, NULL, NULL);
    assert_true(checkpoint_is_possible(&f->checkpoint, f->marks, f->why));
    assert_int_equal(now(f), 0);
    snprintf(expected, sizeof expected,
             "process %d (a\\nb\\e[2J) has no handler for SIGUSR1, so the signal could kill it",
             (int)pid);
    assert_string_equal(f->why, expected);
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_FAILED);
    end_process(pid);
}

static void save_mark_completes_a_checkpoint_requested_by_signal(void **state)
{
    struct fixture *f = *state;
    pid_t with = start_process(f, true), without = start_process(f, false);

    set_role(f, with, ROLE_MAIN);
    set_role(f, without, ROLE_MAIN);
    use(f, SIGUSR1, NULL, NULL);
    /* The mark is ignored because no request is open. */
    assert_false(receive(f, (int32_t)with, "KIND=save"));
    assert_int_equal(now(f), 1);
    assert_signalled(f, 1, &with);
    assert_non_null(strstr(f->why, "has no handler for SIGUSR1"));
    wait_for(&f->shared[1], 1);
    assert_false(receive(f, (int32_t)with, "KIND=step\nSTEP=4"));
    assert_true(receive(f, (int32_t)with, "KIND=save\nSTEP=4\nPATH=/ck/4"));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_DONE);
    assert_string_equal(f->checkpoint.by, "mark");
    assert_string_equal(f->checkpoint.path, "/ck/4");
    end_process(with);
    end_process(without);
}

static void launchers_and_workers_get_no_checkpoint_signal(void **state)
{
    static const enum process_role never[] = {ROLE_LAUNCHER, ROLE_DATA_WORKER, ROLE_COMPILE_WORKER,
                                              ROLE_RESOURCE_TRACKER};
    enum { N = 4 };
    struct fixture *f = *state;
    pid_t bad[N], main_pid = start_process(f, true), child = start_process(f, true);
    pid_t expected[2];

    for (size_t i = 0; i < N; i++) {
        bad[i] = start_process(f, true);
        set_role(f, bad[i], never[i]);
    }
    set_role(f, main_pid, ROLE_MAIN);
    set_role(f, child, ROLE_OTHER);
    set_parent(f, child, main_pid);
    use(f, SIGUSR1, NULL, NULL);
    assert_int_equal(now(f), 1);
    assert_signalled(f, 1, &main_pid);

    set_role(f, main_pid, ROLE_OTHER); /* The role of the job's first process is unknown. */
    assert_int_equal(now(f), 1);
    assert_signalled(f, 1, &main_pid);

    set_parent(f, child, bad[0]);
    assert_int_equal(now(f), 1);
    expected[0] = main_pid;
    expected[1] = child;
    assert_signalled(f, 2, expected);

    set_role(f, main_pid, ROLE_LAUNCHER);
    set_parent(f, child, main_pid);
    assert_int_equal(now(f), 1);
    assert_signalled(f, 1, &child);

    set_role(f, child, ROLE_DATA_WORKER);
    assert_int_equal(now(f), 0);
    assert_string_equal(f->why, "no training process was found in the job, so no signal was sent");
    end_process(main_pid);
    end_process(child);
    for (size_t i = 0; i < N; i++)
        end_process(bad[i]);
}

static void only_ranks_get_the_checkpoint_signal_if_any_is_connected(void **state)
{
    struct fixture *f = *state;
    pid_t other = start_process(f, true), rank = start_process(f, true);
    struct mark_peer *peer;
    const struct mark_peer *peers;

    set_role(f, other, ROLE_MAIN);
    set_role(f, rank, ROLE_OTHER);
    use(f, SIGUSR1, NULL, NULL);
    add_rank(f, "rank"); /* The process of this rank is not in the tree. */
    assert_int_equal(now(f), 2);
    assert_signalled(f, 1, &other);
    mark_receiver_peers(f->marks, &peers);
    peer = (struct mark_peer *)(uintptr_t)&peers[0];
    peer->pid = (int32_t)rank;
    assert_int_equal(now(f), 2);
    assert_signalled(f, 1, &rank);
    peer->is_worker = true;
    assert_int_equal(now(f), 1);
    assert_signalled(f, 1, &other);
    end_process(other);
    end_process(rank);
}

static void checkpoint_signal_is_not_sent_to_a_reused_pid(void **state)
{
    struct fixture *f = *state;
    pid_t pid = start_process(f, true);
    struct process_info *info = &proc_tree_find(f->tree, (int32_t)pid)->info;

    info->role = ROLE_MAIN;
    info->id.start_ticks++;
    use(f, SIGUSR1, NULL, NULL);
    assert_int_equal(now(f), 0);
    assert_non_null(strstr(f->why, "No such process"));
    assert_int_equal(f->shared[1], 0);
    end_process(pid);
}

static void checkpoint_fails_when_all_signalled_processes_have_died(void **state)
{
    struct fixture *f = *state;
    pid_t a = start_process(f, true), b = start_process(f, true);

    set_role(f, a, ROLE_MAIN);
    set_role(f, b, ROLE_MAIN);
    use(f, SIGUSR1, NULL, NULL);
    assert_int_equal(now(f), 1);
    assert_int_equal(f->checkpoint.signalled_count, 2);
    assert_false(checkpoint_process_died(&f->checkpoint, (int32_t)a));
    assert_false(checkpoint_process_died(&f->checkpoint, (int32_t)a));
    assert_true(checkpoint_process_died(&f->checkpoint, (int32_t)b));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_FAILED);
    end_process(a);
    end_process(b);
}

/* ---- the file ---- */

static void write_done(struct fixture *f, const char *text)
{
    int fd = open(f->done, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void set_done_time(struct fixture *f, time_t seconds)
{
    struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};

    assert_int_equal(utimensat(AT_FDCWD, f->done, times, 0), 0);
}

static void checkpoint_request_is_done_if_the_file_is_new_or_changed(void **state)
{
    struct fixture *f = *state;

    use(f, 0, NULL, f->done);
    add_rank(f, "rank");
    now(f);
    assert_false(checkpoint_check_file(&f->checkpoint));
    write_done(f, "1");
    assert_true(checkpoint_check_file(&f->checkpoint));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_DONE);
    assert_string_equal(f->checkpoint.by, "file");
    assert_false(checkpoint_check_file(&f->checkpoint));

    set_done_time(f, 1000);
    now(f);
    assert_false(checkpoint_check_file(&f->checkpoint));
    set_done_time(f, 1001);
    assert_true(checkpoint_check_file(&f->checkpoint));
    now(f);
    write_done(f, "22");
    set_done_time(f, 1001);
    assert_true(checkpoint_check_file(&f->checkpoint));
    now(f);
    unlink(f->done);
    assert_false(checkpoint_check_file(&f->checkpoint));
}

static void rank_can_complete_checkpoint_if_checkpoint_folder_is_missing(void **state)
{
    struct fixture *f = *state;

    use(f, 0, NULL, "/no/such/folder/done");
    add_rank(f, "rank");
    assert_int_equal(now(f), 1);
    assert_false(checkpoint_check_file(&f->checkpoint));
    assert_true(f->checkpoint.is_open);
    assert_true(answer(f, f->rank_pid[0], 1, "done"));
}

static void checkpoint_file_is_accepted_after_the_rank_has_died(void **state)
{
    struct fixture *f = *state;

    use(f, 0, NULL, f->done);
    add_rank(f, "rank");
    now(f);
    write_done(f, "x");
    assert_true(checkpoint_process_died(&f->checkpoint, f->rank_pid[0]));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_DONE);
    assert_string_equal(f->checkpoint.by, "file");
}

/* ---- the command ---- */

static bool reap_command(struct fixture *f)
{
    int status;
    pid_t pid = f->checkpoint.command_pid;

    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return checkpoint_command_exited(&f->checkpoint, pid, status);
}

static void exit_status_of_checkpoint_command_decides_the_outcome(void **state)
{
    struct fixture *f = *state;

    use(f, 0, "exit 0", NULL);
    assert_true(checkpoint_is_possible(&f->checkpoint, f->marks, f->why));
    assert_int_equal(now(f), 1);
    assert_false(checkpoint_command_exited(&f->checkpoint, f->checkpoint.command_pid + 1, 0));
    assert_true(reap_command(f));
    assert_int_equal(f->checkpoint.command_pid, 0);
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_DONE);
    assert_string_equal(f->checkpoint.by, "command");
    use(f, 0, "exit 3", NULL);
    assert_int_equal(now(f), 1);
    assert_true(reap_command(f));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_FAILED);
    use(f, 0, "kill -9 $$", NULL);
    assert_int_equal(now(f), 1);
    assert_true(reap_command(f));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_FAILED);
}

/* The shell reads its own status without forking, because the shell blocks signals during a fork.
 * Only the lower 28 bits of SigIgn are checked, because glibc's posix_spawn leaves signals 32 and
 * 33 ignored. The process group is field 5 of stat. */
static const char clean_start[] =
    "[ \"$EBB_CHECKPOINT_ID\" = 1 ] || exit 2\n"
    "[ \"$(env | grep -c ^EBB_CHECKPOINT_ID=)\" = 1 ] || exit 3\n"
    "read line && exit 4\n"
    "[ /proc/$$/fd/1 -ef /proc/$$/fd/2 ] || exit 5\n"
    "while read -r key value; do\n"
    "    case $key$value in SigBlk:*0000000 | SigIgn:*0000000) ;; Sig[BI]*) exit 6 ;; esac\n"
    "done </proc/$$/status\n"
    "[ \"$(cut -d' ' -f5 /proc/$$/stat)\" = $$ ] || exit 7\n";

static void checkpoint_command_gets_id_and_default_signal_handlers(void **state)
{
    struct fixture *f = *state;
    sigset_t block, old;
    int out = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    setenv("EBB_CHECKPOINT_ID", "77", 1);
    sigemptyset(&block);
    sigaddset(&block, SIGCHLD);
    sigprocmask(SIG_BLOCK, &block, &old);
    signal(SIGPIPE, SIG_IGN);
    dup2(null, STDERR_FILENO);
    use(f, 0, clean_start, NULL);
    assert_int_equal(now(f), 1);
    dup2(out, STDERR_FILENO);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &old, NULL);
    unsetenv("EBB_CHECKPOINT_ID");
    assert_true(reap_command(f));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_DONE);
    close(out);
    close(null);
}

static void running_checkpoint_command_is_not_started_again(void **state)
{
    struct fixture *f = *state;
    pid_t pid;

    use(f, 0, "exec sleep 300", NULL);
    assert_int_equal(now(f), 1);
    pid = f->checkpoint.command_pid;
    assert_int_equal(now(f), 1);
    assert_int_equal(f->checkpoint.command_pid, pid);
    assert_int_equal(f->checkpoint.id, 2);
    assert_true(f->checkpoint.is_open);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_true(reap_command(f));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_FAILED);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void ack_from_the_checkpoint_command_completes_the_request(void **state)
{
    struct fixture *f = *state;

    use(f, 0, "exit 1", NULL);
    now(f);
    assert_false(answer(f, 5, 2, "started"));
    assert_true(answer(f, 5, 1, "started"));
    /* Whether the checkpoint has failed depends on the exit status of the command, not on this
     * answer. */
    assert_false(answer(f, 5, 1, "failed"));
    assert_true(receive(f, 5, "KIND=ack\nID=1\nSTATUS=done\nPATH=/ck"));
    assert_string_equal(f->checkpoint.path, "/ck");
    assert_false(reap_command(f));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_DONE);
}

static void processes_of_checkpoint_command_get_no_checkpoint_signal(void **state)
{
    struct fixture *f = *state;
    pid_t pid;

    use(f, SIGUSR1, "exec sleep 300", NULL);
    assert_int_equal(now(f), 1);
    pid = start_process(f, true);
    set_parent(f, pid, f->checkpoint.command_pid);
    assert_int_equal(proc_tree_add(f->tree, f->checkpoint.command_pid, NOW, NULL), 0);
    set_role(f, f->checkpoint.command_pid, ROLE_LAUNCHER);
    set_role(f, pid, ROLE_OTHER);
    assert_int_equal(now(f), 1);
    assert_int_equal(f->checkpoint.signalled_count, 0);
    end_process(pid);
    end_process(f->checkpoint.command_pid);
}

static void checkpoint_request_fails_only_after_all_methods_have_failed(void **state)
{
    struct fixture *f = *state;

    use(f, 0, "exit 1", f->done);
    add_rank(f, "rank");
    assert_int_equal(now(f), 2);
    assert_false(reap_command(f));
    assert_true(f->checkpoint.is_open);
    assert_true(answer(f, f->rank_pid[0], 1, "done"));

    assert_int_equal(now(f), 2);
    assert_false(answer(f, f->rank_pid[0], 2, "failed"));
    assert_true(reap_command(f));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_FAILED);

    use(f, 0, "exit 0", NULL);
    assert_int_equal(now(f), 2);
    assert_false(answer(f, f->rank_pid[0], 1, "failed"));
    assert_true(reap_command(f));
    assert_int_equal(f->checkpoint.ack, LADDER_ACK_DONE);
}

/* ---- random events ---- */

/* Computes the outcome of the ranks' answers independently of checkpoint.c. */
struct model {
    char word[RANKS]; /* '-' means not answered, 'd' done, 'f' failed, 'x' exited without an answer.
                       */
};

static enum ladder_ack expected_of(const struct model *m, bool has_started)
{
    char all[RANKS + 1] = "";

    memcpy(all, m->word, RANKS);
    if (strchr(all, '-'))
        return has_started ? LADDER_ACK_STARTED : LADDER_NO_ACK;
    return !strchr(all, 'f') && strchr(all, 'd') ? LADDER_ACK_DONE : LADDER_ACK_FAILED;
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static bool random_event(struct fixture *f, struct model *m, bool *has_started, uint32_t *seed)
{
    static const char *const words[] = {"started", "done", "failed", "nonsense"};
    uint32_t r = next_random(seed);
    size_t rank = r % RANKS;
    size_t word = r / RANKS % 4;
    bool is_stale = r / 16 % 4 == 0, is_death = r / 64 % 8 == 0;

    if (is_death) {
        if (m->word[rank] == '-' && f->checkpoint.is_open)
            m->word[rank] = 'x';
        return checkpoint_process_died(&f->checkpoint, f->rank_pid[rank]);
    }
    if (!is_stale && f->checkpoint.is_open && m->word[rank] == '-') {
        *has_started |= word == 0;
        m->word[rank] = word == 1 ? 'd' : word == 2 ? 'f' : '-';
    }
    return answer(f, f->rank_pid[rank], f->checkpoint.id - is_stale, words[word]);
}

static void check_state(const struct checkpoint *a)
{
    bool is_over = a->ack == LADDER_ACK_DONE || a->ack == LADDER_ACK_FAILED;

    assert_int_equal(a->is_open, !is_over);
    assert_int_equal(a->by[0] != '\0', a->ack == LADDER_ACK_DONE);
}

static void random_checkpoint_events_lead_to_the_expected_state(void **state)
{
    struct fixture *f = *state;
    unsigned ends[LADDER_ACK_FAILED + 1] = {0};
    uint32_t seed = 20;

    for (int i = 0; i < RANKS; i++)
        add_rank(f, "rank");
    for (int round = 0; round < 2000; round++) {
        struct model m;
        bool has_started = false;

        memset(m.word, '-', sizeof m.word);
        assert_int_equal(now(f), 1);
        for (int i = 0; i < RANKS; i++)
            assert_string_not_equal(request_to(f, (size_t)i), "");
        for (uint32_t n = next_random(&seed) % 60; n > 0; n--) {
            enum ladder_ack before = f->checkpoint.ack;
            bool has_changed = random_event(f, &m, &has_started, &seed);

            assert_int_equal(has_changed, f->checkpoint.ack != before);
            assert_int_equal(f->checkpoint.ack, expected_of(&m, has_started));
            check_state(&f->checkpoint);
        }
        ends[f->checkpoint.ack]++;
    }
    for (size_t i = 0; i <= LADDER_ACK_FAILED; i++)
        assert_true(ends[i] > 0); /* The random events must have caused each possible outcome. */
}

static bool mixed_event(struct fixture *f, uint32_t *seed, bool *is_dead)
{
    uint32_t r = next_random(seed);

    switch (r % 8) {
    case 0:
        return f->checkpoint.command_pid != 0 && reap_command(f);
    case 1:
        write_done(f, "x");
        return false;
    case 2:
        unlink(f->done);
        return false;
    case 3:
        return checkpoint_check_file(&f->checkpoint);
    case 4:
        *is_dead = true;
        return checkpoint_process_died(&f->checkpoint, f->rank_pid[0]);
    case 5:
        return receive(f, f->rank_pid[0], "KIND=save");
    case 6:
        return answer(f, f->rank_pid[0], f->checkpoint.id - r / 8 % 2,
                      r / 16 % 2 ? "started" : "failed");
    default:
        return answer(f, 7, f->checkpoint.id, "nonsense");
    }
}

static void checkpoint_with_several_methods_reaches_one_final_outcome(void **state)
{
    static const char *const commands[] = {"exit 0", "exit 1", NULL};
    struct fixture *f = *state;
    unsigned ends[LADDER_ACK_FAILED + 1] = {0};
    uint32_t seed = 4;

    add_rank(f, "rank");
    for (int round = 0; round < 150; round++) {
        const char *command = commands[round % 3];
        bool is_dead = false;
        int changes = 0;

        unlink(f->done);
        use(f, 0, command, f->done);
        assert_int_equal(now(f), command ? 2 : 1);
        assert_string_equal(request_to(f, 0), "CHECKPOINT=1\n");
        for (uint32_t n = next_random(&seed) % 24; n > 0; n--) {
            enum ladder_ack before = f->checkpoint.ack;
            bool has_changed = mixed_event(f, &seed, &is_dead);

            assert_int_equal(has_changed, f->checkpoint.ack != before);
            assert_true(before < LADDER_ACK_DONE || f->checkpoint.ack == before);
            assert_int_equal(f->checkpoint.is_open, f->checkpoint.ack < LADDER_ACK_DONE);
            assert_int_equal(f->checkpoint.by[0] != '\0', f->checkpoint.ack == LADDER_ACK_DONE);
            changes += has_changed;
        }
        assert_true(changes <= 2);
        if (f->checkpoint.command_pid != 0)
            reap_command(f);
        /* If the rank is dead, the request can be open only because it waits for a file. */
        assert_false(is_dead && f->checkpoint.is_open && f->checkpoint.ack != LADDER_ACK_STARTED);
        ends[f->checkpoint.ack]++;
    }
    for (size_t i = 0; i <= LADDER_ACK_FAILED; i++)
        assert_true(ends[i] > 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(checkpoint_without_a_request_method_fails_with_a_reason),
        TEST(checkpoint_is_done_when_all_ranks_report_done),
        TEST(answer_of_a_helper_process_completes_a_checkpoint_request),
        TEST(acks_are_ignored_if_outdated_or_repeated_or_invalid),
        TEST(checkpoint_fails_when_one_rank_reports_failure),
        TEST(checkpoint_request_does_not_wait_for_ranks_that_exited),
        TEST(acks_from_unknown_pids_are_assigned_to_different_ranks),
        TEST(checkpoint_path_beyond_the_maximum_length_is_dropped),
        TEST(checkpoint_request_fails_if_the_rank_socket_is_gone),
        TEST(checkpoint_and_stop_requests_share_one_sequence_of_ids),
        TEST(process_without_a_signal_handler_gets_no_checkpoint_signal),
        TEST(save_mark_completes_a_checkpoint_requested_by_signal),
        TEST(launchers_and_workers_get_no_checkpoint_signal),
        TEST(only_ranks_get_the_checkpoint_signal_if_any_is_connected),
        TEST(checkpoint_signal_is_not_sent_to_a_reused_pid),
        TEST(checkpoint_fails_when_all_signalled_processes_have_died),
        TEST(checkpoint_request_is_done_if_the_file_is_new_or_changed),
        TEST(rank_can_complete_checkpoint_if_checkpoint_folder_is_missing),
        TEST(checkpoint_file_is_accepted_after_the_rank_has_died),
        TEST(exit_status_of_checkpoint_command_decides_the_outcome),
        TEST(checkpoint_command_gets_id_and_default_signal_handlers),
        TEST(running_checkpoint_command_is_not_started_again),
        TEST(ack_from_the_checkpoint_command_completes_the_request),
        TEST(processes_of_checkpoint_command_get_no_checkpoint_signal),
        TEST(checkpoint_request_fails_only_after_all_methods_have_failed),
        TEST(random_checkpoint_events_lead_to_the_expected_state),
        TEST(checkpoint_with_several_methods_reaches_one_final_outcome),
    };

    return cmocka_run_group_tests_name("ask", tests, NULL, NULL);
}
