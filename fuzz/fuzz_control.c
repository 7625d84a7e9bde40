/* Fuzzes a supervisor's control socket: arbitrary requests, delivered in pieces over several
 * connections, to a job in any state. No process is started or killed: the job is a single waiting
 * process that ignores SIGTERM. */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "supervise/job.h"
#include "mark/receiver.h"
#include "target.h"

enum { CONNECTIONS = 12, PIECES = 4 };
enum state { EXITED = 1, WAITS = 2, OVER = 4, NO_PID = 8, HAS_RANK = 16 };

static struct job j;
static struct {
    struct supervisor_options options;
    struct proc_root root;
    char dir[64], hello[128];
    int rank; /* Socket on which a rank of the job receives requests. */
    pid_t pid;
} s;

static void must(bool is_true, const char *what)
{
    if (is_true)
        return;
    fprintf(stderr, "fuzz_control: %s\n", what);
    abort();
}

/* ---- start and end of the program ---- */

static void on_mark(void *user, const struct mark *mark)
{
    (void)user;
    (void)mark;
}

static void on_timer(void *user, uint64_t now_ns)
{
    (void)user;
    (void)now_ns;
}

static void stop(void)
{
    job_control_free(&j);
    outcome_fini(&j.outcome);
    engine_free(j.engine);
    mark_receiver_free(j.marks);
    channel_fini(&j.client.channel);
    loop_free(j.loop);
    proc_root_close(&s.root);
    unlink(s.hello + strlen("KIND=hello\nREPLY="));
    rmdir(s.dir);
    kill(s.pid, SIGKILL);
    waitpid(s.pid, NULL, 0);
}

static void start_process(void)
{
    /* The child inherits SIG_IGN, because SIGTERM may arrive before the child executes its first
     * line. */
    void (*handler)(int) = signal(SIGTERM, SIG_IGN);
    s.pid = fork();
    must(s.pid >= 0, "no process");
    if (s.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    signal(SIGTERM, handler);
}

/* Registers a reply socket at the marks socket, as a rank does. */
static void start_rank(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/rank", s.dir);
    snprintf(s.hello, sizeof s.hello, "KIND=hello\nREPLY=%s", address.sun_path);
    s.rank = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(bind(s.rank, (struct sockaddr *)&address, sizeof address) == 0, "no socket of a rank");
}

static void start(void)
{
    const struct engine_callbacks callbacks = {.report = job_notify, .user = &j};
    const char *parent = getenv("TMPDIR");
    struct err err = {""};
    start_process();
    snprintf(s.dir, sizeof s.dir, "%.40s/ebb-fuzz-XXXXXX", parent ? parent : "/tmp");
    must(mkdtemp(s.dir), "no folder");
    start_rank();
    /* An empty /proc, so that no other process can be found and signalled. */
    must(proc_root_open(s.dir, NULL, &s.root, &err) == 0, err.text);
    s.options = (struct supervisor_options){
        .engine = {.root = &s.root, .no_gpu = true}, .rundir.fd = -1, .grace_ns = NS_PER_S};
    j.options = &s.options;
    j.client.is_gone = true;
    channel_init(&j.client.channel, -1);
    must(loop_new(&j.loop) == 0 && mark_receiver_new(j.loop, on_mark, NULL, &j.marks, &err) == 0 &&
             engine_new(j.loop, &s.options.engine, &callbacks, &j.engine, &err) == 0,
         err.text);
    must(loop_add_timer(j.loop, UINT64_MAX / 2, 0, on_timer, NULL, &j.end.cancel_timer) == 0 &&
             loop_add_timer(j.loop, UINT64_MAX / 2, 0, on_timer, NULL, &j.guard.alert_timer) == 0,
         "no timer");
    job_control_start(&j);
    must(j.control, "no control socket");
    atexit(stop);
}

/* ---- one input ---- */

static void set_state(unsigned state)
{
    j.now = (struct job_segment){
        .number = 1, .pid = state & NO_PID ? 0 : s.pid, .pidfd = -1, .exited = state & EXITED};
    j.now.ending = state & OVER ? ENDED : RUNNING;
    j.waits_for_disk = state & WAITS;
    j.end.cancel_deadline_ns = 0;
    memset(&j.guard.timing, 0, sizeof j.guard.timing);
    checkpoint_init(&j.guard.checkpoint, &(struct checkpoint_options){0});
    j.guard.is_alert = j.guard.is_requested = false;
    outcome_fini(&j.outcome);
    j.outcome = (struct outcome){0};
    if (state & HAS_RANK) {
        mark_send(mark_receiver_path(j.marks), s.hello, strlen(s.hello), 0);
        loop_once(j.loop, 0);
    }
}

static int dial(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", job_control_path(j.control));
    must(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "nobody listens");
    loop_once(j.loop, 0);
    return fd;
}

/* Checks that all messages sent are complete frames, each with a JSON object that has a type. */
static void check_news(struct channel *c)
{
    enum channel_type type;
    const char *data;
    size_t len;
    int r;
    while (channel_fill(c) == 1)
        ;
    while ((r = channel_next(c, &type, &data, &len)) == 1) {
        json_t *doc = json_parse(data, len, NULL);
        must(type == CHANNEL_MESSAGE && json_string_value(json_object_get(doc, "type")), "no news");
        json_decref(doc);
    }
    must(r == 0 && c->in.len == c->in_at, "news is cut");
}

static void talk(const uint8_t *data, size_t size, size_t connections, size_t pieces)
{
    struct channel peer[CONNECTIONS];
    for (size_t i = 0; i < connections; i++)
        channel_init(&peer[i], dial());
    size_t piece = size / pieces + 1;
    for (size_t at = 0, i = 0; at < size; at += piece, i++) {
        size_t n = size - at < piece ? size - at : piece;
        /* Older control connections may have been closed, so the newest are used first. */
        int fd = peer[connections - 1 - i % connections].fd;
        (void)!send(fd, data + at, n, MSG_NOSIGNAL);
        loop_once(j.loop, 0);
    }
    for (size_t i = 0; i < connections; i++) {
        check_news(&peer[i]);
        channel_fini(&peer[i]);
    }
    loop_once(j.loop, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char request[256];
    if (!j.loop)
        start();
    if (size < 3)
        return 0;
    set_state(data[0]);
    talk(data + 3, size - 3, 1 + data[1] % CONNECTIONS, 1 + data[2] % PIECES);
    must(!j.waits_for_disk || data[0] & WAITS, "it waits for room");
    must(waitpid(s.pid, NULL, WNOHANG) == 0, "the job was ended");
    while (recv(s.rank, request, sizeof request, 0) > 0)
        ;
    return 0;
}
