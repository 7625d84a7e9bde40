/* Writes a file in a separate thread: the queue of operations, the operations, and their error
 * handling. */
#include "trace/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"

enum op_kind { OP_APPEND, OP_BEGIN_TAIL, OP_REPLACE_TAIL, OP_SYNC, OP_TURN };

enum { NAME_BYTES = 64 };
/* Arguments of OP_TURN, which switches to a new file. */
struct turn {
    int dir_fd; /* the folder of the new file; a duplicate fd that this struct owns */
    char name[NAME_BYTES], old[NAME_BYTES];
};

struct op {
    struct op *next;
    enum op_kind kind;
    size_t len;
    char data[];
};

/* State shared by the owner and the writing thread. It is freed when both have dropped their
 * reference. */
struct shared {
    pthread_mutex_t lock;
    pthread_cond_t wake; /* signalled when there is work for the thread */
    pthread_cond_t done; /* signalled when sink_wait and sink_close may continue */

    /* The fields from here on are protected by the lock. */
    unsigned refs;
    bool closing, finished, abandoned, leaves_unsynced;
    int event_fd;
    bool wants_wake;
    uint64_t wake_bytes; /* valid if wants_wake */
    size_t memory_bytes;
    struct op *first, **last;
    struct sink_status status;

    /* The fields from here on are used only by the writing thread. */
    int fd;
    bool seekable;
    uint64_t size_bytes;
    uint64_t tail_at;
    bool dirty;
};

struct sink {
    struct shared *sh;
    pthread_t thread;
};

static void shared_unref(struct shared *sh)
{
    pthread_mutex_lock(&sh->lock);
    unsigned left = --sh->refs;
    pthread_mutex_unlock(&sh->lock);
    if (left > 0)
        return;
    while (sh->first) {
        struct op *op = sh->first;
        sh->first = op->next;
        free(op);
    }
    if (sh->fd >= 0)
        close(sh->fd);
    if (sh->event_fd >= 0)
        close(sh->event_fd);
    pthread_cond_destroy(&sh->wake);
    pthread_cond_destroy(&sh->done);
    pthread_mutex_destroy(&sh->lock);
    free(sh);
}

static int write_at(const struct shared *sh, const char *data, size_t len, uint64_t at)
{
    while (len > 0) {
        ssize_t n = sh->seekable ? pwrite(sh->fd, data, len, (off_t)at) : write(sh->fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        data += n;
        len -= (size_t)n;
        at += (uint64_t)n;
    }
    return 0;
}

/* Truncates the file to remove a partial write. If this fails too, the next append overwrites the
 * partial write. */
static void cut_to(const struct shared *sh, uint64_t size)
{
    if (sh->seekable && ftruncate(sh->fd, (off_t)size) < 0)
        return;
}

static int append(struct shared *sh, const struct op *op)
{
    int e = write_at(sh, op->data, op->len, sh->size_bytes);
    if (e < 0) {
        cut_to(sh, sh->size_bytes);
        return e;
    }
    sh->size_bytes += op->len;
    sh->dirty = true;
    return 0;
}

/* Syncs the file. Ignores EINVAL and EROFS, which mean that the file is a pipe or device that
 * cannot be synced. */
static int sync_data(const struct shared *sh)
{
    if (fdatasync(sh->fd) < 0 && errno != EINVAL && errno != EROFS)
        return -errno;
    return 0;
}

static int sync_if_dirty(struct shared *sh)
{
    if (!sh->dirty)
        return 0;
    int e = sync_data(sh);
    /* After a failed sync the kernel may have dropped the pages and marked them clean, so a second
     * sync would wrongly succeed. */
    sh->dirty = false;
    return e;
}

/* Replaces the tail of the file. First, a copy of the new tail is appended and synced. After that
 * no data can be lost, because the copy remains valid if a later operation fails. */
static int replace_tail(struct shared *sh, const struct op *op)
{
    uint64_t tail = sh->tail_at, old = sh->size_bytes;
    int e = write_at(sh, op->data, op->len, old);
    if (e == 0)
        e = sync_data(sh);
    if (e < 0) {
        cut_to(sh, old);
        sh->tail_at = old;
        return e;
    }
    sh->dirty = false;
    sh->size_bytes = sh->tail_at = old + op->len;
    /* If the new tail is longer than the old one, writing it in place would overwrite its own copy,
     * so the copy is kept instead. */
    if (!sh->seekable || op->len > old - tail)
        return 0;
    e = write_at(sh, op->data, op->len, tail);
    if (e == 0)
        e = sync_data(sh);
    if (e == 0 && ftruncate(sh->fd, (off_t)(tail + op->len)) < 0)
        e = -errno;
    if (e == 0)
        sh->size_bytes = sh->tail_at = tail + op->len;
    return e;
}

static int turn(struct shared *sh, const struct op *op)
{
    struct turn t;
    memcpy(&t, op->data, sizeof t);
    int e = 0;
    if (sh->fd >= 0)
        close(sh->fd);
    if (t.old[0])
        unlinkat(t.dir_fd, t.old, 0);
    sh->fd = openat(t.dir_fd, t.name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (sh->fd < 0)
        e = -errno;
    close(t.dir_fd);
    sh->seekable = true;
    sh->dirty = false;
    sh->size_bytes = sh->tail_at = 0;
    return e;
}

/* Signals the eventfd. The caller holds the lock. The eventfd's counter cannot overflow, because
 * only errors and wake-ups increment it, and both are rare. */
static void send_event(const struct shared *sh)
{
    uint64_t one = 1;
    if (!sh->abandoned)
        (void)!write(sh->event_fd, &one, sizeof one);
}

static void wake_if_below(struct shared *sh)
{
    if (!sh->wants_wake || sh->status.waiting_bytes > sh->wake_bytes)
        return;
    sh->wants_wake = false;
    send_event(sh);
}

static void note_result(struct shared *sh, const struct op *op, int e)
{
    struct sink_status *st = &sh->status;
    st->size_bytes = sh->size_bytes;
    /* a successful sync does not show that the disk works again: there may have been nothing to
     * sync */
    if (e < 0 || op->kind != OP_SYNC)
        st->failing = e < 0;
    if (e == 0)
        return;
    st->losses += op->kind != OP_REPLACE_TAIL && op->kind != OP_TURN;
    if (st->first_error != 0)
        return;
    st->first_error = e;
    send_event(sh);
}

static int perform(struct shared *sh, const struct op *op)
{
    switch (op->kind) {
    case OP_BEGIN_TAIL:
        sh->tail_at = sh->size_bytes;
        return append(sh, op);
    case OP_APPEND:
        return append(sh, op);
    case OP_REPLACE_TAIL:
        return replace_tail(sh, op);
    case OP_SYNC:
        return sync_if_dirty(sh);
    case OP_TURN:
        return turn(sh, op);
    }
    return -EINVAL;
}

static size_t op_bytes(const struct op *op)
{
    return sizeof *op + op->len;
}

static void *run(void *arg)
{
    struct shared *sh = arg;
    static const struct op last_sync = {.kind = OP_SYNC};
    pthread_mutex_lock(&sh->lock);
    for (;;) {
        while (!sh->first && !sh->closing)
            pthread_cond_wait(&sh->wake, &sh->lock);
        struct op *op = sh->first;
        if (!op && sh->leaves_unsynced)
            break;
        pthread_mutex_unlock(&sh->lock);
        int e = perform(sh, op ? op : &last_sync);
        pthread_mutex_lock(&sh->lock);
        note_result(sh, op ? op : &last_sync, e);
        if (!op)
            break;
        sh->first = op->next;
        sh->status.waiting_bytes -= op_bytes(op);
        wake_if_below(sh);
        if (!sh->first) {
            sh->last = &sh->first;
            pthread_cond_signal(&sh->done);
        }
        free(op);
    }
    sh->finished = true;
    pthread_cond_signal(&sh->done);
    pthread_mutex_unlock(&sh->lock);
    shared_unref(sh);
    return NULL;
}

static struct shared *shared_new(int fd, size_t memory_bytes)
{
    struct shared *sh = calloc(1, sizeof *sh);
    if (!sh)
        return NULL;
    sh->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (sh->event_fd < 0) {
        free(sh);
        return NULL;
    }
    pthread_mutex_init(&sh->lock, NULL);
    pthread_cond_init(&sh->wake, NULL);
    thread_cond_init(&sh->done);
    sh->refs = 1;
    sh->fd = fd;
    sh->memory_bytes = memory_bytes;
    sh->last = &sh->first;
    off_t end = lseek(fd, 0, SEEK_END);
    sh->seekable = end >= 0;
    sh->size_bytes = end > 0 ? (uint64_t)end : 0;
    sh->tail_at = sh->size_bytes;
    sh->status.size_bytes = sh->size_bytes;
    return sh;
}

enum { STACK_BYTES = 128 * 1024 };

int sink_new(int fd, size_t memory_bytes, struct sink **ret)
{
    struct sink *s = calloc(1, sizeof *s);
    struct shared *sh = s ? shared_new(fd, memory_bytes) : NULL;
    if (!sh) {
        free(s);
        close(fd);
        return -ENOMEM;
    }
    s->sh = sh;
    sh->refs++;
    /* SIGXFSZ is blocked in the thread, so exceeding the file size limit only fails with EFBIG */
    int r = thread_start(STACK_BYTES, run, sh, &s->thread);
    if (r < 0) {
        sh->refs--;
        shared_unref(sh);
        free(s);
        return r;
    }
    *ret = s;
    return 0;
}

static int enqueue(struct sink *s, enum op_kind kind, const void *data, size_t len)
{
    struct shared *sh = s->sh;
    if (len > SIZE_MAX - sizeof(struct op))
        return -ENOMEM;
    struct op *op = malloc(sizeof *op + len);
    if (!op)
        return -ENOMEM;
    *op = (struct op){.kind = kind, .len = len};
    if (len > 0)
        memcpy(op->data, data, len);
    pthread_mutex_lock(&sh->lock);
    if (sh->status.waiting_bytes + op_bytes(op) > sh->memory_bytes) {
        pthread_mutex_unlock(&sh->lock);
        free(op);
        return -ENOBUFS;
    }
    /* if the queue is not empty, the thread is awake and will check the queue again */
    bool idle = !sh->first;
    *sh->last = op;
    sh->last = &op->next;
    sh->status.waiting_bytes += op_bytes(op);
    if (idle)
        pthread_cond_signal(&sh->wake);
    pthread_mutex_unlock(&sh->lock);
    return 0;
}

int sink_append(struct sink *s, const void *data, size_t len)
{
    return enqueue(s, OP_APPEND, data, len);
}

int sink_begin_tail(struct sink *s, const void *data, size_t len)
{
    return enqueue(s, OP_BEGIN_TAIL, data, len);
}

int sink_replace_tail(struct sink *s, const void *data, size_t len)
{
    return enqueue(s, OP_REPLACE_TAIL, data, len);
}

int sink_turn(struct sink *s, int dirfd, const char *name, const char *old)
{
    struct turn t = {.dir_fd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0)};
    if (t.dir_fd < 0)
        return -errno;
    snprintf(t.name, sizeof t.name, "%s", name);
    snprintf(t.old, sizeof t.old, "%s", old ? old : "");
    int e = enqueue(s, OP_TURN, &t, sizeof t);
    if (e < 0)
        close(t.dir_fd);
    return e;
}

int sink_sync(struct sink *s)
{
    return enqueue(s, OP_SYNC, NULL, 0);
}

void sink_status(const struct sink *s, struct sink_status *ret)
{
    pthread_mutex_lock(&s->sh->lock);
    *ret = s->sh->status;
    pthread_mutex_unlock(&s->sh->lock);
}

int sink_event_fd(const struct sink *s)
{
    return s->sh->event_fd; /* the fd does not change while S exists */
}

void sink_leave_unsynced(struct sink *s)
{
    pthread_mutex_lock(&s->sh->lock);
    s->sh->leaves_unsynced = true;
    pthread_mutex_unlock(&s->sh->lock);
}

void sink_wake_below(struct sink *s, uint64_t bytes)
{
    struct shared *sh = s->sh;
    pthread_mutex_lock(&sh->lock);
    sh->wants_wake = true;
    sh->wake_bytes = bytes;
    wake_if_below(sh);
    pthread_mutex_unlock(&sh->lock);
}

int sink_wait(struct sink *s, uint64_t wait_ns)
{
    struct shared *sh = s->sh;
    struct timespec deadline = thread_deadline(wait_ns);
    int e = 0;
    pthread_mutex_lock(&sh->lock);
    while (sh->first && e != ETIMEDOUT)
        e = pthread_cond_timedwait(&sh->done, &sh->lock, &deadline);
    bool drained = !sh->first;
    pthread_mutex_unlock(&sh->lock);
    return drained ? 0 : -ETIMEDOUT;
}

int sink_close(struct sink *s, uint64_t wait_ns)
{
    if (!s)
        return 0;
    struct shared *sh = s->sh;
    struct timespec deadline = thread_deadline(wait_ns);
    pthread_mutex_lock(&sh->lock);
    sh->closing = true;
    pthread_cond_signal(&sh->wake);
    while (!sh->finished)
        if (pthread_cond_timedwait(&sh->done, &sh->lock, &deadline) == ETIMEDOUT)
            break;
    bool finished = sh->finished;
    int e = sh->status.first_error;
    sh->abandoned = !finished;
    pthread_mutex_unlock(&sh->lock);
    if (finished)
        pthread_join(s->thread, NULL);
    else
        pthread_detach(s->thread);
    shared_unref(sh);
    free(s);
    return finished ? e : -ETIMEDOUT;
}
