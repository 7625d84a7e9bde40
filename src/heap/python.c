/* Finds the Python interpreter, verifies its layout, and reads the frames of this thread. */
#include "heap/python.h"

#include <stdatomic.h>
#include <string.h>

#include "heap/life.h"
#include "heap/modules.h"
#include "heap/python_code.h"
#include "heap/python_layout.h"
#include "heap/python_small.h"
#include "heap/python_symbols.h"
#include "heap/unwind_stack.h"

enum phase {
    ABSENT,  /* the interpreter was not found, perhaps not loaded yet */
    FOUND,   /* the symbols are known, but the interpreter is not initialised yet */
    CHECK,   /* the layout will be trusted after one stack has been walked with it */
    SETTLED, /* the result is in the variable `verdict` */
};
enum {
    CHAIN_MAX = 100000, /* maximum number of frames of a chain; a longer chain is corrupt */
    CHECK_MAX = 256,    /* number of frames that are checked before the layout is trusted */
    /* Number of attempts. A wrong layout fails every time; a stack that is just being changed fails
     * only once. */
    CHECK_TRIES = 8,
    LINE_MAX = 1 << 28,
};

static _Atomic(uint32_t) phase;
static _Atomic(uint32_t) verdict; /* an enum heap_python, valid from phase CHECK on */
static _Atomic(uint32_t) is_detecting;
/* The thread that detects Python writes these variables before other threads read them. */
static struct python_symbols symbols;
static struct python_layout layout;
static _Atomic(uint32_t) version;
static uint32_t checks_failed;

/* The variables below are valid for the current table only. */
static _Atomic(uint32_t) module;
static _Atomic(uint32_t) modules_seen;

/* ---- frames ---- */

/* Reads a field of OBJECT. If IS_CAREFUL, OBJECT may be an invalid address. */
static inline bool get(uintptr_t object, uint16_t offset, size_t len, bool is_careful, void *ret)
{
    uintptr_t at = object + offset;
    if (is_careful && (object & 7 || !unwind_is_readable(at) || !unwind_is_readable(at + len - 1)))
        return false;
    memcpy(ret, (const void *)at, len);
    return true;
}

static inline bool get_word(uintptr_t object, uint16_t offset, bool is_careful, uintptr_t *ret)
{
    return get(object, offset, sizeof *ret, is_careful, ret);
}

struct view {
    uintptr_t back, code;
    uint32_t instr;
    bool is_shim, is_entry;
    bool is_complete;
};

static inline bool is_of_type(uintptr_t object, const void *type, bool is_careful)
{
    uintptr_t there;
    return object && get_word(object, layout.object_type, is_careful, &there) &&
           there == (uintptr_t)type;
}

/* Reads the offset of the current instruction. Also finds out whether the frame has started to run
 * its function. */
static inline bool view_instr(uintptr_t frame, uint8_t owner, bool is_careful, struct view *ret)
{
    if (layout.instr != PYTHON_INSTR_POINTER) {
        int32_t last;
        if (!get(frame, layout.frame_instr, sizeof last, is_careful, &last))
            return false;
        uint32_t unit = layout.instr == PYTHON_INSTR_UNITS ? 2 : 1;
        ret->instr = last < 0 ? HEAP_INSTR_UNKNOWN : (uint32_t)last * unit;
        ret->is_complete = true;
        return true;
    }
    uintptr_t at;
    int32_t first;
    if (!get_word(frame, layout.frame_instr, is_careful, &at) ||
        !get(ret->code, layout.code_first_traceable, sizeof first, is_careful, &first))
        return false;
    intptr_t offset = (intptr_t)(at - (ret->code + layout.code_instrs));
    ret->is_complete = owner == layout.generator_owner || offset >= 2 * (intptr_t)first;
    ret->instr = offset < 0 || offset > INT32_MAX ? HEAP_INSTR_UNKNOWN : (uint32_t)offset;
    return true;
}

/* Reads a frame. Returns false if FRAME does not point to a frame. */
static inline bool view_frame(uintptr_t frame, bool is_careful, struct view *ret)
{
    uint8_t owner = 0, is_entry = 0;
    *ret = (struct view){0};
    if (!get_word(frame, layout.frame_back, is_careful, &ret->back) ||
        !get_word(frame, layout.frame_code, is_careful, &ret->code))
        return false;
    if (layout.has_owner && !get(frame, layout.frame_owner, 1, is_careful, &owner))
        return false;
    if (layout.entry == PYTHON_ENTRY_FIELD &&
        !get(frame, layout.frame_is_entry, 1, is_careful, &is_entry))
        return false;
    ret->is_entry = layout.entry == PYTHON_ENTRY_ALL || is_entry;
    ret->is_shim = layout.has_owner && owner >= layout.shim_owner;
    ret->code &= ~(uintptr_t)7; /* Python 3.14 stores tag bits in the low bits */
    if (ret->is_shim)
        return true;
    return is_of_type(ret->code, symbols.code_type, is_careful) &&
           view_instr(frame, owner, is_careful, ret);
}

static inline bool innermost_frame(uintptr_t thread, bool is_careful, uintptr_t *ret)
{
    uintptr_t frame;
    if (!get_word(thread, layout.thread_frame, is_careful, &frame))
        return false;
    if (layout.has_cframe && frame && !get_word(frame, layout.cframe_frame, is_careful, &frame))
        return false;
    *ret = frame;
    return true;
}

/* Ends the frames of one evaluation loop by marking the outermost frame as the entry frame. If the
 * loop has no frames, adds an empty entry frame. */
static void end_evaluation(struct python_frame *ret, size_t max, size_t *n, size_t *start)
{
    if (*n > *start)
        ret[*n - 1].is_entry = true;
    else if (*n < max)
        ret[(*n)++] = (struct python_frame){.word = 0, .is_entry = true};
    *start = *n;
}

static size_t walk_frames(uintptr_t frame, struct python_frame *ret, size_t max)
{
    /* start is the index of the first frame of the evaluation loop that is being walked */
    size_t n = 0, start = 0;
    struct view v;
    for (size_t i = 0; frame && n < max && i < CHAIN_MAX; i++, frame = v.back) {
        if (!view_frame(frame, false, &v))
            break;
        if (!v.is_shim && v.is_complete) {
            uint64_t code = python_code_index(v.code, &layout, &symbols);
            ret[n++].word = HEAP_FRAME_PYTHON | code << HEAP_FRAME_CODE_SHIFT | v.instr;
            ret[n - 1].is_entry = false;
        }
        /* A shim follows the frames of its evaluation loop, and is never the first frame of the
         * chain. */
        if (v.is_entry || (layout.entry == PYTHON_ENTRY_BELOW && v.is_shim))
            end_evaluation(ret, max, &n, &start);
    }
    return n;
}

/* Returns this thread's state. Returns 0 if the thread has none or the interpreter is shutting
 * down. During the shutdown, other threads may free the state. */
static uintptr_t this_thread(void)
{
    if (!symbols.is_initialized() || symbols.is_finalizing())
        return 0;
    return (uintptr_t)symbols.thread_mine();
}

size_t python_frames(struct python_frame *ret, size_t max)
{
    uintptr_t frame = 0;
    if (HEAP_LOAD_ACQUIRE(phase) != SETTLED || HEAP_LOAD(verdict) != HEAP_PYTHON_OK)
        return 0;
    uintptr_t thread = this_thread();
    if (!thread || !innermost_frame(thread, false, &frame))
        return 0;
    return walk_frames(frame, ret, max);
}

bool python_is_ending(void)
{
    return HEAP_LOAD_ACQUIRE(phase) != ABSENT && symbols.is_finalizing();
}

/* ---- verifying the layout ---- */

static bool is_text(uintptr_t text)
{
    uintptr_t length = 0;
    return is_of_type(text, symbols.text_type, true) &&
           get_word(text, layout.text_length, true, &length) && length < 1 << 20;
}

static bool is_code(uintptr_t code, uint32_t instr)
{
    uintptr_t file = 0, name = 0, lines = 0, units = 0;
    int32_t line = 0;
    /* From 3.11 on, the code object holds its instructions and their number. */
    if (layout.instr == PYTHON_INSTR_POINTER && instr != HEAP_INSTR_UNKNOWN &&
        (!get_word(code, layout.bytes_size, true, &units) || instr >= 2 * units))
        return false;
    return get_word(code, layout.code_file, true, &file) && is_text(file) &&
           get_word(code, layout.code_name, true, &name) && is_text(name) &&
           get_word(code, layout.code_lines, true, &lines) &&
           is_of_type(lines, symbols.bytes_type, true) &&
           get(code, layout.code_first_line, sizeof line, true, &line) && line >= 0 &&
           line < LINE_MAX;
}

/* Walks the stack of THREAD without trusting the layout. Returns HEAP_PYTHON_NONE if no Python
 * function is on the stack yet. */
static enum heap_python check(uintptr_t thread)
{
    uintptr_t frame;
    size_t seen = 0;
    struct view v;
    if (!innermost_frame(thread, true, &frame))
        return HEAP_PYTHON_CHECK;
    for (size_t i = 0; frame && i < CHECK_MAX; i++, frame = v.back) {
        if (!view_frame(frame, true, &v))
            return HEAP_PYTHON_CHECK;
        if (v.is_shim)
            continue;
        if (!is_code(v.code, v.instr))
            return HEAP_PYTHON_CHECK;
        seen++;
    }
    return seen ? HEAP_PYTHON_OK : HEAP_PYTHON_NONE;
}

/* ---- detection ---- */

static void settle_python(enum heap_python state)
{
    HEAP_STORE(verdict, state);
    HEAP_STORE_RELEASE(phase, SETTLED);
}

static void set_symbols(const struct python_symbols *s)
{
    symbols = *s;
    python_small_found(&symbols);
    HEAP_STORE_RELEASE(phase, FOUND);
}

/* Most interpreters are the program itself or a library that the program links to, so they are
 * loaded before the first thread starts. */
static __attribute__((constructor)) void find_at_start(void)
{
    struct python_symbols s;
    if (python_symbols_anywhere(&s))
        set_symbols(&s);
}

static bool is_libpython(const struct heap_table *t, const struct heap_module *m)
{
    static const char prefix[] = "libpython";
    size_t start = m->path.at, end = m->path.at + m->path.len;
    if (end > HEAP_TEXT_BYTES)
        return false;
    for (size_t i = start; i < end; i++)
        if (t->text[i] == '/')
            start = i + 1;
    return end - start >= sizeof prefix && !memcmp(&t->text[start], prefix, sizeof prefix - 1);
}

/* Searches the modules that occur in stacks. This search finds an interpreter that the program
 * loads after its start. */
static void find_late(const struct heap_table *t)
{
    struct python_symbols s;
    uint32_t count = HEAP_LOAD_ACQUIRE(t->header.modules);
    uint32_t i = atomic_exchange_explicit(&modules_seen, count, memory_order_relaxed);
    for (; i < count && i < HEAP_MODULES; i++) {
        const struct heap_module *m = &t->modules[i];
        if (!m->is_gone && is_libpython(t, m) && python_symbols_at(m->start, &s)) {
            set_symbols(&s);
            return;
        }
    }
}

static void recognise(void)
{
    if (!symbols.is_initialized())
        return;
    uint32_t v =
        symbols.version ? (uint32_t)*symbols.version : python_layout_version(symbols.get_version());
    HEAP_STORE(version, v);
    enum heap_python state = python_layout_find(v, symbols.runtime, &layout);
    if (state != HEAP_PYTHON_OK)
        settle_python(state);
    else
        HEAP_STORE_RELEASE(phase, CHECK);
}

static void verify_layout(void)
{
    /* Only a system call can read an address that may be invalid, and a sandbox may kill the
     * process for that system call. */
    if (HEAP_LOAD(heap_process.is_confined)) {
        settle_python(HEAP_PYTHON_CHECK);
        return;
    }
    uintptr_t thread = this_thread();
    enum heap_python state = thread ? check(thread) : HEAP_PYTHON_NONE;
    if (state == HEAP_PYTHON_CHECK && ++checks_failed < CHECK_TRIES)
        return;
    if (state != HEAP_PYTHON_NONE)
        settle_python(state);
}

static void advance_detection(const struct heap_table *t)
{
    if (t && HEAP_LOAD(phase) == ABSENT)
        find_late(t);
    if (HEAP_LOAD(phase) == FOUND)
        recognise();
    if (HEAP_LOAD(phase) == CHECK)
        verify_layout();
    uint32_t now = HEAP_LOAD(phase);
    if (now == CHECK || now == SETTLED)
        python_small_install(&symbols, (const void *)this_thread());
}

/* Writes the state of Python into the table if the state has changed. Always writes the number of
 * bytes in Python's arenas. */
static void publish_state(struct heap_table *t)
{
    uint32_t now = HEAP_LOAD_ACQUIRE(phase);
    if (now == ABSENT)
        return;
    if (HEAP_LOAD(module) == MODULE_NONE) {
        uintptr_t base;
        HEAP_STORE(module, modules_find(symbols.eval, &base));
    }
    uint32_t state = now == SETTLED ? HEAP_LOAD(verdict) : HEAP_PYTHON_NONE;
    uint32_t v = HEAP_LOAD(version);
    if (HEAP_LOAD(t->header.python_state) != state) {
        HEAP_STORE(t->header.python_version, v);
        HEAP_STORE_RELEASE(t->header.python_state, state);
    }
    if (python_small_is_on() && !HEAP_LOAD(t->header.python_small))
        HEAP_STORE(t->header.python_small, 1);
    HEAP_STORE(t->header.python_arena_bytes, python_small_arena_bytes());
}

void python_detect(void)
{
    struct heap_table *t = heap_process.table;
    uint32_t expected = 0;
    if (atomic_compare_exchange_strong_explicit(&is_detecting, &expected, 1, memory_order_acquire,
                                                memory_order_relaxed)) {
        advance_detection(t);
        HEAP_STORE_RELEASE(is_detecting, 0);
    }
    if (t)
        publish_state(t);
}

bool python_attach(void)
{
    struct heap_thread *t = &heap_thread;
    if (!life_enter(t))
        return false;
    t->busy++;
    python_detect();
    t->busy--;
    life_leave(t);
    return python_small_is_on();
}

bool python_detach(void)
{
    return HEAP_LOAD_ACQUIRE(phase) == ABSENT || python_small_remove(&symbols);
}

bool python_is_eval(uintptr_t ip)
{
    return HEAP_LOAD_ACQUIRE(phase) != ABSENT && ip >= symbols.eval && ip < symbols.eval_end;
}

uint32_t python_module(void)
{
    return HEAP_LOAD(module);
}

void python_reset(void)
{
    HEAP_STORE(module, MODULE_NONE);
    HEAP_STORE(modules_seen, 0);
    HEAP_STORE(is_detecting, 0);
    python_code_reset();
}
