/* The shared table of one profiled process: what libebb-heap.so writes into a memfd inside the job
 * and what src/profile reads outside, at any time, also after SIGKILL. Fixed size, touched lazily,
 * append-only except for counters and live samples. The reader follows no pointer in it and checks
 * every number. docs/reference/heap-format.md has the same
 * in words.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define HEAP_TABLE_MAGIC "EBBHEAP\n"

enum {
    HEAP_TABLE_VERSION = 2,
#ifdef EBB_FUZZ /* filling a full-size table for every input would take milliseconds */
    HEAP_SHARE = 64,
#else
    HEAP_SHARE = 1,
#endif
    HEAP_MODULES = 1024 / HEAP_SHARE,
    HEAP_CODES = 16384 / HEAP_SHARE, /* Python code objects; 0 is "unknown": no name, no file */
    HEAP_NODES = 65536 / HEAP_SHARE, /* frames of the tree of stacks; 0 is its root */
    HEAP_SITES = 16384 / HEAP_SHARE, /* stacks that allocated; 0 is "no stack: the tree was full" */
    HEAP_LIVE = 32768 / HEAP_SHARE,  /* live samples */
    HEAP_TEXT_BYTES = (2 << 20) / HEAP_SHARE, /* names, paths, line tables */
    HEAP_BUILD_ID_MAX = 20,
    HEAP_STACK_MAX = 192, /* frames of one stack; deeper ones lose their outermost frames */
    HEAP_GPUS = 16,       /* GPUs of one process; blocks on others are counted as drops */
    HEAP_OOMS = 4,        /* failed GPU requests that are kept: the first and the last three */
    HEAP_OOM_SITES = 8,   /* largest call sites kept with each */
};

/* ---- frame words: the contents of a node in the tree ---- */

/* Native: the module's index + 1 in bits 48–62 (0: in no module); below, the address relative to
 * the module's base, or the address itself. It is the address of the call: the return address less
 * 1. */
#define HEAP_FRAME_PYTHON (UINT64_C(1) << 63)
#define HEAP_FRAME_MODULE_SHIFT 48
#define HEAP_FRAME_MODULE_MASK UINT64_C(0x7fff)
#define HEAP_FRAME_OFFSET_MASK ((UINT64_C(1) << 48) - 1)
/* Python: the code's index in bits 32–62; below, the instruction's offset in bytes from the first
 * one (0xffffffff: unknown). */
#define HEAP_FRAME_CODE_SHIFT 32
#define HEAP_FRAME_CODE_MASK UINT64_C(0x7fffffff)
#define HEAP_FRAME_INSTR_MASK UINT64_C(0xffffffff)
#define HEAP_INSTR_UNKNOWN UINT32_C(0xffffffff)
/* A GPU: outermost frame of the stacks of its blocks, so that every site belongs to one device.
 * The module's number is one that no module has, the GPU's number is below it. */
#define HEAP_FRAME_GPU (HEAP_FRAME_MODULE_MASK << HEAP_FRAME_MODULE_SHIFT)
static inline int heap_frame_is_gpu(uint64_t frame)
{
    return (frame & ~HEAP_FRAME_OFFSET_MASK) == HEAP_FRAME_GPU &&
           (frame & HEAP_FRAME_OFFSET_MASK) < HEAP_GPUS;
}

/* A range of the text section; len 0: none. */
struct heap_text {
    uint32_t at;
    uint32_t len;
};

struct heap_module {
    struct heap_text
        path;             /* as the dynamic linker names it; for the program, from /proc/self/exe */
    uint64_t base;        /* load bias: address − base is the address in the file */
    uint64_t start, end;  /* mapped addresses, while it was loaded */
    uint8_t build_id_len; /* 0: none */
    uint8_t build_id[HEAP_BUILD_ID_MAX];
    uint8_t is_gone; /* dlclosed */
    uint8_t pad[2];
};

struct heap_code {
    struct heap_text file, name; /* name: the qualified name in versions that have it */
    struct heap_text lines;      /* line table, in the format of the interpreter's version */
    uint32_t first_line;
    uint32_t pad;
};

struct heap_node {
    uint64_t frame;         /* never 0, except the root's */
    uint32_t parent;        /* a smaller index; the root is 0 */
    _Atomic(uint32_t) site; /* 0: never the innermost frame of an allocation */
};

/* Totals of one stack since the start: sums of sample weights, which are unbiased estimates. */
struct heap_site {
    uint32_t node;             /* never 0, except for site 0 */
    _Atomic(uint32_t) samples; /* wraps */
    _Atomic(uint64_t) allocated_bytes;
    _Atomic(uint64_t) allocated_objects_x16; /* in sixteenths of an object */
    _Atomic(uint64_t) freed_bytes;           /* of samples that were freed */
};

enum heap_kind {
    HEAP_KIND_MALLOC = 0,
    HEAP_KIND_NEW = 1,
    HEAP_KIND_MAP = 2,    /* private anonymous mmap */
    HEAP_KIND_PYTHON = 3, /* a small Python object */
    HEAP_KIND_SHARED = 4, /* mmap of shared memory: anonymous, a memfd, a file in /dev/shm */
    HEAP_KIND_POOL = 5,   /* mmap of address space that is filled later: large, or MAP_NORESERVE */
    HEAP_KIND_GPU = 6,    /* a block of a GPU, by PyTorch's caching allocator */
    HEAP_KINDS
};

/* A live sample. A writer sets ptr to 0, then the other fields, then ptr; a reader accepts it if
 * ptr and turn are the same before and after reading. With P(sampled) = 1 − exp(−size/interval),
 * its weight is size ÷ P bytes and 1 ÷ P objects. */
struct heap_live {
    _Atomic(uint64_t) ptr;  /* 0: empty; of a GPU block its number + 1 is added in bits 56–63 */
    _Atomic(uint64_t) size; /* as requested */
    _Atomic(uint32_t) site;
    _Atomic(uint32_t) born_ms;  /* since header.start_ns */
    _Atomic(uint32_t) interval; /* interval in bytes when it was drawn or thinned, in units of 64 */
    /* Kind in the low 4 bits, above them how often the entry was used. */
    _Atomic(uint32_t) kind_turn;
};

/* Reasons for incomplete data; each has a counter. The texts are in profile/words.c. */
enum heap_drop {
    HEAP_DROP_NODES,   /* the tree of stacks is nearly full: the stack was cut */
    HEAP_DROP_SITES,   /* too many different stacks: counted as site 0 */
    HEAP_DROP_LIVE,    /* no room for another live sample */
    HEAP_DROP_THINNED, /* removed when the interval was doubled to make room */
    HEAP_DROP_CODES,   /* too many Python functions */
    HEAP_DROP_TEXT,    /* no room for names */
    HEAP_DROP_MODULES, /* too many libraries */
    HEAP_DROP_UNWIND,  /* a stack that could not be unwound to its end */
    HEAP_DROP_NESTED,  /* allocated while a sample was being taken */
    HEAP_DROP_STALE,   /* free() was missed: the address was allocated again */
    HEAP_DROP_GPU,     /* a block on a GPU whose number is out of range */
    HEAP_DROP_KINDS
};

/* X(symbol, sentence): whether Python frames can be read. */
#define HEAP_PYTHON_STATES(X)                                                                      \
    X(NONE, "no Python in this process")                                                           \
    X(OK, "Python frames are read")                                                                \
    X(VERSION, "this version of Python is not known: native frames only")                          \
    X(CHECK, "Python's frames are not laid out as expected: native frames only")                   \
    X(FREE_THREADED, "Python without its global lock: native frames only")
#define X(sym, text) HEAP_PYTHON_##sym,
enum heap_python { HEAP_PYTHON_STATES(X) HEAP_PYTHON_STATE_COUNT };
#undef X

/* The last totals that PyTorch's allocator reported for one GPU. */
struct heap_gpu {
    _Atomic(uint64_t) reports; /* blocks handed out and taken back; 0: none yet */
    _Atomic(uint64_t) allocated_bytes, reserved_bytes;
    _Atomic(uint64_t) allocated_peak_bytes;
    /* The least that was allocated in this window of a quarter of a second, and in the one before:
     * what a training step allocates and frees again is not in it. */
    _Atomic(uint64_t) low_bytes, low_before_bytes;
    _Atomic(uint32_t) low_ms, pad; /* when this window began */
};

/* A GPU request that failed, with the largest call sites of live blocks at that moment. A writer
 * sets NUMBER to 0, then the rest, then NUMBER. */
struct heap_oom {
    _Atomic(uint32_t) number; /* 1 is the first of the process; 0: empty */
    _Atomic(uint32_t) gpu, born_ms, site;
    _Atomic(uint64_t) request_bytes, allocated_bytes, reserved_bytes;
    struct heap_oom_site {
        _Atomic(uint64_t) bytes; /* 0: none */
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
    uint64_t start_ns;      /* CLOCK_MONOTONIC when the table was created */
    uint64_t base_interval; /* requested interval in bytes */
    /* Numbers of complete entries; they only grow. Several threads add nodes and sites, but an
     * entry is counted only when all before it are complete, so a site or a live sample may briefly
     * refer to a node or site that is not counted yet. */
    _Atomic(uint32_t) modules, codes, nodes, sites;
    _Atomic(uint32_t) live_high; /* number of entries of live samples ever used */
    /* Reserved bytes; the text of a complete module or code object is complete. */
    _Atomic(uint32_t) text_bytes;
    _Atomic(uint32_t) python_version; /* PY_VERSION_HEX; 0: none */
    _Atomic(uint32_t) python_state;   /* enum heap_python */
    _Atomic(uint32_t) python_small;   /* 1: small Python objects are counted */
    _Atomic(uint32_t) is_ended;       /* the process has run its exit handlers */
    _Atomic(uint64_t) interval;       /* now */
    _Atomic(uint64_t) samples, ends;  /* samples taken; samples that ended */
    _Atomic(uint64_t) hook_ns;        /* time spent taking and ending samples */
    _Atomic(uint64_t) drops[HEAP_DROP_KINDS];
    _Atomic(uint64_t) python_arena_bytes; /* arenas mapped since small objects are counted */
    _Atomic(uint64_t) allocated_bytes;    /* by all threads since the table was created */
    _Atomic(uint64_t) gpu_interval;       /* current sampling interval of GPU blocks */
    _Atomic(uint64_t) oom_count;          /* GPU requests that failed */
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

/* The message that passes a table to ebb: the process connects to the SOCK_SEQPACKET socket
 * "$EBB_SOCKET.heap", sends this with the memfd attached, and closes the connection. It never
 * waits. The memfd is sealed against shrinking and growing. */
struct heap_hello {
    char magic[8];
    uint32_t version;
    int32_t pid;
    uint64_t table_bytes;
};
