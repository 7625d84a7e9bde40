/* Searches the modules of a process for an interpreter, and verifies the known layout of its
 * version. */
#include "attach/interpreter.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "attach/target.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/span.h"

enum {
    THREADS_MAX = 1 << 16,
    RUNTIME_BYTES = 2048,     /* bytes read from _PyRuntime, which include _Py_DebugOffsets */
    SPARE_LEAST = 64,         /* ranges of fewer unused bytes are ignored */
    RETRY_MS = 5,             /* time between two attempts */
    RETRY_S = 2,              /* time limit of all attempts */
    CALLS_TO_DO_BIT = 1 << 2, /* bit of eval_breaker, from 3.13 on */
};

/* The memory layout of one minor version of Python: offsets, in bytes, of the queue of pending
 * calls and of the fields that lead to it. From `busy` to `last`, offsets are relative to
 * PyInterpreterState up to 3.11, and to _PyRuntime from 3.12 on. */
struct entry_layout {
    uint32_t minor;
    /* fields of _PyRuntime: the main interpreter, and the main thread's pthread_t */
    uint32_t main_interpreter, main_thread;
    /* fields of PyInterpreterState: the pointer to _PyRuntime, and the first thread */
    uint32_t state_runtime, state_threads;
    /* fields of PyThreadState */
    uint32_t thread_id, thread_native_id;
    bool is_in_runtime, is_lock_byte;
    uint32_t busy, busy_bytes, lock, count, calls, call_bytes, call_count, first, last;
    /* eval_breaker, in PyInterpreterState up to 3.12, and in the main PyThreadState from 3.13 on */
    uint32_t breaker;
};

enum { THREAD_NEXT = 8, THREAD_INTERP = 16 }; /* offsets that are the same in all versions */

/* Offsets that several versions have in common. */
#define CALLS_OF_3_9 .call_bytes = 16, .call_count = 32
#define QUEUE_OF_3_9                                                                               \
    CALLS_OF_3_9, .main_interpreter = 40, .main_thread = 72, .state_runtime = 16,                  \
                  .state_threads = 8, .thread_id = 176, .lock = 80, .count = 88, .calls = 96,      \
                  .first = 608, .last = 612

static const struct entry_layout entry_layouts[] = {
    {QUEUE_OF_3_9, .minor = 9, .breaker = 72},
    {QUEUE_OF_3_9, .minor = 10, .breaker = 68},
    {CALLS_OF_3_9, .minor = 11, .main_interpreter = 48, .main_thread = 80, .state_runtime = 40,
     .state_threads = 16, .thread_id = 152, .thread_native_id = 160, .lock = 112, .count = 120,
     .calls = 128, .first = 640, .last = 644, .breaker = 100},
    {CALLS_OF_3_9, .minor = 12, .main_interpreter = 48, .main_thread = 64, .state_runtime = 96,
     .state_threads = 72, .thread_id = 136, .thread_native_id = 144, .is_in_runtime = true,
     .busy = 2016, .busy_bytes = 4, .lock = 2024, .count = 2032, .calls = 2040, .first = 2552,
     .last = 2556, .breaker = 368},
    {.minor = 13,
     .main_interpreter = 640,
     .main_thread = 656,
     .state_runtime = 7376,
     .state_threads = 7344,
     .thread_id = 152,
     .thread_native_id = 160,
     .is_in_runtime = true,
     .is_lock_byte = true,
     .busy = 2640,
     .busy_bytes = 8,
     .lock = 2648,
     .count = 2652,
     .calls = 2664,
     .call_bytes = 24,
     .call_count = 300,
     .first = 9864,
     .last = 9868,
     .breaker = 24},
};
/* In 3.13, the queue contains a constant: its offset and its value. */
enum { QUEUE_MOST_3_13 = 2656, CALLS_MOST_3_13 = 32 };

static const struct entry_layout *layout_of(uint32_t minor)
{
    for (size_t i = 0; i < sizeof entry_layouts / sizeof *entry_layouts; i++)
        if (entry_layouts[i].minor == minor)
            return &entry_layouts[i];
    return NULL;
}

/* ---- verifying ---- */

/* Finds the thread whose pthread_t is ID in the interpreter's list of threads. All threads in the
 * list must point back to the interpreter's state. Returns 0, or -EAGAIN if the list is
 * inconsistent, as it may be while a thread starts or ends. */
static int find_main_thread(int fd, struct interpreter *i, uint64_t id)
{
    uint64_t thread, of, own;
    i->main_thread = 0;
    if (!attach_read_word(fd, i->threads, &thread))
        return -EAGAIN;
    for (size_t n = 0; thread && n < THREADS_MAX; n++) {
        if (!attach_read_word(fd, thread + i->thread_interp, &of) || of != i->state ||
            !attach_read_word(fd, thread + i->thread_id, &own))
            return -EAGAIN;
        if (own == id)
            i->main_thread = thread;
        if (!attach_read_word(fd, thread + i->thread_next, &thread))
            return -EAGAIN;
    }
    return i->main_thread ? 0 : -EAGAIN;
}

static bool queue_is_plausible(int fd, const struct interpreter *i, uint32_t minor)
{
    const struct interpreter_queue *q = &i->queue;
    uint64_t semaphore = 0;
    uint32_t first, last, count, breaker, most;
    uint8_t byte = 0;
    if (!attach_read_int(fd, q->first, &first) || !attach_read_int(fd, q->last, &last) ||
        !attach_read_int(fd, q->count, &count) || !attach_read_int(fd, q->breaker, &breaker))
        return false;
    if (first >= q->call_count || last >= q->call_count || count > q->call_count)
        return false;
    if (minor == 13 &&
        (!attach_read_int(fd, i->runtime + QUEUE_MOST_3_13, &most) || most != CALLS_MOST_3_13))
        return false;
    if (q->is_lock_byte)
        return attach_read(fd, q->lock, &byte, sizeof byte) && byte < 4;
    /* before 3.13 the lock is a semaphore of the C library with the value 0 or 1 */
    return breaker <= 1 && attach_read_word(fd, q->lock, &semaphore) && (uint32_t)semaphore <= 1;
}

static int take_queue(int fd, struct interpreter *i, const struct entry_layout *l)
{
    uint64_t base = l->is_in_runtime ? i->runtime : i->state;
    struct interpreter_queue q = {
        .is_lock_byte = l->is_lock_byte,
        .busy = l->busy_bytes ? base + l->busy : 0,
        .busy_bytes = l->busy_bytes,
        .count = base + l->count,
        .calls = base + l->calls,
        .call_bytes = l->call_bytes,
        .call_count = l->call_count,
        .first = base + l->first,
        .last = base + l->last,
        .lock = base + l->lock,
        .breaker = i->state + l->breaker,
        .breaker_bytes = 4,
        .bit = 1,
    };
    if (l->minor >= 13) {
        q.breaker = i->main_thread + l->breaker;
        q.breaker_bytes = 8;
        q.bit = CALLS_TO_DO_BIT;
    }
    if (!l->is_lock_byte && !attach_read_word(fd, q.lock, &q.lock))
        return -EAGAIN;
    i->queue = q;
    if (!queue_is_plausible(fd, i, l->minor))
        return -EBADMSG;
    i->entry = INTERPRETER_QUEUE;
    return 0;
}

/* Returns 0; -EAGAIN if Python has not started yet or its list of threads is changing; or -EBADMSG
 * if the memory does not have the layout L. */
static int take_state(int fd, struct interpreter *i, const struct entry_layout *l)
{
    uint64_t runtime, id;
    i->thread_next = THREAD_NEXT;
    i->thread_interp = THREAD_INTERP;
    i->thread_id = l->thread_id;
    i->thread_native_id = l->thread_native_id;
    if (!attach_read_word(fd, i->runtime + l->main_interpreter, &i->state))
        return -EBADMSG;
    if (!i->state)
        return -EAGAIN;
    if (!attach_read_word(fd, i->state + l->state_runtime, &runtime) || runtime != i->runtime ||
        !attach_read_word(fd, i->runtime + l->main_thread, &id))
        return -EBADMSG;
    i->threads = i->state + l->state_threads;
    int r = find_main_thread(fd, i, id);
    return r < 0 ? r : take_queue(fd, i, l);
}

/* ---- Python 3.14 ---- */

/* Indices of words in _Py_DebugOffsets of 3.14. Each word is the offset of a field. */
enum debug_word {
    DEBUG_INTERPRETERS = 5, /* field of _PyRuntime: the list of interpreters */
    DEBUG_STATE_ID = 7,     /* field of PyInterpreterState */
    DEBUG_STATE_NEXT = 8,
    DEBUG_STATE_THREADS = 9, /* field of PyInterpreterState: the first thread */
    DEBUG_STATE_MAIN = 10,   /* field of PyInterpreterState: the main thread */
    DEBUG_THREAD_NEXT = 24,  /* field of PyThreadState */
    DEBUG_THREAD_INTERP = 25,
    DEBUG_THREAD_ID = 27,
    DEBUG_NATIVE_ID = 28,
    DEBUG_BREAKER = 89,
    DEBUG_SUPPORT = 90, /* field of PyThreadState: the struct for PEP 768 */
    DEBUG_ENABLED = 91, /* field of PyInterpreterState */
    DEBUG_PENDING = 92, /* field of the struct for PEP 768 */
    DEBUG_PATH = 93,
    DEBUG_PATH_BYTES = 94, /* this word is the size of the path's buffer in bytes */
};
enum { OFFSET_MAX = 1 << 20, PATH_BYTES_MAX = 4096, INTERPRETERS_MAX = 1024 };

/* Finds the main interpreter, whose id is 0. It was created first, so it comes last in the list. */
static int find_main_state(int fd, struct interpreter *i, const uint64_t *word)
{
    uint64_t id;
    if (!attach_read_word(fd, i->runtime + word[DEBUG_INTERPRETERS], &i->state))
        return -EBADMSG;
    for (size_t n = 0; i->state && n < INTERPRETERS_MAX; n++) {
        if (!attach_read_word(fd, i->state + word[DEBUG_STATE_ID], &id))
            return -EBADMSG;
        if (id == 0)
            return 0;
        if (!attach_read_word(fd, i->state + word[DEBUG_STATE_NEXT], &i->state))
            return -EBADMSG;
    }
    return -EAGAIN;
}

/* Takes the fields from WORD, a copy of _Py_DebugOffsets. */
static int take_debug(int fd, struct interpreter *i, const uint64_t *word)
{
    uint64_t of;
    uint32_t pending, enabled;
    for (size_t n = DEBUG_INTERPRETERS; n <= DEBUG_PATH_BYTES; n++)
        if (word[n] > OFFSET_MAX)
            return -EBADMSG;
    int r = find_main_state(fd, i, word);
    if (r < 0)
        return r;
    i->thread_next = (uint32_t)word[DEBUG_THREAD_NEXT];
    i->thread_interp = (uint32_t)word[DEBUG_THREAD_INTERP];
    i->thread_id = (uint32_t)word[DEBUG_THREAD_ID];
    i->thread_native_id = (uint32_t)word[DEBUG_NATIVE_ID];
    i->threads = i->state + word[DEBUG_STATE_THREADS];
    if (!attach_read_word(fd, i->state + word[DEBUG_STATE_MAIN], &i->main_thread))
        return -EBADMSG;
    if (!i->main_thread || !attach_read_word(fd, i->main_thread + i->thread_interp, &of))
        return -EAGAIN;
    uint64_t support = i->main_thread + word[DEBUG_SUPPORT];
    i->debug = (struct interpreter_debug){.breaker = i->main_thread + word[DEBUG_BREAKER],
                                          .pending = support + word[DEBUG_PENDING],
                                          .path = support + word[DEBUG_PATH],
                                          .path_bytes = word[DEBUG_PATH_BYTES],
                                          .enabled = i->state + word[DEBUG_ENABLED]};
    if (of != i->state || !attach_read_int(fd, i->debug.pending, &pending) || pending > 1 ||
        !attach_read_int(fd, i->debug.enabled, &enabled) || enabled > 1 ||
        i->debug.path_bytes > PATH_BYTES_MAX)
        return -EBADMSG;
    i->entry = INTERPRETER_DEBUG;
    return 0;
}

/* ---- recognising ---- */

/* Python 3.11 and later export Py_Version. 3.10 and 3.9 are recognized by functions that are new in
 * these versions. */
static uint32_t version_of(int fd, const struct elf_module *m)
{
    uint64_t address;
    uint32_t version;
    if (elf_module_symbol(m, "Py_Version", &address))
        return attach_read_int(fd, address, &version) ? version : 0;
    if (elf_module_symbol(m, "PyGC_Enable", &address))
        return 0x030a00f0;
    return elf_module_symbol(m, "PyObject_CallNoArgs", &address) ? 0x030900f0 : 0;
}

static int recognise(int fd, const struct elf_module *m, struct interpreter *ret, struct err *err)
{
    struct interpreter i = {.module = *m};
    uint64_t runtime[RUNTIME_BYTES / sizeof(uint64_t)];
    if (!elf_module_symbol(m, "PyRun_SimpleString", &i.run_string) ||
        !elf_module_symbol(m, "PyCode_Type", &i.code_type))
        return -ENOENT;
    i.version = version_of(fd, m);
    uint32_t minor = i.version >> 16 & 0xff;
    if (i.version >> 24 != 3 || minor < 9)
        return err_set(err, -ENOTSUP,
                       "its Python is older than 3.9, the oldest version that ebb can attach to");
    if (!elf_module_symbol(m, "_PyRuntime", &i.runtime) ||
        !elf_module_symbol(m, "PyUnicode_Type", &i.text_type) ||
        !elf_module_symbol(m, "PyBytes_Type", &i.bytes_type))
        return -ENOENT;
    if (!attach_read(fd, i.runtime, runtime, sizeof runtime))
        return err_set(err, -EIO, "the memory of the process cannot be read");
    enum heap_python known = python_layout_find(i.version, runtime, &i.layout);
    i.has_layout = known == HEAP_PYTHON_OK;
    if (known == HEAP_PYTHON_FREE_THREADED)
        return err_set(err, -ENOTSUP, "free-threaded Python is not supported");
    const struct entry_layout *l = layout_of(minor);
    if (!l && minor != 14)
        return err_set(err, -ENOTSUP, "Python 3.%u is not supported", (unsigned)minor);
    int r = l ? take_state(fd, &i, l) : i.has_layout ? take_debug(fd, &i, runtime) : -EBADMSG;
    if (r == -EBADMSG)
        return err_set(err, r, "the memory layout of this build of Python 3.%u is not supported",
                       (unsigned)minor);
    if (r == -EAGAIN)
        return err_set(err, r, "Python is starting or exiting");
    *ret = i;
    return r;
}

/* ---- searching ---- */

/* True if PATH is the dynamic loader, which uses the last bytes of its data page for its own
 * allocations. */
static bool is_loader(const struct proc_map *map)
{
    struct span path = {map->path, map->path_len};
    return span_find(path, "/ld-") || span_find(path, "/ld.so");
}

static bool is_zero(int fd, uint64_t address, uint64_t len)
{
    char bytes[4096];
    if (len > sizeof bytes || !attach_read(fd, address, bytes, len))
        return false;
    for (uint64_t i = 0; i < len; i++)
        if (bytes[i])
            return false;
    return true;
}

/* The search through the modules of a process. */
struct search {
    const struct attach_target *t;
    struct interpreter found;
    int r; /* result of recognise() for the last module that has symbols of Python, or -ENOENT */
    struct err why;
    uint64_t spare, spare_bytes;
};

static void search_module(struct search *s, const struct proc_map *map)
{
    struct elf_module m;
    struct err err = {""};
    int fd = s->t->mem_fd;
    if (elf_module_read(fd, map->start, s->t->root->page_bytes, &m) < 0)
        return;
    if (m.tail_bytes > s->spare_bytes && m.tail_bytes >= SPARE_LEAST && !is_loader(map) &&
        is_zero(fd, m.tail, m.tail_bytes)) {
        s->spare = m.tail;
        s->spare_bytes = m.tail_bytes;
    }
    if (s->r == 0)
        return;
    int r = recognise(fd, &m, &s->found, &err);
    if (r != -ENOENT) {
        s->r = r;
        s->why = err;
    }
}

/* Searches every module that is listed in TEXT, the content of /proc/PID/maps. A module begins with
 * the first mapping of its file. */
static void search_maps(struct search *s, const char *text, size_t len)
{
    const char *at = text, *end = text + len;
    struct proc_map map, before = {0};
    while (proc_maps_next(&at, end, &map) == 1) {
        bool is_same = before.inode == map.inode && before.dev_major == map.dev_major &&
                       before.dev_minor == map.dev_minor;
        before = map;
        if (map.inode && map.readable && !map.shared && !is_same)
            search_module(s, &map);
    }
}

int interpreter_find(const struct attach_target *t, struct interpreter *ret, struct err *err)
{
    struct search s = {.t = t, .r = -ENOENT};
    struct buf maps = {0};
    int r = attach_target_file(t, "maps", ATTACH_MAPS_MAX, &maps);
    if (r < 0 || !attach_target_lives(t))
        r = attach_target_gone(t, err);
    else
        search_maps(&s, buf_str(&maps), maps.len);
    buf_fini(&maps);
    if (r < 0)
        return r;
    if (s.r == -ENOENT)
        return err_set(err, s.r,
                       "process %d (%s) is not Python, or its Python exports no symbols, as in "
                       "some static builds",
                       (int)t->pid, t->name);
    if (s.r < 0)
        return err_set(err, s.r, "process %d (%s): %s", (int)t->pid, t->name, s.why.text);
    *ret = s.found;
    ret->spare = s.spare;
    ret->spare_bytes = s.spare_bytes;
    return 0;
}

/* The interpreter does not clear the path of a script of PEP 768 after it has run the script, and
 * each entry of the queue moves the ring's indices. Some versions clear the entry. */
bool interpreter_is_untouched(const struct attach_target *t, const struct interpreter *i)
{
    uint32_t first, last;
    uint64_t call;
    char byte;
    if (i->entry == INTERPRETER_DEBUG)
        return attach_read(t->mem_fd, i->debug.path, &byte, sizeof byte) && byte == 0;
    return attach_read_int(t->mem_fd, i->queue.first, &first) && first == 0 &&
           attach_read_int(t->mem_fd, i->queue.last, &last) && last == 0 &&
           attach_read_word(t->mem_fd, i->queue.calls, &call) && call == 0;
}

int interpreter_find_patiently(const struct attach_target *t, struct interpreter *ret,
                               struct err *err)
{
    const struct timespec pause = {.tv_nsec = RETRY_MS * 1000000L};
    const uint64_t until_ns = clock_mono_ns() + RETRY_S * NS_PER_S;
    for (;;) {
        int r = interpreter_find(t, ret, err);
        /* these errors may be temporary, for example while Python is being loaded */
        bool may_change = r == -EAGAIN || r == -EBADMSG || r == -EIO;
        if (!may_change || clock_mono_ns() > until_ns)
            return r;
        nanosleep(&pause, NULL);
    }
}
