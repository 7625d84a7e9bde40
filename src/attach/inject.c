/* Writes a request to run a script into the memory of a stopped Python process. The request goes
 * into the interpreter's queue of pending calls or, from Python 3.14 on, into the buffer that PEP
 * 768 added. */
#include "attach/inject.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "attach/freeze.h"
#include "base/clock.h"
#include "base/err.h"

enum {
    FREEZE_MS = 10, /* maximum time for which the process is paused */
    /* Each pause between attempts is twice as long as the previous one, from RETRY_MS up to
     * RETRY_MOST_MS. On a machine with many more runnable threads than cores, a thread may take
     * longer than FREEZE_MS to stop, and the attempt fails. */
    RETRY_MS = 20,
    RETRY_MOST_MS = 320,
    RETRY_S = 10, /* time limit of all attempts */
    /* a queue entry has these words: a function, its argument and, from 3.13 on, flags */
    ENTRY_WORDS = 3,
    STOP_BIT = 1 << 5, /* bit of eval_breaker that requests a remote script */
};

/* Sleeps for MS. Returns false if SIGINT or SIGTERM has arrived. These signals are blocked and stay
 * pending, because ebb's main loop does not run here. */
static bool pause_ms(int ms)
{
    sigset_t pending;
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
    return sigpending(&pending) < 0 ||
           !(sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM));
}

/* ---- the queue; these functions run while the process is stopped ---- */

static bool queue_is_free(int fd, const struct interpreter_queue *q)
{
    uint64_t busy = 0, semaphore = 0;
    uint8_t byte = 0;
    if (q->busy && (!attach_read(fd, q->busy, &busy, q->busy_bytes) || busy))
        return false;
    if (q->is_lock_byte)
        return attach_read(fd, q->lock, &byte, sizeof byte) && byte == 0;
    return attach_read_word(fd, q->lock, &semaphore) && (uint32_t)semaphore == 1;
}

static bool set_bits(int fd, uint64_t address, uint32_t bytes, uint64_t bits)
{
    uint64_t value = 0;
    if (!attach_read(fd, address, &value, bytes))
        return false;
    value |= bits;
    return attach_write(fd, address, &value, bytes);
}

static int queue_put(void *user)
{
    const struct inject *i = user;
    const struct interpreter_queue *q = &i->interpreter.queue;
    int fd = i->target->mem_fd;
    uint32_t first, last, count, one = 1;
    if (!attach_read_int(fd, q->first, &first) || !attach_read_int(fd, q->last, &last) ||
        !attach_read_int(fd, q->count, &count))
        return -ESRCH;
    if (!queue_is_free(fd, q) || first != last || count || last >= q->call_count)
        return -EAGAIN;
    uint64_t entry[ENTRY_WORDS] = {i->interpreter.run_string, i->text_at, 0};
    uint32_t next = (uint32_t)((last + 1) % q->call_count);
    if (!attach_write(fd, q->calls + last * q->call_bytes, entry, q->call_bytes) ||
        !attach_write(fd, q->last, &next, sizeof next) ||
        !attach_write(fd, q->count, &one, sizeof one) ||
        !set_bits(fd, q->breaker, q->breaker_bytes, q->bit))
        return -ESRCH;
    return 0;
}

/* Removes ebb's entry if the queue has no other entry. The queue is empty afterwards. */
static int queue_take_back(void *user)
{
    const struct inject *i = user;
    const struct interpreter_queue *q = &i->interpreter.queue;
    int fd = i->target->mem_fd;
    uint32_t first, last, zero = 0;
    uint64_t argument;
    if (!attach_read_int(fd, q->first, &first) || !attach_read_int(fd, q->last, &last))
        return -ESRCH;
    if (!queue_is_free(fd, q))
        return -EAGAIN;
    if (first >= q->call_count || last != (first + 1) % q->call_count ||
        !attach_read_word(fd, q->calls + first * q->call_bytes + 8, &argument) ||
        argument != i->text_at)
        return -EALREADY;
    return attach_write(fd, q->count, &zero, sizeof zero) &&
                   attach_write(fd, q->last, &first, sizeof first)
               ? 0
               : -ESRCH;
}

/* ---- PEP 768 ---- */

static int debug_put(void *user)
{
    const struct inject *i = user;
    const struct interpreter_debug *d = &i->interpreter.debug;
    int fd = i->target->mem_fd;
    uint32_t pending, one = 1;
    if (!attach_read_int(fd, d->pending, &pending))
        return -ESRCH;
    if (pending)
        return -EAGAIN;
    return attach_write(fd, d->path, i->text, i->text_len) &&
                   attach_write(fd, d->pending, &one, sizeof one) &&
                   set_bits(fd, d->breaker, sizeof(uint64_t), STOP_BIT)
               ? 0
               : -ESRCH;
}

static int debug_take_back(void *user)
{
    const struct inject *i = user;
    const struct interpreter_debug *d = &i->interpreter.debug;
    int fd = i->target->mem_fd;
    uint32_t pending, zero = 0;
    if (!attach_read_int(fd, d->pending, &pending))
        return -ESRCH;
    if (!pending)
        return -EALREADY;
    return attach_write(fd, d->pending, &zero, sizeof zero) ? 0 : -ESRCH;
}

/* ---- passing the script to the interpreter ---- */

/* Calls FN while the process is stopped. Tries again for a while if FN returns -EAGAIN or the
 * process did not stop in time. */
static int while_frozen(struct inject *i, int (*fn)(void *user))
{
    const uint64_t until_ns = clock_mono_ns() + RETRY_S * NS_PER_S;
    for (int ms = RETRY_MS;; ms = ms < RETRY_MOST_MS ? 2 * ms : ms) {
        struct freeze_result f =
            freeze_call(i->target->root->proc_fd, i->target->pid, FREEZE_MS * NS_PER_MS, fn, i);
        if (f.pause_ns > i->pause_ns)
            i->pause_ns = f.pause_ns;
        if ((f.r != -EAGAIN && f.r != -ETIMEDOUT) || clock_mono_ns() > until_ns || !pause_ms(ms))
            return f.r;
    }
}

/* Writes the statement that runs the script at PATH, which may contain any bytes. Functions are
 * called through their modules, because the program may have its own `exec` or `open`. */
static bool make_statement(struct inject *i, const char *path)
{
    size_t len = (size_t)snprintf(i->text, sizeof i->text,
                                  "try:__import__('builtins').exec(__import__('io').open(b'");
    for (; *path && len + 40 < sizeof i->text; path++) {
        bool is_plain = isalnum((unsigned char)*path) || strchr("/._-", *path);
        len += (size_t)snprintf(i->text + len, sizeof i->text - len, is_plain ? "%c" : "\\x%02x",
                                (unsigned char)*path);
    }
    len += (size_t)snprintf(i->text + len, sizeof i->text - len, "').read(),{})\nexcept:pass\n");
    i->text_len = len + 1;
    return !*path && i->text_len <= sizeof i->text;
}

static int put_statement(struct inject *i, const char *path, struct err *err)
{
    const struct attach_target *t = i->target;
    if (!make_statement(i, path))
        return err_set(err, -ENAMETOOLONG, "the path %s is too long; set TMPDIR to a shorter one",
                       path);
    if (i->interpreter.spare_bytes < i->text_len)
        return err_set(err, -ENOSPC,
                       "process %d (%s) has too little unused memory for the path of ebb's script; "
                       "set TMPDIR to a shorter path",
                       (int)t->pid, t->name);
    i->text_at = i->interpreter.spare;
    if (!attach_write(t->mem_fd, i->text_at, i->text, i->text_len))
        return attach_target_gone(t, err);
    return 0;
}

static int put_path(struct inject *i, const char *path, struct err *err)
{
    const struct attach_target *t = i->target;
    uint32_t enabled = 0;
    i->text_len = strlen(path) + 1;
    if (i->text_len > sizeof i->text || i->text_len > i->interpreter.debug.path_bytes)
        return err_set(err, -ENAMETOOLONG, "the path %s is too long; set TMPDIR to a shorter one",
                       path);
    memcpy(i->text, path, i->text_len);
    if (!attach_read_int(t->mem_fd, i->interpreter.debug.enabled, &enabled))
        return attach_target_gone(t, err);
    if (!enabled)
        return err_set(err, -EPERM,
                       "process %d (%s) was started with PYTHON_DISABLE_REMOTE_DEBUG or -X "
                       "disable-remote-debug; start it with ebb run or with EBB_ATTACH=1",
                       (int)t->pid, t->name);
    return 0;
}

static int inject_failed(struct inject *i, int r, struct err *err)
{
    const struct attach_target *t = i->target;
    inject_done(i);
    if (!attach_target_lives(t))
        return attach_target_gone(t, err);
    if (r == -ETIMEDOUT)
        return err_set(err, r,
                       "the threads of process %d (%s) could not be paused within %d ms (a thread "
                       "may be waiting for a disk or a CPU core); "
                       "try again",
                       (int)t->pid, t->name, FREEZE_MS);
    if (r == -EAGAIN)
        return err_set(err, r,
                       "the main thread of process %d (%s) has not handled earlier requests; try "
                       "again",
                       (int)t->pid, t->name);
    if (r == -EPERM)
        return err_set(
            err, r,
            "process %d (%s) may not be traced: a debugger traces it, or this container "
            "lacks the capability SYS_PTRACE; detach the debugger, or start the job with "
            "EBB_ATTACH=1",
            (int)t->pid, t->name);
    return attach_target_gone(t, err);
}

int inject_script(const struct attach_target *t, const char *path, struct inject *ret,
                  struct err *err)
{
    struct inject i = {.target = t};
    int r = interpreter_find_patiently(t, &i.interpreter, err);
    if (r < 0)
        return r;
    bool is_queue = i.interpreter.entry == INTERPRETER_QUEUE;
    r = is_queue ? put_statement(&i, path, err) : put_path(&i, path, err);
    if (r < 0)
        return r;
    r = while_frozen(&i, is_queue ? queue_put : debug_put);
    if (r < 0)
        return inject_failed(&i, r, err);
    *ret = i;
    return 0;
}

void inject_done(struct inject *i)
{
    static const char zeroes[sizeof i->text];
    if (i->text_at)
        (void)attach_write(i->target->mem_fd, i->text_at, zeroes, i->text_len);
    i->text_at = 0;
}

int inject_withdraw(struct inject *i)
{
    bool is_queue = i->interpreter.entry == INTERPRETER_QUEUE;
    int r = while_frozen(i, is_queue ? queue_take_back : debug_take_back);
    if (r == 0)
        inject_done(i);
    return r;
}
