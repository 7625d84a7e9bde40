/* Children that read recordings for the server, and their answers. */
#include "server/http/work.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/loop.h"

enum { ARGS_MAX = 16, STDERR_MAX = 4 << 10, PRIORITY = 10 };

/* One way out of the child. */
struct stream {
    struct task *task;
    int fd; /* -1: closed */
    struct loop_source *source;
    struct buf text;
    size_t max;
};

struct task {
    struct work *work;
    struct task *next;
    char *key;
    uint64_t stamp;
    char *args[ARGS_MAX + 2];
    struct work_wish *wishes;
    pid_t pid; /* 0: has not begun */
    int pidfd;
    struct loop_source *pid_source, *limit;
    struct stream streams[2];
    int failure;   /* -ETIMEDOUT, -EFBIG */
    bool is_guest; /* all who wait for it are */
};

struct work_wish {
    struct task *task;
    struct work_wish *prev, *next;
    work_done_fn *fn;
    void *user;
};

struct answer {
    struct answer *next; /* newest first */
    char *key;
    uint64_t stamp;
    int status;
    size_t len;
    char text[];
};

struct work {
    struct loop *loop;
    struct work_options options;
    struct task *tasks; /* oldest first */
    unsigned running, waiting;
    struct answer *answers;
    size_t answer_bytes;
};

/* ---- answers ---- */

static void answer_free(struct work *w, struct answer *a)
{
    w->answer_bytes -= sizeof(*a) + a->len;
    free(a->key);
    free(a);
}

/* Unlinks it; the caller puts it back at the front, or frees it. */
static struct answer *answer_take(struct work *w, const char *key)
{
    for (struct answer **at = &w->answers; *at; at = &(*at)->next) {
        struct answer *a = *at;
        if (strcmp(a->key, key) == 0) {
            *at = a->next;
            return a;
        }
    }
    return NULL;
}

static void answer_put(struct work *w, struct answer *a)
{
    a->next = w->answers;
    w->answers = a;
    while (w->answer_bytes > w->options.cache_bytes && w->answers) {
        struct answer **last = &w->answers;
        while ((*last)->next)
            last = &(*last)->next;
        struct answer *old = *last;
        *last = NULL;
        answer_free(w, old);
    }
}

static void answer_keep(struct work *w, const struct task *t, int status, const struct buf *text)
{
    struct answer *old = answer_take(w, t->key);
    if (old)
        answer_free(w, old);
    struct answer *a = malloc(sizeof(*a) + text->len + 1);
    char *key = strdup(t->key);
    if (!a || !key) {
        free(a);
        free(key);
        return;
    }
    *a = (struct answer){.key = key, .stamp = t->stamp, .status = status, .len = text->len};
    if (text->len)
        memcpy(a->text, text->data, text->len);
    w->answer_bytes += sizeof(*a) + a->len;
    answer_put(w, a);
}

/* ---- tasks ---- */

static void stream_close(struct stream *s)
{
    loop_remove(s->source);
    s->source = NULL;
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

static void task_free(struct task *t)
{
    for (int i = 0; i < 2; i++) {
        stream_close(&t->streams[i]);
        buf_fini(&t->streams[i].text);
    }
    loop_remove(t->pid_source);
    loop_remove(t->limit);
    if (t->pidfd >= 0)
        close(t->pidfd);
    for (int i = 1; t->args[i]; i++)
        free(t->args[i]);
    free(t->key);
    free(t);
}

static void task_unlink(struct task *t)
{
    struct work *w = t->work;
    for (struct task **at = &w->tasks; *at; at = &(*at)->next) {
        if (*at == t) {
            *at = t->next;
            break;
        }
    }
    if (t->pid > 0)
        w->running--;
    else
        w->waiting--;
}

static void start_waiting(struct work *w);

/* Callbacks may ask and forget: the task is out of the list before. */
static void task_end(struct task *t, int status)
{
    struct work *w = t->work;
    struct buf *text = &t->streams[t->streams[0].text.len ? 0 : 1].text;
    task_unlink(t);
    if (status >= 0)
        answer_keep(w, t, status, text);
    while (t->wishes) {
        struct work_wish *wish = t->wishes;
        t->wishes = wish->next;
        if (t->wishes)
            t->wishes->prev = NULL;
        wish->fn(wish->user, status, buf_str(text), text->len);
        free(wish);
    }
    task_free(t);
    start_waiting(w);
}

static void task_kill(struct task *t, int why)
{
    if (t->failure == 0)
        t->failure = why;
    kill(-t->pid, SIGKILL); /* a group of its own, and it is not reaped yet */
}

/* True while there may be more. */
static bool stream_read(struct stream *s)
{
    char piece[16 << 10];
    ssize_t n = read(s->fd, piece, sizeof(piece));
    if (n < 0)
        return errno == EINTR;
    if (n == 0) {
        stream_close(s);
        return false;
    }
    size_t room = s->max > s->text.len ? s->max - s->text.len : 0;
    buf_add(&s->text, piece, (size_t)n < room ? (size_t)n : room);
    if ((size_t)n > room && s == &s->task->streams[0])
        task_kill(s->task, -EFBIG);
    return true;
}

static void on_stream(void *user, int fd, uint32_t events)
{
    (void)fd, (void)events;
    stream_read(user);
}

static void on_exit_of(void *user, int fd, uint32_t events)
{
    (void)fd, (void)events;
    struct task *t = user;
    int status = 0;
    if (waitpid(t->pid, &status, WNOHANG) == 0)
        return;
    for (int i = 0; i < 2; i++) {
        /* bounded by what a pipe holds: the writer is gone */
        for (int n = 0; n < 64 && t->streams[i].fd >= 0 && stream_read(&t->streams[i]); n++)
            ;
    }
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (t->streams[0].text.failed || t->streams[1].text.failed)
        t->failure = -ENOMEM;
    task_end(t, t->failure ? t->failure : code);
}

static void on_limit(void *user, uint64_t now_ns, uint64_t missed)
{
    (void)now_ns, (void)missed;
    task_kill(user, -ETIMEDOUT);
}

static int spawn(struct task *t, int out, int err)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t mask, defaults;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
    loop_original_mask(t->work->loop, &mask);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigmask(&attr, &mask);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                        POSIX_SPAWN_SETSIGDEF);
    pid_t pid;
    int r = -posix_spawn(&pid, t->work->options.program, &actions, &attr, t->args, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    if (r < 0)
        return r;
    setpriority(PRIO_PROCESS, (id_t)pid, PRIORITY);
    t->pid = pid;
    return 0;
}

static int stream_open(struct stream *s, int *ret_other)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    s->fd = fds[0];
    *ret_other = fds[1];
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    return loop_add_fd(s->task->work->loop, s->fd, EPOLLIN, on_stream, s, &s->source);
}

/* The child is there: follow it. Where that fails it is ended at once. */
static int follow(struct task *t)
{
    struct loop *loop = t->work->loop;
    t->pidfd = io_pidfd_open(t->pid);
    int r = t->pidfd < 0 ? t->pidfd : 0;
    if (r == 0)
        r = loop_add_fd(loop, t->pidfd, EPOLLIN, on_exit_of, t, &t->pid_source);
    if (r == 0)
        r = loop_add_timer(loop, clock_mono_ns() + t->work->options.limit_ns, 0, on_limit, t,
                           &t->limit);
    if (r < 0) {
        kill(-t->pid, SIGKILL);
        waitpid(t->pid, NULL, 0);
        t->pid = 0;
    }
    return r;
}

static int task_start(struct task *t)
{
    int ends[2] = {-1, -1};
    int r = stream_open(&t->streams[0], &ends[0]);
    if (r == 0)
        r = stream_open(&t->streams[1], &ends[1]);
    if (r == 0)
        r = spawn(t, ends[0], ends[1]);
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
    }
    if (r == 0)
        r = follow(t);
    if (r == 0) {
        t->work->running++;
        t->work->waiting--;
    }
    return r;
}

/* One at a time, from the top: whoever is told of a failure may change the list. */
static void start_waiting(struct work *w)
{
    while (w->running < w->options.at_once) {
        struct task *t = w->tasks;
        while (t && t->pid > 0)
            t = t->next;
        if (!t)
            return;
        int r = task_start(t);
        if (r < 0)
            task_end(t, r);
    }
}

static struct task *task_new(struct work *w, const char *const *argv, const char *key,
                             uint64_t stamp)
{
    struct task *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    union {
        const char *in;
        char *out;
    } program = {w->options.program};
    t->work = w;
    t->pidfd = t->streams[0].fd = t->streams[1].fd = -1;
    t->streams[0].task = t->streams[1].task = t;
    t->streams[0].max = w->options.output_max;
    t->streams[1].max = STDERR_MAX;
    t->stamp = stamp;
    t->key = strdup(key);
    t->args[0] = program.out;
    bool is_whole = t->key != NULL;
    for (int i = 0; i < ARGS_MAX && argv[i] && is_whole; i++)
        is_whole = (t->args[i + 1] = strdup(argv[i])) != NULL;
    if (!is_whole) {
        task_free(t);
        return NULL;
    }
    return t;
}

static struct task *task_find(struct work *w, const char *key, uint64_t stamp)
{
    for (struct task *t = w->tasks; t; t = t->next) {
        if (t->stamp == stamp && strcmp(t->key, key) == 0)
            return t;
    }
    return NULL;
}

static bool has_room(const struct work *w, bool is_guest)
{
    unsigned guests = 0;
    for (const struct task *t = w->tasks; t; t = t->next)
        guests += t->pid <= 0 && t->is_guest;
    return w->running < w->options.at_once ||
           (w->waiting < w->options.queue_max &&
            (!is_guest || guests < (w->options.queue_max + 1) / 2));
}

/* Behind all that run or came before, but before those of guests that wait. */
static void task_link(struct task *t)
{
    struct task **at = &t->work->tasks;
    while (*at && (t->is_guest || (*at)->pid > 0 || !(*at)->is_guest))
        at = &(*at)->next;
    t->next = *at;
    *at = t;
    t->work->waiting++;
}

static int task_find_or_add(struct work *w, const char *const *argv, const char *key,
                            uint64_t stamp, bool is_guest, struct task **ret)
{
    struct task *t = task_find(w, key, stamp);
    *ret = t;
    if (t && t->pid <= 0 && t->is_guest && !is_guest) {
        task_unlink(t);
        t->is_guest = false;
        task_link(t);
    }
    if (t)
        return 0;
    if (!has_room(w, is_guest))
        return -EAGAIN;
    t = task_new(w, argv, key, stamp);
    if (!t)
        return -ENOMEM;
    t->is_guest = is_guest;
    task_link(t);
    *ret = t;
    return 0;
}

int work_ask(struct work *w, const char *const *argv, const char *key, uint64_t stamp,
             bool is_guest, work_done_fn *fn, void *user, struct work_wish **ret)
{
    struct answer *a = answer_take(w, key);
    struct task *t;
    *ret = NULL;
    if (a) {
        answer_put(w, a);
        if (a->stamp == stamp) {
            fn(user, a->status, a->text, a->len);
            return 0;
        }
    }
    struct work_wish *wish = malloc(sizeof(*wish));
    int r = wish ? task_find_or_add(w, argv, key, stamp, is_guest, &t) : -ENOMEM;
    if (r < 0) {
        free(wish);
        return r;
    }
    *wish = (struct work_wish){.task = t, .next = t->wishes, .fn = fn, .user = user};
    if (wish->next)
        wish->next->prev = wish;
    t->wishes = wish;
    /* RET first: one that cannot be started is answered, and gone, in here */
    *ret = wish;
    start_waiting(w);
    if (!task_find(w, key, stamp))
        *ret = NULL;
    return 0;
}

/* What is under way goes on, so that the next who asks has it; what has not begun does not. */
void work_forget(struct work_wish *wish)
{
    struct task *t = wish->task;
    if (wish->prev)
        wish->prev->next = wish->next;
    else
        t->wishes = wish->next;
    if (wish->next)
        wish->next->prev = wish->prev;
    free(wish);
    if (!t->wishes && t->pid == 0) {
        task_unlink(t);
        task_free(t);
    }
}

int work_new(struct loop *loop, const struct work_options *options, struct work **ret)
{
    struct work *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->loop = loop;
    w->options = *options;
    *ret = w;
    return 0;
}

void work_free(struct work *w)
{
    if (!w)
        return;
    while (w->tasks) {
        struct task *t = w->tasks;
        w->tasks = t->next;
        if (t->pid > 0) {
            kill(-t->pid, SIGKILL);
            waitpid(t->pid, NULL, 0);
        }
        while (t->wishes) {
            struct work_wish *wish = t->wishes;
            t->wishes = wish->next;
            free(wish);
        }
        task_free(t);
    }
    while (w->answers) {
        struct answer *a = w->answers;
        w->answers = a->next;
        answer_free(w, a);
    }
    free(w);
}
