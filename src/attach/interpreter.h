/* Finds the Python interpreter in the memory of a process, and the fields through which another
 * process can make the interpreter run code. Every offset is verified against the running
 * interpreter. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "attach/elf.h"
#include "heap/python_layout.h"

struct attach_target;
struct err;

/* How the interpreter can be made to run a statement. */
enum interpreter_entry {
    INTERPRETER_NO_ENTRY,
    INTERPRETER_QUEUE, /* 3.9 to 3.13: the queue of pending calls of the main thread */
    INTERPRETER_DEBUG, /* 3.14 and later: the script of PEP 768 */
};

/* Addresses in the queue of pending calls. */
struct interpreter_queue {
    uint64_t lock; /* address of the lock, which is a byte or a semaphore */
    bool is_lock_byte;
    /* field that is nonzero while pending calls run; 0 if this version has no such field */
    uint64_t busy;
    uint32_t busy_bytes;
    /* address of an int, which is the number of pending calls or, in some versions, a flag */
    uint64_t count;
    uint64_t calls, call_bytes, call_count;
    /* addresses of two ints: the ring index of the first entry, and of the next free entry */
    uint64_t first, last;
    /* address of eval_breaker, which makes the evaluation loop check the queue */
    uint64_t breaker;
    uint32_t breaker_bytes, bit; /* size of BREAKER in bytes, and the bit to set */
};

/* Addresses used to run a script as PEP 768 describes (remote debugging). ENABLED is in the state
 * of the main interpreter, the others are in the state of the main thread. */
struct interpreter_debug {
    uint64_t breaker, pending, path;
    uint64_t path_bytes; /* size of the buffer at PATH, not an address */
    uint64_t enabled;    /* int: 0 if the process was started with remote debugging disabled */
};

struct interpreter {
    uint32_t version; /* PY_VERSION_HEX; for 3.9 and 3.10 only the minor version is known */
    struct elf_module module;
    uint64_t runtime;     /* _PyRuntime */
    uint64_t run_string;  /* PyRun_SimpleString */
    uint64_t state;       /* the main interpreter's PyInterpreterState */
    uint64_t threads;     /* address of the field of STATE that points to its first PyThreadState */
    uint64_t main_thread; /* PyThreadState of the main thread */
    uint64_t text_type, bytes_type, code_type;
    struct python_layout layout;
    bool has_layout;
    uint32_t thread_next, thread_interp, thread_id, thread_native_id; /* native_id: 0 before 3.11 */
    enum interpreter_entry entry;
    struct interpreter_queue queue;
    struct interpreter_debug debug;
    /* Unused zero bytes in a writable page. */
    uint64_t spare, spare_bytes;
};

/* Finds the interpreter of T. Returns 0; -EAGAIN with a message if Python is still starting, or
 * a thread is starting or ending; or -errno with a message. */
int interpreter_find(const struct attach_target *t, struct interpreter *ret, struct err *err);

/* True if no script was ever passed to the interpreter, by ebb or by another tool. */
bool interpreter_is_untouched(const struct attach_target *t, const struct interpreter *i);

/* Like interpreter_find, but tries again for two seconds while the failure may be temporary. */
int interpreter_find_patiently(const struct attach_target *t, struct interpreter *ret,
                               struct err *err);
