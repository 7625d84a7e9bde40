/* The heap table of one profiled process, in memory shared with ebb. libebb-heap.so writes it into
 * a memfd inside the job, and src/profile reads it from outside, at any time, even after SIGKILL.
 * Its size is fixed, but unused pages take no memory. It is append-only except for counters and
 * live samples. The reader follows no pointer in it and checks every number.
 * docs/reference/heap-format.md describes the format in words. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define HEAP_TABLE_MAGIC "EBBHEAP\n"

/* Accesses to an atomic field: relaxed unless the name says otherwise. */
#define HEAP_LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define HEAP_LOAD_ACQUIRE(field) atomic_load_explicit(&(field), memory_order_acquire)
#define HEAP_STORE(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)
#define HEAP_STORE_RELEASE(field, value)                                                           \
    atomic_store_explicit(&(field), value, memory_order_release)
#define HEAP_ADD(field, value) atomic_fetch_add_explicit(&(field), value, memory_order_relaxed)
/* Reads a plain field exactly once. Otherwise the compiler might read the field twice, and another
 * process might write to it in between. */
#define HEAP_ONCE(field) (*(const volatile __typeof__(field) *)&(field))

enum {
    HEAP_TABLE_VERSION = 2,
#ifdef EBB_FUZZ /* a fuzzer uses a small table, because it fills the table for every input */
    HEAP_SHARE = 64,
#else
    HEAP_SHARE = 1,
#endif
    HEAP_MODULES = 1024 / HEAP_SHARE,
    /* Maximum number of Python code objects; number 0 is "unknown", without name and file. */
    HEAP_CODES = 16384 / HEAP_SHARE,
    /* Maximum number of frames in the tree of stacks; number 0 is its root. */
    HEAP_NODES = 65536 / HEAP_SHARE,
    /* Maximum number of call sites; number 0 stands for samples whose stack could not be stored. */
    HEAP_SITES = 16384 / HEAP_SHARE,
    HEAP_LIVE = 32768 / HEAP_SHARE, /* maximum number of live samples */
    /* Size of the text section with names, paths and line tables. */
    HEAP_TEXT_BYTES = (2 << 20) / HEAP_SHARE,
    HEAP_BUILD_ID_MAX = 20,
    /* Maximum number of frames in a stack; deeper stacks lose their outermost frames. */
    HEAP_STACK_MAX = 192,
    /* Maximum number of GPUs of one process; blocks on further GPUs are counted as drops. */
    HEAP_GPUS = 16,
    /* Number of failed GPU requests that are stored: the first request and the last three. */
    HEAP_OOMS = 4,
    /* Number of call sites that are stored with each failed request. The call sites with the most
     * bytes are chosen. */
    HEAP_OOM_SITES = 8,
};

/* ---- frame words, the contents of a node in the tree ---- */

/* A native frame. Bits 48–62 hold the module's index + 1, or 0 if the frame is in no module. The
 * bits below hold the address relative to the module's base, or the address itself if there is no
 * module. The address is that of the call: the return address less 1. */
#define HEAP_FRAME_PYTHON (UINT64_C(1) << 63)
#define HEAP_FRAME_MODULE_SHIFT 48
#define HEAP_FRAME_MODULE_MASK UINT64_C(0x7fff)
#define HEAP_FRAME_OFFSET_MASK ((UINT64_C(1) << 48) - 1)
/* A Python frame. Bits 32–62 hold the index of the code object. The bits below hold the offset of
 * the instruction in bytes from the first instruction (0xffffffff if unknown). */
#define HEAP_FRAME_CODE_SHIFT 32
#define HEAP_FRAME_CODE_MASK UINT64_C(0x7fffffff)
#define HEAP_FRAME_INSTR_MASK UINT64_C(0xffffffff)
#define HEAP_INSTR_UNKNOWN UINT32_C(0xffffffff)
/* A frame that stands for a GPU. It is the outermost frame of the stacks of this GPU's blocks, so
 * that blocks of two devices never share a call site. Its module number belongs to no module; the
 * GPU's number is in the bits below. */
#define HEAP_FRAME_GPU (HEAP_FRAME_MODULE_MASK << HEAP_FRAME_MODULE_SHIFT)
static inline int heap_frame_is_gpu(uint64_t frame)
{
    return (frame & ~HEAP_FRAME_OFFSET_MASK) == HEAP_FRAME_GPU &&
           (frame & HEAP_FRAME_OFFSET_MASK) < HEAP_GPUS;
}

/* A range of the text section; len is 0 if there is no text. */
struct heap_text {
    uint32_t at;
    uint32_t len;
};

struct heap_module {
    /* Path as the dynamic linker names it; for the program, from /proc/self/exe. */
    struct heap_text path;
    /* load bias: an address in memory minus the corresponding address in the file */
    uint64_t base;
    uint64_t start, end;  /* addresses at which the module was mapped */
    uint8_t build_id_len; /* 0 if the module has no build-id */
    uint8_t build_id[HEAP_BUILD_ID_MAX];
    uint8_t is_gone; /* 1 after dlclose */
    uint8_t pad[2];
};

struct heap_code {
    struct heap_text file, name; /* name is the qualified name from Python 3.11 on */
    struct heap_text lines;      /* line table in the format of the interpreter's version */
    uint32_t first_line;
    uint32_t pad;
};

struct heap_node {
    uint64_t frame;         /* frame word, never 0 except in the root */
    uint32_t parent;        /* index of the parent, which is always smaller; the root is 0 */
    _Atomic(uint32_t) site; /* call site whose innermost frame is this node, or 0 */
};

/* Totals of one stack since the start: sums of sample weights, which are unbiased estimates. */
struct heap_site {
    uint32_t node;             /* node of the stack, never 0 except in site 0 */
    _Atomic(uint32_t) samples; /* wraps around */
    _Atomic(uint64_t) allocated_bytes;
    _Atomic(uint64_t) allocated_objects_x16; /* number of objects, in units of 1/16 */
    _Atomic(uint64_t) freed_bytes;           /* bytes of samples that were freed */
};

enum heap_kind {
    HEAP_KIND_MALLOC = 0,
    HEAP_KIND_NEW = 1,
    HEAP_KIND_MAP = 2,    /* a private anonymous mapping */
    HEAP_KIND_PYTHON = 3, /* a small Python object */
    /* A mapping of shared memory: anonymous, a memfd, or a file in /dev/shm. */
    HEAP_KIND_SHARED = 4,
    /* Address space that the job maps now and fills later: a large mapping, or one with
     * MAP_NORESERVE. */
    HEAP_KIND_POOL = 5,
    HEAP_KIND_GPU = 6, /* a block of GPU memory, from PyTorch's caching allocator */
    HEAP_KINDS
};

/* A live sample. The writer sets ptr to 0, then the other fields, then ptr. A reader accepts the
 * sample if ptr and kind_turn are the same before and after reading. With P(sampled) = 1 −
 * exp(−size/interval), one sample stands for size ÷ P bytes and 1 ÷ P objects. */
struct heap_live {
    /* 0 if the entry is empty; for a GPU block, bits 56–63 hold the GPU's number + 1. */
    _Atomic(uint64_t) ptr;
    _Atomic(uint64_t) size; /* requested size in bytes */
    _Atomic(uint32_t) site;
    _Atomic(uint32_t) born_ms; /* time from header.start_ns to the allocation */
    /* Sampling interval when the sample was drawn or thinned, in units of 64 bytes. */
    _Atomic(uint32_t) interval;
    /* The low 4 bits are the kind. The bits above count how often the entry was used. */
    _Atomic(uint32_t) kind_turn;
};

/* Reasons for incomplete data, each with a counter. The sentences for users are in
 * profile/words.c. */
enum heap_drop {
    HEAP_DROP_NODES,   /* the tree of stacks is nearly full, so the stack was shortened */
    HEAP_DROP_SITES,   /* too many different stacks, so the sample was counted as site 0 */
    HEAP_DROP_LIVE,    /* the table of live samples is full */
    HEAP_DROP_THINNED, /* the sample was removed when the interval was doubled to make room */
    HEAP_DROP_CODES,   /* there are too many Python functions, so the frame has no name */
    HEAP_DROP_TEXT,    /* the text section is full, so a name, a path or a line table is missing */
    HEAP_DROP_MODULES, /* there are too many libraries, so the frame has no module */
    HEAP_DROP_UNWIND,  /* the stack could not be unwound to its outermost frame */
    HEAP_DROP_NESTED, /* not sampled, because the block was allocated while another sample was being
                         taken */
    /* the library missed a free(), and noticed it when the address was allocated again */
    HEAP_DROP_STALE,
    HEAP_DROP_GPU, /* the number of the block's GPU is HEAP_GPUS or higher */
    HEAP_DROP_KINDS
};

/* X(symbol, sentence). The sentence describes whether Python frames can be read. */
#define HEAP_PYTHON_STATES(X)                                                                      \
    X(NONE, "no Python in this process")                                                           \
    X(OK, "Python frames are read")                                                                \
    X(VERSION, "unknown Python version: native frames only")                                       \
    X(CHECK, "unexpected layout of Python frames: native frames only")                             \
    X(FREE_THREADED, "free-threaded Python: native frames only")
#define X(sym, text) HEAP_PYTHON_##sym,
enum heap_python { HEAP_PYTHON_STATES(X) HEAP_PYTHON_STATE_COUNT };
#undef X

/* The last totals that PyTorch's allocator reported for one GPU. */
struct heap_gpu {
    /* Number of reports, one for each block allocated or freed. */
    _Atomic(uint64_t) reports;
    _Atomic(uint64_t) allocated_bytes, reserved_bytes;
    _Atomic(uint64_t) allocated_peak_bytes;
    /* Minimum of the allocated memory in the current window of a quarter of a second, and in the
     * previous window. Memory that a training step allocates and frees again is not part of this
     * minimum. */
    _Atomic(uint64_t) low_bytes, low_before_bytes;
    _Atomic(uint32_t) low_ms, pad; /* time at which the current window began */
};

/* A failed GPU request, and the call sites with the most live bytes at that moment. The writer sets
 * NUMBER to 0, then the other fields, then NUMBER. */
struct heap_oom {
    /* 1 for the process's first failed request, 2 for the second; 0 if the entry is empty. */
    _Atomic(uint32_t) number;
    _Atomic(uint32_t) gpu, born_ms, site;
    _Atomic(uint64_t) request_bytes, allocated_bytes, reserved_bytes;
    struct heap_oom_site {
        _Atomic(uint64_t) bytes; /* 0 if the entry is unused */
        _Atomic(uint32_t) site, pad;
    } top[HEAP_OOM_SITES];
};

struct heap_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint64_t table_bytes;
    int32_t pid;
    uint32_t reserved;
    uint64_t start_ns;      /* time of creation on CLOCK_MONOTONIC */
    uint64_t base_interval; /* requested sampling interval in bytes */
    /* Numbers of published entries, which never decrease. Several threads add nodes and sites, and
     * an entry is published only when all entries before it are complete. A site or live sample may
     * therefore refer for a moment to a node or site that is not published yet. */
    _Atomic(uint32_t) modules, codes, nodes, sites;
    _Atomic(uint32_t) live_high; /* high-water mark of live-sample entries in use */
    /* Bytes of the text section that are reserved. The bytes that belong to a published module or
     * code object have been written. */
    _Atomic(uint32_t) text_bytes;
    _Atomic(uint32_t) python_version; /* PY_VERSION_HEX, or 0 if there is no Python */
    _Atomic(uint32_t) python_state;   /* enum heap_python */
    _Atomic(uint32_t) python_small;   /* 1 if small Python objects are counted */
    _Atomic(uint32_t) is_ended;       /* 1 after the process has run its exit handlers */
    _Atomic(uint64_t) interval;       /* current sampling interval in bytes */
    _Atomic(uint64_t) samples, ends;  /* numbers of samples taken and of samples ended */
    _Atomic(uint64_t) hook_ns;        /* time spent taking and ending samples, in nanoseconds */
    _Atomic(uint64_t) drops[HEAP_DROP_KINDS];
    /* Bytes of arenas mapped since ebb began to count small objects. */
    _Atomic(uint64_t) python_arena_bytes;
    /* Bytes allocated by all threads since the table was created. */
    _Atomic(uint64_t) allocated_bytes;
    _Atomic(uint64_t) gpu_interval; /* current sampling interval of GPU blocks in bytes */
    _Atomic(uint64_t) oom_count;    /* number of GPU requests that failed */
    struct heap_gpu gpus[HEAP_GPUS];
    struct heap_oom ooms[HEAP_OOMS];
};

struct heap_table {
    union {
        struct heap_header header;
        uint8_t header_page[4096];
    };
    struct heap_module modules[HEAP_MODULES];
    struct heap_code codes[HEAP_CODES];
    struct heap_site sites[HEAP_SITES];
    struct heap_node nodes[HEAP_NODES];
    struct heap_live live[HEAP_LIVE];
    char text[HEAP_TEXT_BYTES];
};
_Static_assert(sizeof(struct heap_header) <= 4096, "the header is one page");
_Static_assert(sizeof(struct heap_table) <= 6 << 20, "at most 6 MiB per process");

/* The message that passes a table to ebb. The process connects to the SOCK_SEQPACKET socket
 * "$EBB_SOCKET.heap", sends this message with the memfd attached, and closes the connection. The
 * process never waits. The memfd is sealed against shrinking and growing. */
struct heap_hello {
    char magic[8];
    uint32_t version;
    int32_t pid;
    uint64_t table_bytes;
};
