/* Walks the frames of each Python thread, with the layouts from heap/python_layout.c. Every pointer
 * may be stale. */
#include "attach/stack.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/interpreter.h"
#include "attach/target.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/text.h"
#include "proc/read.h"
#include "profile/pylines.h"

enum {
    THREADS_MAX = 4096,
    FRAMES_MAX = 1000,
    WALK_TRIES =
        10, /* maximum number of attempts to read a stack or a thread list that keeps changing */
    LINES_MAX = 128 << 10, /* maximum length of a line table in bytes */
    NAME_MAX_CHARS = 256,
};

struct stack_walk {
    const struct attach_target *t;
    const struct interpreter *i;
    int fd;
    uint64_t *threads; /* array of THREADS_MAX */
    size_t thread_count;
    struct stack_frame *frames; /* array of FRAMES_MAX with the stack that was read last */
    size_t frame_count;
};

static bool is_of_type(const struct stack_walk *w, uint64_t object, uint64_t type)
{
    uint64_t there;
    return object && object % 8 == 0 &&
           attach_read_word(w->fd, object + w->i->layout.object_type, &there) && there == type;
}

/* Reads a string and escapes it. If the string is too long, its end is kept, because the end of a
 * path matters most. */
static bool read_text(const struct stack_walk *w, uint64_t text, char ret[STACK_TEXT_MAX])
{
    const struct python_layout *l = &w->i->layout;
    uint8_t raw[4 * NAME_MAX_CHARS];
    char utf8[4 * NAME_MAX_CHARS];
    uint64_t count;
    uint32_t state;
    size_t len = 0;
    if (!is_of_type(w, text, w->i->text_type) ||
        !attach_read_int(w->fd, text + l->text_state, &state) ||
        !attach_read_word(w->fd, text + l->text_length, &count))
        return false;
    uint32_t width = state >> 2 & 7;
    bool is_compact = state >> 5 & 1, is_ascii = state >> 6 & 1;
    if (!is_compact || (width != 1 && width != 2 && width != 4) || count > INT32_MAX)
        return false;
    uint64_t at = text + (is_ascii ? l->text_ascii : l->text_other);
    if (count > NAME_MAX_CHARS) {
        at += (count - NAME_MAX_CHARS) * width;
        count = NAME_MAX_CHARS;
    }
    if (!attach_read(w->fd, at, raw, count * width))
        return false;
    for (size_t k = 0; k < count; k++) {
        uint32_t c = 0;
        memcpy(&c, raw + k * width, width);
        len += python_layout_encode(c, utf8 + len);
    }
    text_fit(ret, STACK_TEXT_MAX, STACK_TEXT_MAX, utf8, len);
    return true;
}

static uint32_t read_line(const struct stack_walk *w, uint64_t code, uint32_t instr)
{
    const struct python_layout *l = &w->i->layout;
    static uint8_t table[LINES_MAX];
    uint64_t lines, size;
    uint32_t first = 0, line;
    if (!attach_read_int(w->fd, code + l->code_first_line, &first))
        return 0;
    line = first;
    if (instr != HEAP_INSTR_UNKNOWN && attach_read_word(w->fd, code + l->code_lines, &lines) &&
        is_of_type(w, lines, w->i->bytes_type) &&
        attach_read_word(w->fd, lines + l->bytes_size, &size) && size <= LINES_MAX &&
        attach_read(w->fd, lines + l->bytes_data, table, size))
        (void)pylines_find(table, size, w->i->version, first, instr, &line);
    return line;
}

/* Returns the byte offset of the instruction that the frame is executing. */
static uint32_t read_instr(const struct stack_walk *w, uint64_t frame, uint64_t code)
{
    const struct python_layout *l = &w->i->layout;
    uint64_t at;
    uint32_t last;
    if (l->instr != PYTHON_INSTR_POINTER) {
        if (!attach_read_int(w->fd, frame + l->frame_instr, &last) || last > INT32_MAX / 2)
            return HEAP_INSTR_UNKNOWN;
        return last * (l->instr == PYTHON_INSTR_UNITS ? 2 : 1);
    }
    if (!attach_read_word(w->fd, frame + l->frame_instr, &at) || at < code + l->code_instrs ||
        at - (code + l->code_instrs) > INT32_MAX)
        return HEAP_INSTR_UNKNOWN;
    return (uint32_t)(at - (code + l->code_instrs));
}

/* Reads one frame. Returns 1 for a frame of a Python function, 0 for a shim frame, which the
 * interpreter uses internally, or -EBADMSG. */
static int read_frame(const struct stack_walk *w, uint64_t frame, uint64_t *ret_back,
                      struct stack_frame *ret)
{
    const struct python_layout *l = &w->i->layout;
    uint64_t code, file, name;
    uint8_t owner = 0;
    if (frame % 8 || !attach_read_word(w->fd, frame + l->frame_back, ret_back) ||
        !attach_read_word(w->fd, frame + l->frame_code, &code))
        return -EBADMSG;
    if (l->has_owner && !attach_read(w->fd, frame + l->frame_owner, &owner, sizeof owner))
        return -EBADMSG;
    if (l->has_owner && owner >= l->shim_owner)
        return 0;
    code &= ~UINT64_C(7); /* from Python 3.14 on, the low bits are tags */
    if (!is_of_type(w, code, w->i->code_type) ||
        !attach_read_word(w->fd, code + l->code_file, &file) ||
        !attach_read_word(w->fd, code + l->code_name, &name) || !read_text(w, file, ret->file) ||
        !read_text(w, name, ret->function))
        return -EBADMSG;
    ret->line = read_line(w, code, read_instr(w, frame, code));
    return 1;
}

/* Reads the frames of THREAD. Returns true if all frames were read; *RET_OUTERMOST is the address
 * of the outermost frame that was read. */
static bool walk_thread(struct stack_walk *w, uint64_t thread, uint64_t *ret_outermost)
{
    const struct python_layout *l = &w->i->layout;
    uint64_t frame = 0;
    w->frame_count = 0;
    *ret_outermost = 0;
    if (!attach_read_word(w->fd, thread + l->thread_frame, &frame) ||
        (l->has_cframe && frame && !attach_read_word(w->fd, frame + l->cframe_frame, &frame)))
        return false;
    for (size_t n = 0; frame && n < FRAMES_MAX; n++) {
        *ret_outermost = frame;
        int r = read_frame(w, frame, &frame, &w->frames[w->frame_count]);
        if (r < 0)
            return false;
        w->frame_count += r > 0;
    }
    return !frame;
}

static void about_thread(const struct stack_walk *w, uint64_t thread, struct stack_thread *ret)
{
    char path[48], comm[32];
    uint64_t tid = 0;
    *ret = (struct stack_thread){.is_main = thread == w->i->main_thread};
    if (w->i->thread_native_id && attach_read_word(w->fd, thread + w->i->thread_native_id, &tid) &&
        tid <= INT32_MAX)
        ret->tid = (int32_t)tid;
    if (ret->is_main)
        ret->tid = w->t->pid;
    snprintf(path, sizeof path, "task/%d/comm", (int)ret->tid);
    ssize_t len = ret->tid ? proc_read(w->t->root, w->t->pid, path, comm, sizeof comm) : 0;
    if (len > 0)
        text_fit(ret->name, sizeof ret->name, 16, comm, strcspn(comm, "\n"));
}

/* Reads the frames of THREAD until two attempts in a row find the same outermost frame. A single
 * attempt is not enough, because a frame that is being pushed or popped may look like the outermost
 * one. */
static bool walk_patiently(struct stack_walk *w, uint64_t thread)
{
    uint64_t outermost, before;
    bool is_whole = walk_thread(w, thread, &before);
    for (int tries = 0; tries < WALK_TRIES; tries++, before = outermost) {
        bool was_whole = is_whole;
        is_whole = walk_thread(w, thread, &outermost);
        if (is_whole && was_whole && outermost == before)
            return true;
    }
    return false;
}

static void report_thread(struct stack_walk *w, uint64_t thread, stack_thread_fn *fn, void *user)
{
    struct stack_thread about;
    bool is_whole = walk_patiently(w, thread);
    about_thread(w, thread, &about);
    about.frames = w->frames;
    about.frame_count = w->frame_count;
    about.is_cut = !is_whole;
    fn(user, &about);
}

/* Lists the threads. Returns false if the interpreter's list changed while ebb read it; w->threads
 * is then incomplete. */
static bool list_threads(struct stack_walk *w)
{
    uint64_t thread, of;
    w->thread_count = 0;
    if (!attach_read_word(w->fd, w->i->threads, &thread))
        return false;
    while (thread && w->thread_count < THREADS_MAX) {
        if (!attach_read_word(w->fd, thread + w->i->thread_interp, &of) || of != w->i->state)
            return false; /* the thread has ended */
        w->threads[w->thread_count++] = thread;
        if (!attach_read_word(w->fd, thread + w->i->thread_next, &thread))
            return false;
    }
    return true;
}

int stack_read(const struct attach_target *t, const struct interpreter *i, stack_thread_fn *fn,
               void *user, struct err *err)
{
    struct stack_walk w = {.t = t, .i = i, .fd = t->mem_fd};
    if (!i->has_layout)
        return err_set(err, -ENOTSUP,
                       "process %d (%s): cannot read its Python stacks: the memory layout of this "
                       "Python build is not supported",
                       (int)t->pid, t->name);
    AUTO_FREE struct stack_frame *frames = w.frames = calloc(FRAMES_MAX, sizeof *frames);
    AUTO_FREE uint64_t *threads = w.threads = calloc(THREADS_MAX, sizeof *threads);
    if (!frames || !threads)
        return err_set(err, -ENOMEM, "out of memory");
    for (int tries = 0; tries < WALK_TRIES && !list_threads(&w);)
        tries++;
    report_thread(&w, i->main_thread, fn, user);
    for (size_t n = 0; n < w.thread_count; n++)
        if (w.threads[n] != i->main_thread)
            report_thread(&w, w.threads[n], fn, user);
    return attach_target_lives(t) ? 0 : attach_target_gone(t, err);
}
