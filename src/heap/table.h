/* The shared table of one profiled process: what libebb-heap.so writes into a memfd inside the job
 * and what src/profile reads outside, at any time, also after SIGKILL. Fixed size, touched lazily,
 * append-only but for counters and live samples; nothing in it is a pointer that the reader
 * follows, and the reader believes none of its numbers. docs/heap-format.md has the same in words.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define HEAP_TABLE_MAGIC "EBBHEAP\n"

enum {
    HEAP_TABLE_VERSION = 1,
#ifdef EBB_FUZZ /* an input that claims to fill its table would take milliseconds */
    HEAP_SHARE = 64,
#else
    HEAP_SHARE = 1,
#endif
    HEAP_MODULES = 1024 / HEAP_SHARE,
    HEAP_CODES = 16384 / HEAP_SHARE, /* Python code objects; 0 is "not known": no name, no file */
    HEAP_NODES = 65536 / HEAP_SHARE, /* frames of the tree of stacks; 0 is its root */
    HEAP_SITES = 16384 / HEAP_SHARE, /* stacks that allocated; 0 is "no stack: the tree was full" */
    HEAP_LIVE = 32768 / HEAP_SHARE,  /* samples that live */
    HEAP_TEXT_BYTES = (2 << 20) / HEAP_SHARE, /* names, paths, line tables */
    HEAP_BUILD_ID_MAX = 20,
    HEAP_STACK_MAX = 192, /* frames of one stack; deeper ones lose their outermost */
};

/* ---- frame words: what a node of the tree is ---- */

/* Native: the module's index + 1 in bits 48–62 (0: in no module), the address relative to the
 * module's base (else itself) below. It is that of the call: the return address less 1. */
#define HEAP_FRAME_PYTHON (UINT64_C(1) << 63)
#define HEAP_FRAME_MODULE_SHIFT 48
#define HEAP_FRAME_MODULE_MASK UINT64_C(0x7fff)
#define HEAP_FRAME_OFFSET_MASK ((UINT64_C(1) << 48) - 1)
/* Python: the code's index in bits 32–62, the instruction's offset in bytes from the first one
 * below (0xffffffff: not known). */
#define HEAP_FRAME_CODE_SHIFT 32
#define HEAP_FRAME_CODE_MASK UINT64_C(0x7fffffff)
#define HEAP_FRAME_INSTR_MASK UINT64_C(0xffffffff)
#define HEAP_INSTR_UNKNOWN UINT32_C(0xffffffff)

/* A stretch of the text section; len 0: none. */
struct heap_text {
    uint32_t at;
    uint32_t len;
};

struct heap_module {
    struct heap_text path; /* as the dynamic linker has it; the program's own by /proc/self/exe */
    uint64_t base;         /* load bias: address less base is what the file's symbols say */
    uint64_t start, end;   /* mapped addresses, while it was loaded */
    uint8_t build_id_len;  /* 0: it has none */
    uint8_t build_id[HEAP_BUILD_ID_MAX];
    uint8_t is_gone; /* dlclosed */
    uint8_t pad[2];
};

struct heap_code {
    struct heap_text file, name; /* name: qualified where the version has it */
    struct heap_text lines;      /* its line table, in the form of the interpreter's version */
    uint32_t first_line;
    uint32_t pad;
};

struct heap_node {
    uint64_t frame;         /* never 0, but for the root */
    uint32_t parent;        /* a smaller index; the root is 0 */
    _Atomic(uint32_t) site; /* 0: nothing was allocated with this as the innermost frame */
};

/* What a stack allocated since the start, as weights of samples: unbiased estimates. */
struct heap_site {
    uint32_t node;             /* never 0, but for site 0 */
    _Atomic(uint32_t) samples; /* wraps */
    _Atomic(uint64_t) allocated_bytes;
    _Atomic(uint64_t) allocated_objects_x16; /* sixteenths of objects */
    _Atomic(uint64_t) freed_bytes;           /* the same of those whose end was seen */
};

enum heap_kind {
    HEAP_KIND_MALLOC = 0,
    HEAP_KIND_NEW = 1,
    HEAP_KIND_MAP = 2,    /* anonymous mmap */
    HEAP_KIND_PYTHON = 3, /* a small Python object */
    HEAP_KINDS
};

/* A sampled allocation that lives. A writer sets ptr to 0, then the rest, then ptr; a reader takes
 * it if ptr and turn are the same before and after. P(sampled) = 1 − exp(−size/interval): its
 * weight is size ÷ that in bytes and 1 ÷ that in objects. */
struct heap_live {
    _Atomic(uint64_t) ptr;  /* 0: empty */
    _Atomic(uint64_t) size; /* as asked for */
    _Atomic(uint32_t) site;
    _Atomic(uint32_t) born_ms;   /* since header.start_ns */
    _Atomic(uint32_t) interval;  /* bytes, of the time it was drawn or thinned; in units of 64 */
    _Atomic(uint32_t) kind_turn; /* kind in the low 4 bits, above it how often the place was used */
};

/* Why a thing was not recorded, or less well; each has a counter. The words are in profile/words.c.
 */
enum heap_drop {
    HEAP_DROP_NODES,   /* the tree of stacks is nearly full: the stack was cut */
    HEAP_DROP_SITES,   /* too many different stacks: counted as site 0 */
    HEAP_DROP_LIVE,    /* no room for another live sample */
    HEAP_DROP_THINNED, /* let go when the interval was doubled for want of room */
    HEAP_DROP_CODES,   /* too many Python functions */
    HEAP_DROP_TEXT,    /* no room for names */
    HEAP_DROP_MODULES, /* too many libraries */
    HEAP_DROP_UNWIND,  /* a stack that could not be followed to its end */
    HEAP_DROP_NESTED,  /* allocated while a sample was being taken */
    HEAP_DROP_STALE,   /* its end was not seen: the address was given out again */
    HEAP_DROP_KINDS
};

/* X(symbol, sentence): what is with Python in this process. */
#define HEAP_PYTHON_STATES(X)                                                                      \
    X(NONE, "no Python in this process")                                                           \
    X(OK, "Python frames are read")                                                                \
    X(VERSION, "this version of Python is not known: native frames only")                          \
    X(CHECK, "Python's frames are not laid out as expected: native frames only")                   \
    X(FREE_THREADED, "Python without its global lock: native frames only")
#define X(sym, text) HEAP_PYTHON_##sym,
enum heap_python { HEAP_PYTHON_STATES(X) HEAP_PYTHON_STATE_COUNT };
#undef X

struct heap_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint64_t table_bytes;
    int32_t pid;
    uint32_t reserved;
    uint64_t start_ns;      /* CLOCK_MONOTONIC when the table was made */
    uint64_t base_interval; /* bytes; what was asked for */
    /* How many of each are whole; they only grow. Nodes and sites are made by several threads at
     * once, but counted in order: the count goes past one only when all before it are whole, so
     * that a site or a live sample may for a moment name a node or site that is not counted yet. */
    _Atomic(uint32_t) modules, codes, nodes, sites;
    _Atomic(uint32_t) live_high;  /* places of live samples ever used */
    _Atomic(uint32_t) text_bytes; /* given out: text is whole where a whole module or code names it
                                   */
    _Atomic(uint32_t) python_version; /* PY_VERSION_HEX; 0: none */
    _Atomic(uint32_t) python_state;   /* enum heap_python */
    _Atomic(uint32_t) python_small;   /* 1: small Python objects are counted */
    _Atomic(uint32_t) is_ended;       /* the process has run its exit handlers */
    _Atomic(uint64_t) interval;       /* now */
    _Atomic(uint64_t) samples, ends;  /* taken; ends of sampled ones */
    _Atomic(uint64_t) hook_ns;        /* spent in taking them and in their ends */
    _Atomic(uint64_t) drops[HEAP_DROP_KINDS];
    _Atomic(uint64_t) python_arena_bytes; /* mapped for small objects since they are counted */
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
_Static_assert(sizeof(struct heap_table) <= 6 << 20, "6 MiB a process at the very most");

/* How a table gets out: the process connects to the SOCK_SEQPACKET socket "$EBB_SOCKET.heap", sends
 * this with the memfd beside it, and hangs up. It never waits. The memfd is sealed against
 * shrinking and growing. */
struct heap_hello {
    char magic[8];
    uint32_t version;
    int32_t pid;
    uint64_t table_bytes;
};
