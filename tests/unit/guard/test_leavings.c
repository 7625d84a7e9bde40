/* What a job leaves behind: files that are provably its own, and nobody else's. This test itself is
 * the neighbour, whose files must survive; the job's processes are its children. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "guard/leavings_private.h"

#define TMPFS_MAGIC_NUMBER 0x01021994

static struct proc_root root;
static char folder[64];
static int at; /* the folder */
static struct leavings *l;
static struct proc_tree *tree;

/* Waits for COND for up to 30 s, looking in between. The limit is for broken code only. */
#define EVENTUALLY(cond)                                                                           \
    do {                                                                                           \
        for (int tries_ = 0; tries_ < 6000 && !(cond); tries_++) {                                 \
            leavings_look(l, tree, clock_mono_ns());                                               \
            nanosleep(&(struct timespec){0, 5000000}, NULL);                                       \
        }                                                                                          \
        assert_true(cond);                                                                         \
    } while (0)

static void note_birth(void *user, const struct proc_event *event)
{
    (void)user;
    if (event->kind == PROCESS_BORN && l != NULL)
        leavings_process(l, event->node->info.id.pid);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/dev/shm/ebb-test-leavings.XXXXXX");
    if (!mkdtemp(folder)) {
        snprintf(folder, sizeof folder, "/tmp/ebb-test-leavings.XXXXXX");
        if (!mkdtemp(folder))
            return -1;
    }
    at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0 || proc_root_open("/proc", NULL, &root, NULL) < 0)
        return -1;
    return proc_tree_new(&root, note_birth, NULL, &tree);
}

static int tear_down(void **state)
{
    (void)state;
    leavings_free(l);
    l = NULL;
    proc_tree_free(tree);
    tree = NULL;
    proc_root_close(&root);
    DIR *dir = fdopendir(at);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;)
        unlinkat(at, e->d_name, e->d_type == DT_DIR ? AT_REMOVEDIR : 0);
    closedir(dir);
    return rmdir(folder);
}

static void begin(void)
{
    struct err err;
    assert_int_equal(leavings_new(folder, &l, &err), 0);
}

static bool is_on_tmpfs(void)
{
    struct statfs st;
    assert_int_equal(fstatfs(at, &st), 0);
    return st.f_type == TMPFS_MAGIC_NUMBER;
}

static int make(const char *name)
{
    int fd = openat(at, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 8192) < 0 || pwrite(fd, "x", 1, 0) != 1)
        abort();
    return fd;
}

static void make_closed(const char *name)
{
    close(make(name));
}

static bool exists(const char *name)
{
    return faccessat(at, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A process of the job: does FN, says so, and stays until it is let go. */
struct kid {
    pid_t pid;
    int hear, say;
};
typedef void kid_fn(void);

static void close_all_but(int a, int b)
{
    for (int fd = 3; fd < 256; fd++)
        if (fd != a && fd != b && fd != at)
            close(fd); /* what the neighbour has open must not be the job's */
}

static struct kid kid_start_outside(kid_fn *fn)
{
    int up[2], down[2];
    char c;
    pid_t parent = getpid();
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        close_all_but(up[1], down[0]);
        if (read(down[0], &c, 1) != 1)
            _exit(1);
        fn();
        if (write(up[1], "", 1) != 1)
            _exit(1);
        while (read(down[0], &c, 1) > 0)
            ;
        _exit(0);
    }
    assert_true(pid > 0);
    close(up[1]);
    close(down[0]);
    return (struct kid){pid, up[0], down[1]};
}

static void kid_go(const struct kid *kid)
{
    char c;
    assert_int_equal(write(kid->say, "", 1), 1);
    assert_int_equal(read(kid->hear, &c, 1), 1);
}

static struct kid kid_start(kid_fn *fn)
{
    struct kid kid = kid_start_outside(fn);
    assert_int_equal(proc_tree_add(tree, (int32_t)kid.pid, clock_mono_ns(), NULL), 0);
    kid_go(&kid);
    return kid;
}

static void kid_end(const struct kid *kid)
{
    int status;
    close(kid->say);
    close(kid->hear);
    assert_int_equal(waitpid(kid->pid, &status, 0), kid->pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    proc_tree_walk(tree, clock_mono_ns());
}

static bool is_proven(const char *name)
{
    for (size_t i = 0; i < l->fresh.count; i++)
        if (strcmp(l->fresh.v[i].name, name) == 0)
            return l->fresh.v[i].marks & KNOWN_JOBS;
    return false;
}

/* What the list of the end says of NAME; NULL where it is not in it. */
static const struct leavings_file *listed(const char *name)
{
    const struct leavings_file *files;
    size_t count = leavings_files(l, &files);
    for (size_t i = 0; i < count; i++)
        if (strcmp(files[i].name, name) == 0) {
            assert_int_equal(leavings_were_removed(l, i), files[i].removed);
            return &files[i];
        }
    return NULL;
}

/* Files of the job. */

static void open_psm(void)
{
    make("psm_1");
}

static void a_file_that_a_process_of_the_job_has_open_is_removed_at_the_end(void **state)
{
    (void)state;
    begin();
    struct kid kid = kid_start(open_psm);
    EVENTUALLY(is_proven("psm_1"));
    kid_end(&kid);
    assert_int_equal(leavings_end(l, false), 1);
    assert_true(exists("psm_1"));
    assert_false(listed("psm_1")->removed);
    assert_int_equal(leavings_end(l, true), 1);
    assert_false(exists("psm_1"));
    const struct leavings_file *file = listed("psm_1");
    assert_true(file->removed && !file->in_use);
    assert_true(file->bytes > 0 && file->bytes <= 1 << 20);
    assert_int_equal(file->uid, geteuid());
}

/* As sem_open() does it. */
static void map_sem(void)
{
    int fd = make("tmp.sem");
    if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ||
        linkat(at, "tmp.sem", at, "sem.a", 0) < 0 || unlinkat(at, "tmp.sem", 0) < 0)
        abort();
    close(fd);
}

static void a_file_that_is_only_mapped_and_was_linked_is_the_jobs(void **state)
{
    (void)state;
    if (!is_on_tmpfs()) {
        print_message("maps name another device than stat where %s is\n", folder);
        skip();
    }
    begin();
    struct kid kid = kid_start(map_sem);
    EVENTUALLY(is_proven("sem.a"));
    kid_end(&kid);
    assert_int_equal(leavings_end(l, true), 1);
    assert_false(exists("sem.a"));
    assert_null(listed("tmp.sem"));
}

static void make_brief(void)
{
    make_closed("brief");
}

static void file_that_no_process_of_the_job_was_seen_with_is_not_listed(void **state)
{
    (void)state;
    begin();
    struct kid kid = kid_start(make_brief);
    kid_end(&kid); /* before any look */
    leavings_look(l, tree, clock_mono_ns());
    assert_int_equal(leavings_end(l, true), 0);
    assert_null(listed("brief"));
    assert_true(exists("brief"));
}

static void open_old(void)
{
    if (openat(at, "old", O_RDWR) < 0 || renameat(at, "old2", at, "older") < 0)
        abort();
    make("new");
}

static void a_file_that_was_there_before_is_never_the_jobs(void **state)
{
    (void)state;
    make_closed("old");
    make_closed("old2");
    begin();
    struct kid kid = kid_start(open_old);
    EVENTUALLY(is_proven("new"));
    kid_end(&kid);
    assert_int_equal(leavings_end(l, true), 1);
    assert_null(listed("old"));
    assert_null(listed("older"));
    assert_true(exists("old") && exists("older"));
    assert_false(exists("new"));
}

static void move_up(void)
{
    if (renameat(at, "below/old", at, "old") < 0 || openat(at, "old", O_RDWR) < 0)
        abort();
    make("new");
}

static void an_old_file_that_is_moved_in_is_not_the_jobs(void **state)
{
    (void)state;
    assert_int_equal(mkdirat(at, "below", 0700), 0);
    make_closed("below/old");
    usleep(300000); /* longer than the clock of files may be behind */
    begin();
    struct kid kid = kid_start(move_up);
    EVENTUALLY(is_proven("new"));
    kid_end(&kid);
    assert_int_equal(leavings_end(l, true), 1);
    assert_null(listed("old"));
    assert_true(exists("old"));
}

static void rename_it(void)
{
    make("first");
    if (renameat(at, "first", at, "second") < 0)
        abort();
}

static void a_file_keeps_its_proof_when_it_is_renamed(void **state)
{
    (void)state;
    begin();
    struct kid kid = kid_start(rename_it);
    EVENTUALLY(is_proven("second"));
    assert_int_equal(renameat(at, "second", at, "third"), 0);
    kid_end(&kid);
    assert_int_equal(leavings_end(l, true), 1);
    assert_true(listed("third")->removed);
    assert_false(exists("third"));
}

static void new_file_of_a_neighbour_survives_and_is_not_listed(void **state)
{
    (void)state;
    begin();
    make_closed("neighbours");
    struct kid kid = kid_start(open_psm);
    EVENTUALLY(is_proven("psm_1"));
    kid_end(&kid);
    assert_int_equal(leavings_end(l, true), 1);
    assert_null(listed("neighbours"));
    assert_true(exists("neighbours"));
    assert_false(exists("psm_1"));
}

static void another_file_under_the_same_name_survives(void **state)
{
    (void)state;
    begin();
    struct kid kid = kid_start(open_psm);
    EVENTUALLY(is_proven("psm_1"));
    kid_end(&kid);
    /* the job's inode is kept by a link, so that the new file cannot have the same number */
    assert_int_equal(linkat(at, "psm_1", at, "kept", 0), 0);
    assert_int_equal(unlinkat(at, "psm_1", 0), 0);
    make_closed("psm_1");
    assert_int_equal(leavings_end(l, true), 1);
    assert_true(listed("kept")->removed);
    assert_null(listed("psm_1"));
    assert_true(exists("psm_1"));
}

static void a_replacement_nobody_heard_of_survives(void **state)
{
    (void)state;
    char events[16384];
    begin();
    struct kid kid = kid_start(open_psm);
    EVENTUALLY(is_proven("psm_1"));
    kid_end(&kid);
    make_closed("instead");
    assert_int_equal(renameat(at, "instead", at, "psm_1"), 0);
    while (read(leavings_fd(l), events, sizeof events) > 0)
        ;
    assert_int_equal(leavings_end(l, true), 0);
    assert_null(listed("psm_1"));
    assert_true(exists("psm_1"));
}

static void a_file_that_a_neighbour_uses_is_left_to_it(void **state)
{
    (void)state;
    begin();
    struct kid kid = kid_start(open_psm);
    EVENTUALLY(is_proven("psm_1"));
    int fd = openat(at, "psm_1", O_RDONLY | O_CLOEXEC);
    kid_end(&kid);
    assert_int_equal(leavings_end(l, true), 1);
    assert_true(listed("psm_1")->in_use);
    assert_true(exists("psm_1"));
    close(fd);
    assert_int_equal(leavings_end(l, true), 1);
    assert_false(exists("psm_1"));
}

static uint32_t marks_of(const char *name)
{
    for (size_t i = 0; i < l->fresh.count; i++)
        if (strcmp(l->fresh.v[i].name, name) == 0)
            return l->fresh.v[i].marks;
    return 0;
}

static void every_process_is_asked_where_the_kernel_gives_no_lease(void **state)
{
    (void)state;
    begin();
    int fd = make("open");
    int mapped_fd = make("mapped");
    make_closed("idle");
    void *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, mapped_fd, 0);
    assert_true(map != MAP_FAILED);
    close(mapped_fd);
    leavings_hear(l, 0);
    leavings_mark_used(l);
    assert_true(marks_of("open") & KNOWN_USED);
    assert_false(marks_of("idle") & KNOWN_USED);
    if (is_on_tmpfs())
        assert_true(marks_of("mapped") & KNOWN_USED);
    munmap(map, 4096);
    close(fd);
}

static void another_users_file_is_never_removed(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("only root can give a file to another user\n");
        skip();
    }
    begin();
    struct kid kid = kid_start(open_psm);
    EVENTUALLY(is_proven("psm_1"));
    kid_end(&kid);
    if (fchownat(at, "psm_1", 65534, 65534, 0) < 0) {
        print_message("this root may not give files away\n");
        skip();
    }
    assert_int_equal(leavings_end(l, true), 1);
    assert_int_equal(listed("psm_1")->uid, 65534);
    assert_false(listed("psm_1")->removed);
    assert_true(exists("psm_1"));
}

/* Names that torch gives. */

static void make_torch(void)
{
    char name[64];
    snprintf(name, sizeof name, "torch_%d_77_0", (int)getpid());
    make_closed(name);
}

static void a_torch_file_is_known_by_the_pid_of_a_process_that_is_gone(void **state)
{
    char name[64];
    (void)state;
    begin();
    struct kid kid = kid_start(make_torch);
    kid_end(&kid);
    snprintf(name, sizeof name, "torch_%d_77_0", (int)kid.pid);
    assert_int_equal(leavings_end(l, true), 1);
    assert_true(listed(name)->removed);
    assert_false(exists(name));
}

static void a_torch_file_of_a_stranger_or_of_a_number_given_on_is_not_the_jobs(void **state)
{
    char name[64];
    (void)state;
    begin();
    struct kid stranger = kid_start_outside(make_torch);
    kid_go(&stranger);
    leavings_process(l, (int32_t)getpid()); /* once the job's number, now a neighbour's */
    make_torch();
    make_closed("torch_x_1");
    make_closed("torch_99999999999_1");
    leavings_look(l, tree, clock_mono_ns());
    assert_int_equal(leavings_end(l, true), 0);
    snprintf(name, sizeof name, "torch_%d_77_0", (int)getpid());
    assert_true(exists(name));
    assert_null(listed(name));
    snprintf(name, sizeof name, "torch_%d_77_0", (int)stranger.pid);
    assert_true(exists(name));
    assert_true(exists("torch_x_1") && exists("torch_99999999999_1"));
    kid_end(&stranger);
}

/* Lost events. */

static void after_lost_events_the_folder_is_compared_with_what_was_there(void **state)
{
    char text[32];
    (void)state;
    if (io_read_small(AT_FDCWD, "/proc/sys/fs/inotify/max_queued_events", text, sizeof text) <= 0 ||
        atoi(text) > 100000) {
        print_message("the queue of events is too long to be filled\n");
        skip();
    }
    make_closed("old");
    begin();
    make_closed("gone");
    leavings_hear(l, 0);
    for (int i = 0; i < atoi(text); i++) { /* two names, as equal events in a row become one */
        const char *name = i % 2 ? "a" : "b";
        make_closed(name);
        unlinkat(at, name, 0);
    }
    unlinkat(at, "gone", 0);
    struct kid kid = kid_start(open_psm);
    assert_false(is_proven("psm_1"));
    EVENTUALLY(is_proven("psm_1"));
    kid_end(&kid);
    assert_int_equal(leavings_end(l, true), 1);
    const struct leavings_file *files;
    assert_int_equal(leavings_files(l, &files), 1);
    assert_true(exists("old"));
}

static void a_rescan_finds_what_came_and_forgets_what_went(void **state)
{
    char events[16384];
    (void)state;
    make_closed("old");
    begin();
    make_closed("went");
    leavings_hear(l, 0);
    assert_int_equal(l->fresh.count, 1);
    unlinkat(at, "went", 0);
    make_closed("came");
    while (read(leavings_fd(l), events, sizeof events) > 0)
        ;
    leavings_rescan(l, 0);
    assert_int_equal(l->fresh.count, 1);
    assert_string_equal(l->fresh.v[0].name, "came");
}

/* Sockets. */

static char unix_path[96];

static void listen_on(int family, const void *address, socklen_t len)
{
    int fd = socket(family, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, address, len) < 0 || listen(fd, 1) < 0)
        abort();
}

static bool has_v6(void)
{
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool can = fd >= 0 && bind(fd, (const void *)&six, sizeof six) == 0;
    if (fd >= 0)
        close(fd);
    return can;
}

static void listen_everywhere(void)
{
    const struct sockaddr_in four = {.sin_family = AF_INET,
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    listen_on(AF_INET, &four, sizeof four);
    if (has_v6())
        listen_on(AF_INET6, &six, sizeof six);
    snprintf(un.sun_path, sizeof un.sun_path, "%s", unix_path);
    listen_on(AF_UNIX, &un, sizeof un);
    memset(un.sun_path, 0, sizeof un.sun_path);
    snprintf(un.sun_path + 1, sizeof un.sun_path - 1, "ebb-test-%d", (int)getpid());
    listen_on(AF_UNIX, &un,
              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(un.sun_path + 1)));
    (void)!socket(AF_INET, SOCK_STREAM, 0); /* one that does not listen */
}

static const struct leavings_socket *socket_like(const char *beginning)
{
    const struct leavings_socket *sockets;
    size_t count = leavings_socket_list(l, &sockets);
    for (size_t i = 0; i < count; i++)
        if (strncmp(sockets[i].address, beginning, strlen(beginning)) == 0)
            return &sockets[i];
    return NULL;
}

static void the_sockets_that_one_left_behind_listens_on_are_listed(void **state)
{
    char abstract[32];
    const struct leavings_socket *sockets;
    (void)state;
    begin();
    snprintf(unix_path, sizeof unix_path, "%s/x y.sock", folder);
    struct kid kid = kid_start(listen_everywhere);
    leavings_sockets(l, tree);
    leavings_sockets(l, tree); /* a second time adds none */
    assert_int_equal(leavings_socket_list(l, &sockets), has_v6() ? 4 : 3);
    snprintf(abstract, sizeof abstract, "@ebb-test-%d", (int)kid.pid);
    const struct leavings_socket *four = socket_like("127.0.0.1:");
    assert_non_null(four);
    assert_int_equal(four->pid, kid.pid);
    assert_string_equal(four->name, "test_leavings");
    assert_int_not_equal(atoi(strchr(four->address, ':') + 1), 0);
    assert_true(!has_v6() || socket_like("[::1]:") != NULL);
    assert_string_equal(socket_like(abstract)->address, abstract);
    assert_string_equal(socket_like("/")->address, unix_path);
    kid_end(&kid);
    assert_int_equal(leavings_end(l, true), 0);
    assert_true(socket_like("/")->is_file);
    assert_false(socket_like(abstract)->is_file || socket_like("127")->is_file);
    assert_true(exists("x y.sock"));
    unlink(unix_path);
    leavings_end(l, false);
    assert_false(socket_like("/")->is_file);
}

#define LINE(text) (text), sizeof(text) - 1

static void addresses_are_read_from_the_tables_of_the_kernel(void **state)
{
    char address[112] = "untouched";
    uint64_t ino = 0;
    (void)state;
    assert_int_equal(
        leavings_tcp_parse(LINE("  sl  local_address rem_address   st tx_queue rx_queue tr "
                                "tm->when retrnsmt   uid  timeout inode"),
                           &ino, address),
        -EBADMSG);
    assert_int_equal(
        leavings_tcp_parse(LINE("   1: 00000000:1F90 00000000:0000 01 00000000:00000000 "
                                "00:00000000 00000000  1000        0 812 1 0"),
                           &ino, address),
        -ENOENT);
    assert_int_equal(
        leavings_tcp_parse(LINE("   1: 0000:1F90 0:0 0A 0:0 0:0 0 0 0 812 1"), &ino, address),
        -EBADMSG);
    assert_int_equal(
        leavings_tcp_parse(LINE("1: 00000000:11F90 0:0 0A 0:0 0:0 0 0 0 812 1"), &ino, address),
        -EBADMSG);
    assert_string_equal(address, "untouched");
    assert_int_equal(
        leavings_tcp_parse(LINE("   1: 00000000:1F90 00000000:0000 0A 00000000:00000000 "
                                "00:00000000 00000000  1000        0 812 1 0"),
                           &ino, address),
        0);
    assert_int_equal(ino, 812);
    assert_string_equal(address, "0.0.0.0:8080");
    assert_int_equal(
        leavings_tcp_parse(LINE("   0: 00000000000000000000000000000000:1F40 "
                                "00000000000000000000000000000000:0000 0A 00000000:00000000 "
                                "00:00000000 00000000     0        0 813 1 0"),
                           &ino, address),
        0);
    assert_string_equal(address, "[::]:8000");
    assert_int_equal(leavings_unix_parse(LINE("0000000000000000: 00000002 00000000 00010000 0001 "
                                              "01 814 @/tmp/.X11-unix/X 0"),
                                         &ino, address),
                     0);
    assert_int_equal(ino, 814);
    assert_string_equal(address, "@/tmp/.X11-unix/X 0");
    assert_int_equal(leavings_unix_parse(LINE("0000000000000000: 00000002 00000000 00000000 0002 "
                                              "01 815 /run/log"),
                                         &ino, address),
                     -ENOENT);
    assert_int_equal(leavings_unix_parse(LINE("Num RefCount"), &ino, address), -EBADMSG);
}

/* The folder. */

static void a_folder_that_is_not_there_is_refused_in_a_sentence(void **state)
{
    struct err err = {""};
    struct leavings *none = NULL;
    (void)state;
    assert_int_equal(leavings_new("/nowhere/at/all", &none, &err), -ENOENT);
    assert_null(none);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
}

enum { CANNOT_MOUNT = 50 };

static int fill_a_small_tmpfs(void)
{
    struct leavings *small;
    static char zeroes[1 << 20];
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", folder, "tmpfs", 0, "size=8m") < 0)
        return CANNOT_MOUNT;
    if (leavings_new(folder, &small, NULL) < 0)
        return 1;
    bool before = leavings_folder_is_full(small);
    int dir = open(folder, O_RDONLY | O_DIRECTORY);
    int fd = openat(dir, "big", O_RDWR | O_CREAT, 0600);
    while (write(fd, zeroes, sizeof zeroes) > 0)
        ;
    bool after = leavings_folder_is_full(small);
    leavings_free(small);
    close(fd);
    close(dir);
    return before ? 2 : !after ? 3 : 0;
}

static void a_folder_without_room_is_full(void **state)
{
    int status;
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(fill_a_small_tmpfs());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CANNOT_MOUNT) {
        print_message("no file system may be mounted here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_file_that_a_process_of_the_job_has_open_is_removed_at_the_end),
        IN_FOLDER(a_file_that_is_only_mapped_and_was_linked_is_the_jobs),
        IN_FOLDER(file_that_no_process_of_the_job_was_seen_with_is_not_listed),
        IN_FOLDER(a_file_that_was_there_before_is_never_the_jobs),
        IN_FOLDER(an_old_file_that_is_moved_in_is_not_the_jobs),
        IN_FOLDER(a_file_keeps_its_proof_when_it_is_renamed),
        IN_FOLDER(new_file_of_a_neighbour_survives_and_is_not_listed),
        IN_FOLDER(another_file_under_the_same_name_survives),
        IN_FOLDER(a_replacement_nobody_heard_of_survives),
        IN_FOLDER(a_file_that_a_neighbour_uses_is_left_to_it),
        IN_FOLDER(every_process_is_asked_where_the_kernel_gives_no_lease),
        IN_FOLDER(another_users_file_is_never_removed),
        IN_FOLDER(a_torch_file_is_known_by_the_pid_of_a_process_that_is_gone),
        IN_FOLDER(a_torch_file_of_a_stranger_or_of_a_number_given_on_is_not_the_jobs),
        IN_FOLDER(after_lost_events_the_folder_is_compared_with_what_was_there),
        IN_FOLDER(a_rescan_finds_what_came_and_forgets_what_went),
        IN_FOLDER(the_sockets_that_one_left_behind_listens_on_are_listed),
        IN_FOLDER(addresses_are_read_from_the_tables_of_the_kernel),
        IN_FOLDER(a_folder_that_is_not_there_is_refused_in_a_sentence),
        IN_FOLDER(a_folder_without_room_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
