/* Simulates a job: a signed lock, a folder with a run.json, and a control socket. */
#include "fake_ebb.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "supervise/channel.h"
#include "proc/procfs.h"

enum { PATIENCE_S = 120 };

struct fake {
    const char *run_dir, *folder_id;
    int lock_fd;
    char **command;
    int listener;
};

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static void wait_for_file(const char *path)
{
    for (int i = 0; i < PATIENCE_S * 100 && !is_there(path); i++)
        usleep(10000);
}

static void append_id(const struct fake *f, const char *path)
{
    char line[32];
    const char *base = strrchr(f->run_dir, '/') + 1;
    int n = snprintf(line, sizeof line, "%lld\n", strtoll(base, NULL, 10));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        abort();
    close(fd);
}

/* ---- run.json ---- */

static void write_text(const struct fake *f, const char *text, size_t len)
{
    int dir = open(f->run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0) /* The test may have removed the run folder already. */
        (void)io_replace_file(dir, "run.json", text, len);
    if (dir >= 0)
        close(dir);
}

static void write_json(const struct fake *f, json_t *doc)
{
    char *text = json_dumps(doc, 0);
    write_text(f, text, strlen(text));
    free(text);
    json_decref(doc);
}

static void write_running(const struct fake *f)
{
    char control[160];
    snprintf(control, sizeof control, "%s/control", f->run_dir);
    write_json(f, json_pack("{s:s,s:i,s:s,s:i}", "state", "running", "pid", (int)getpid(),
                            "control", control, "segment", 0));
}

static void write_ended(const struct fake *f, int status, const char *kind, const char *cause)
{
    write_json(f, json_pack("{s:s,s:i,s:f,s:{s:s,s:i,s:s,s:s}}", "state", "ended", "pid",
                            (int)getpid(), "duration_s", 0.5, "end", "kind", "exited", "status",
                            status, "cause_kind", kind, "cause", cause));
}

static void write_huge(const struct fake *f, size_t bytes)
{
    struct buf text = {0};
    buf_add_str(&text, "{\"state\":\"ended\",\"end\":{\"kind\":\"exited\",\"status\":0},\"x\":[0");
    while (text.len < bytes)
        buf_add_str(&text, ",[]");
    buf_add_str(&text, "]}");
    write_text(f, text.data, text.len);
    buf_fini(&text);
}

/* ---- the control socket ---- */

static void listen_at(struct fake *f)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%.90s/control", f->run_dir);
    f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (f->listener < 0 || bind(f->listener, (struct sockaddr *)&a, sizeof a) < 0 ||
        listen(f->listener, 4) < 0)
        abort();
}

static void say(struct channel *c, const char *text)
{
    channel_queue(c, CHANNEL_MESSAGE, text, strlen(text));
}

static void say_first(struct channel *c)
{
    char text[256];
    snprintf(text, sizeof text,
             "{\"type\":\"state\",\"state\":\"running\",\"reason\":null,\"pid\":%d,\"segment\":0,"
             "\"progress\":{\"step\":3,\"max_steps\":9},\"peak_bytes\":5000}",
             (int)getpid());
    say(c, text);
    say(c, "{\"type\":\"sample\",\"t_s\":1.5,\"job_bytes\":4096,\"unique_bytes\":2048,"
           "\"limit_bytes\":9000,\"headroom_bytes\":100,\"gpus\":[{\"job_bytes\":7}]}");
    say(c, "{\"type\":\"verdict\",\"verdict\":{\"verdict\":\"leaking\",\"leak\":true}}");
}

static void flood(struct channel *c)
{
    static char much[200 << 10];
    static const char *const bad[] = {
        "{",
        "[]",
        "7",
        "{\"type\":7}",
        "{\"type\":\"state\"}",
        "{\"type\":\"removed\"}",
        "{\"type\":\"state\",\"state\":\"succeeded\"}",
        "{\"type\":\"state\",\"state\":\"queued\",\"pid\":-5,\"segment\":-1}",
        "{\"type\":\"sample\",\"t_s\":-1e300,\"job_bytes\":-7,\"gpus\":{}}",
        "{\"type\":\"sample\",\"t_s\":1e300,\"job_bytes\":9223372036854775807,\"gpus\":[1,[],{}]}",
        "{\"type\":\"verdict\",\"verdict\":{\"verdict\":[]}}",
        "{\"type\":\"answer\",\"do\":7}",
        "{\"type\":\"log\",\"bytes\":\"x\"}",
    };
    for (size_t round = 0; round < 40; round++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
            say(c, bad[i]);
    memset(much, '[', sizeof much);
    channel_queue(c, CHANNEL_MESSAGE, much, 30000);
    channel_queue(c, CHANNEL_OUT, much, 100);
    /* The message exceeds the maximum frame size. */
    channel_queue(c, CHANNEL_MESSAGE, much, sizeof much);
}

/* Sends, without a pause, the messages of a guard that requests a checkpoint, receives it, and
 * restarts the job. */
static void say_restart(struct channel *c)
{
    say(c, "{\"type\":\"state\",\"state\":\"running\",\"reason\":null}");
    say(c, "{\"type\":\"state\",\"state\":\"stopping\",\"reason\":\"little is left\"}");
    say(c, "{\"type\":\"state\",\"state\":\"running\",\"reason\":null,\"segment\":1}");
}

/* Answers a request. Returns true if the job must exit. */
static bool answer(struct fake *f, struct channel *c, const char *data, size_t len)
{
    json_t *request = json_loadb(data, len, 0, NULL);
    const char *what = json_string_value(json_object_get(request, "do"));
    bool is_end = what && strcmp(what, "cancel") == 0;
    if (is_end)
        say(c, "{\"type\":\"answer\",\"do\":\"cancel\",\"ok\":true}");
    else if (what && strcmp(what, "checkpoint") == 0)
        say(c, "{\"type\":\"state\",\"state\":\"checkpointing\",\"reason\":\"asked\"}");
    if (what && !is_end && strcmp(f->command[0], "restart") == 0)
        say_restart(c);
    json_decref(request);
    return is_end;
}

/* Serves one connection after another. Returns true if the job was cancelled. */
static bool serve(struct fake *f, bool floods)
{
    const bool is_idle = strcmp(f->command[0], "impostor") == 0;
    struct channel c;
    char finish[200];
    bool is_end = false;
    channel_init(&c, -1);
    snprintf(finish, sizeof finish, "%s/finish", f->run_dir);
    for (int i = 0; i < PATIENCE_S * 50 && !is_end && !is_there(finish); i++) {
        struct pollfd p = {.fd = c.fd >= 0 ? c.fd : f->listener, .events = POLLIN};
        enum channel_type type;
        const char *data;
        size_t len;
        poll(&p, 1, 20);
        if (!(p.revents & (POLLIN | POLLHUP)))
            continue;
        if (c.fd < 0) {
            channel_init(&c, accept4(f->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
            say_first(&c);
            if (floods)
                flood(&c);
        } else if (channel_fill(&c) < 0) {
            channel_fini(&c);
        }
        while (c.fd >= 0 && channel_next(&c, &type, &data, &len) == 1)
            is_end = (answer(f, &c, data, len) && !is_idle) || is_end;
        for (int n = 0; c.fd >= 0 && channel_flush(&c) == 1 && n < 100; n++)
            usleep(1000);
    }
    channel_fini(&c);
    return is_end;
}

/* ---- commands ---- */

static void hold(struct fake *f, bool floods)
{
    if (f->command[1])
        append_id(f, f->command[1]);
    if (serve(f, floods))
        write_ended(f, 143, "cancelled", "cancelled: as asked");
    else
        write_ended(f, 0, "finished", "finished");
}

static void deaf(struct fake *f)
{
    char finish[200];
    snprintf(finish, sizeof finish, "%s/finish", f->run_dir);
    wait_for_file(finish);
    write_ended(f, 0, "finished", "finished");
}

/* A supervisor that hangs, with a child of the same name that accepts connections. The sentinel
 * kills the child once the supervisor is dead. */
static void impostor(struct fake *f)
{
    int died[2];
    if (pipe2(died, O_CLOEXEC) < 0)
        abort();
    pid_t supervisor = fork();
    if (supervisor == 0) {
        prctl(PR_SET_NAME, "ebb-supervisor");
        pid_t job = fork();
        if (job == 0) {
            listen_at(f);
            write_running(f);
            serve(f, false);
            _exit(0);
        }
        if (write(died[1], &job, sizeof job) != sizeof job)
            abort();
        for (;;)
            pause();
    }
    pid_t job;
    if (read(died[0], &job, sizeof job) != sizeof job || waitpid(supervisor, NULL, 0) < 0)
        abort();
    kill(job, SIGKILL);
    write_json(f, json_pack("{s:s,s:{s:s}}", "state", "ended", "end", "kind", "lost"));
}

static bool is_listening(const struct fake *f)
{
    const char *mode = f->command[0];
    return strcmp(mode, "hold") == 0 || strcmp(mode, "flood") == 0 || strcmp(mode, "restart") == 0;
}

static void behave(struct fake *f)
{
    const char *mode = f->command[0];
    if (strcmp(mode, "quick") == 0 || strcmp(mode, "late") == 0) {
        bool is_late = mode[0] == 'l';
        int status = is_late ? 0 : atoi(f->command[1]);
        if (f->command[1] && f->command[2])
            append_id(f, f->command[2]);
        write_ended(f, status, status ? "exit status" : "finished", status ? "it said so" : "");
    } else if (is_listening(f)) {
        hold(f, mode[0] == 'f');
    } else if (strcmp(mode, "deaf") == 0) {
        deaf(f);
    } else if (strcmp(mode, "impostor") == 0) {
        impostor(f);
    } else if (strcmp(mode, "json") == 0) {
        write_text(f, f->command[1], strlen(f->command[1]));
    } else if (strcmp(mode, "huge") == 0) {
        write_huge(f, (size_t)atol(f->command[1]));
    } else if (strcmp(mode, "link") == 0) {
        char path[200];
        snprintf(path, sizeof path, "%s/run.json", f->run_dir);
        if (unlink(path) < 0 || symlink(f->command[1], path) < 0)
            abort();
    }
}

static void sign(const struct fake *f)
{
    char text[1024], line[64];
    struct proc_stat stat;
    ssize_t len = io_read_small(AT_FDCWD, "/proc/self/stat", text, sizeof text);
    if (len <= 0 || proc_stat_parse(text, (size_t)len, &stat) < 0)
        abort();
    int n = snprintf(line, sizeof line, "%d %llu\n", (int)getpid(),
                     (unsigned long long)stat.start_ticks);
    if (pwrite(f->lock_fd, line, (size_t)n, 0) != n)
        abort();
}

static _Noreturn void be_sentinel(struct fake *f, int ready)
{
    bool is_only_lock = strcmp(f->command[0], "lock-only") == 0;
    setsid();
    if (is_only_lock) {
        (void)!write(ready, "y", 1);
        wait_for_file(f->command[1]);
        _exit(0);
    }
    if (is_listening(f))
        listen_at(f);
    sign(f);
    if (strcmp(f->command[0], "impostor") != 0)
        write_running(f);
    (void)!write(ready, "y", 1);
    close(ready);
    behave(f);
    _exit(0);
}

static void sign_folder(const struct fake *f)
{
    char path[256];
    snprintf(path, sizeof path, "%s/.folder-id", f->run_dir);
    if (symlink(f->folder_id, path) < 0)
        abort();
}

static int start(struct fake *f)
{
    int ready[2];
    char byte;
    if (strcmp(f->command[0], "late") == 0)
        wait_for_file(f->command[1]);
    if (mkdir(f->run_dir, 0700) < 0) {
        fprintf(stderr, "ebb: %s: %s\n", f->run_dir, strerror(errno));
        return 125;
    }
    sign_folder(f);
    if (pipe2(ready, O_CLOEXEC) < 0)
        return 125;
    if (fork() == 0)
        be_sentinel(f, ready[1]);
    close(ready[1]);
    return read(ready[0], &byte, 1) == 1 ? 0 : 125;
}

static const char *value_of(int argc, char **argv, const char *name)
{
    size_t n = strlen(name);
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=')
            return argv[i] + n + 1;
    return "";
}

bool fake_ebb(int argc, char **argv, int *ret)
{
    struct fake f = {.listener = -1};
    *ret = 0;
    /* `ebb sweep` has nothing to do in these tests. */
    if (argc > 1 && strcmp(argv[1], "sweep") == 0)
        return true;
    if (argc < 3 || strcmp(argv[1], "run") != 0 || strcmp(argv[2], "--detached") != 0)
        return false;
    f.run_dir = value_of(argc, argv, "--run-dir");
    f.folder_id = value_of(argc, argv, "--folder-id");
    f.lock_fd = atoi(value_of(argc, argv, "--lock-fd"));
    fcntl(f.lock_fd, F_SETFD, FD_CLOEXEC);
    for (int i = 3; i < argc && !f.command; i++)
        if (strcmp(argv[i], "--") == 0)
            f.command = argv + i + 1;
    *ret = 125;
    if (!f.command)
        return true;
    if (strcmp(f.command[0], "refuse") == 0)
        fprintf(stderr, "a warning\nebb: there is no such thing here\n");
    else if (strcmp(f.command[0], "killed") == 0)
        raise(SIGKILL);
    else
        *ret = start(&f);
    return true;
}
