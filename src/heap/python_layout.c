/* The layouts of CPython's structures: constants for 3.9 to 3.12, _Py_DebugOffsets for 3.13 and
 * 3.14. python.c verifies them against the running interpreter before it uses them. */
#include "heap/python_layout.h"

#include <string.h>

/* Offsets that are the same in all versions, on 64-bit systems. */
#define OBJECT_PARTS .object_type = 8, .bytes_size = 16, .bytes_data = 32

/* Before 3.12 a string also has a wchar_t representation. */
#define TEXT_WITH_WCHAR .text_length = 16, .text_state = 32, .text_ascii = 48, .text_other = 72
#define TEXT_WITHOUT_WCHAR .text_length = 16, .text_state = 32, .text_ascii = 40, .text_other = 56

static const struct python_layout layout_3_9 = {
    OBJECT_PARTS,
    TEXT_WITH_WCHAR,
    .thread_frame = 24,
    .frame_back = 24,
    .frame_code = 32,
    .frame_instr = 104,
    .instr = PYTHON_INSTR_BYTES,
    .entry = PYTHON_ENTRY_ALL,
    .code_first_line = 40,
    .code_file = 104,
    .code_name = 112,
    .code_lines = 120,
};

static const struct python_layout layout_3_10 = {
    OBJECT_PARTS,
    TEXT_WITH_WCHAR,
    .thread_frame = 24,
    .frame_back = 24,
    .frame_code = 32,
    .frame_instr = 96,
    .instr = PYTHON_INSTR_UNITS,
    .entry = PYTHON_ENTRY_ALL,
    .code_first_line = 40,
    .code_file = 104,
    .code_name = 112,
    .code_lines = 120,
};

static const struct python_layout layout_3_11 = {
    OBJECT_PARTS,
    TEXT_WITH_WCHAR,
    .thread_frame = 56,
    .has_cframe = true,
    .cframe_frame = 8,
    .frame_back = 48,
    .frame_code = 32,
    .frame_instr = 56,
    .frame_owner = 69,
    .frame_is_entry = 68,
    .instr = PYTHON_INSTR_POINTER,
    .entry = PYTHON_ENTRY_FIELD,
    .has_owner = true,
    .shim_owner = 3,
    .generator_owner = 1,
    .code_first_line = 72,
    .code_file = 112,
    .code_name = 128,
    .code_lines = 136,
    .code_first_traceable = 168,
    .code_instrs = 184,
};

static const struct python_layout layout_3_12 = {
    OBJECT_PARTS,
    TEXT_WITHOUT_WCHAR,
    .thread_frame = 56,
    .has_cframe = true,
    .cframe_frame = 0,
    .frame_back = 8,
    .frame_code = 0,
    .frame_instr = 56,
    .frame_owner = 70,
    .instr = PYTHON_INSTR_POINTER,
    .entry = PYTHON_ENTRY_BELOW,
    .has_owner = true,
    .shim_owner = 3,
    .generator_owner = 1,
    .code_first_line = 68,
    .code_file = 112,
    .code_name = 128,
    .code_lines = 136,
    .code_first_traceable = 176,
    .code_instrs = 192,
};

/* ---- _Py_DebugOffsets ---- */

struct offsets_head {
    char cookie[8];
    uint64_t version;
    uint64_t free_threaded;
    struct {
        uint64_t size, finalizing, interpreters_head;
    } runtime;
};
struct offsets_thread {
    uint64_t size, prev, next, interp, current_frame, thread_id, native_thread_id;
    uint64_t datastack_chunk, status;
};
struct offsets_object {
    uint64_t size, ob_type;
};
struct offsets_sequence { /* tuple, list, bytes and long have three words each */
    uint64_t size, first, second;
};
struct offsets_text {
    uint64_t size, state, length, asciiobject_size;
};

struct offsets_3_13 {
    struct offsets_head head;
    uint64_t interpreter[13];
    struct offsets_thread thread;
    struct {
        uint64_t size, previous, executable, instr_ptr, localsplus, owner;
    } frame;
    struct {
        uint64_t size, filename, name, qualname, linetable, firstlineno, argcount;
        uint64_t localsplusnames, localspluskinds, co_code_adaptive;
    } code;
    struct offsets_object object;
    uint64_t type_object[4];
    struct offsets_sequence tuple, list, dict;
    uint64_t float_object[2];
    struct offsets_sequence integer, bytes;
    struct offsets_text text;
};

struct offsets_3_14 {
    struct offsets_head head;
    uint64_t interpreter[16];
    struct offsets_thread thread;
    struct {
        uint64_t size, previous, executable, instr_ptr, localsplus, owner, stackpointer, tlbc_index;
    } frame;
    struct {
        uint64_t size, filename, name, qualname, linetable, firstlineno, argcount;
        uint64_t localsplusnames, localspluskinds, co_code_adaptive, co_tlbc;
    } code;
    struct offsets_object object;
    uint64_t type_object[4];
    struct offsets_sequence tuple, list;
    uint64_t set[4];
    struct offsets_sequence dict;
    uint64_t float_object[2];
    struct offsets_sequence integer, bytes;
    struct offsets_text text;
};

/* Stores an offset. Returns false if the offset is too large for any of these objects. */
static bool take_offset(uint64_t offset, uint16_t *ret)
{
    if (offset >= 4096)
        return false;
    *ret = (uint16_t)offset;
    return true;
}

/* Copies the offsets. The fields have the same names in both versions, at different offsets. Two
 * offsets are computed: _co_firsttraceable and co_extra are the two words before the instructions,
 * and a non-ASCII string has two more words before its characters. */
#define LAYOUT_FROM(o, ret)                                                                        \
    (take_offset((o)->thread.current_frame, &(ret)->thread_frame) &&                               \
     take_offset((o)->frame.previous, &(ret)->frame_back) &&                                       \
     take_offset((o)->frame.executable, &(ret)->frame_code) &&                                     \
     take_offset((o)->frame.instr_ptr, &(ret)->frame_instr) &&                                     \
     take_offset((o)->frame.owner, &(ret)->frame_owner) &&                                         \
     take_offset((o)->code.firstlineno, &(ret)->code_first_line) &&                                \
     take_offset((o)->code.filename, &(ret)->code_file) &&                                         \
     take_offset((o)->code.qualname, &(ret)->code_name) &&                                         \
     take_offset((o)->code.linetable, &(ret)->code_lines) &&                                       \
     take_offset((o)->code.co_code_adaptive, &(ret)->code_instrs) &&                               \
     take_offset((o)->code.co_code_adaptive - 16, &(ret)->code_first_traceable) &&                 \
     take_offset((o)->object.ob_type, &(ret)->object_type) &&                                      \
     take_offset((o)->bytes.first, &(ret)->bytes_size) &&                                          \
     take_offset((o)->bytes.second, &(ret)->bytes_data) &&                                         \
     take_offset((o)->text.state, &(ret)->text_state) &&                                           \
     take_offset((o)->text.length, &(ret)->text_length) &&                                         \
     take_offset((o)->text.asciiobject_size, &(ret)->text_ascii) &&                                \
     take_offset((o)->text.asciiobject_size + 16, &(ret)->text_other))

static enum heap_python from_runtime(uint32_t version, const void *runtime,
                                     struct python_layout *ret)
{
    struct python_layout l = {
        .instr = PYTHON_INSTR_POINTER,
        .entry = PYTHON_ENTRY_BELOW,
        .has_owner = true,
        .shim_owner = 3,
        .generator_owner = 1,
    };
    const struct offsets_head *head = runtime;
    if (!head || memcmp(head->cookie, "xdebugpy", sizeof head->cookie) != 0 ||
        head->version != version)
        return HEAP_PYTHON_CHECK;
    if (head->free_threaded)
        return HEAP_PYTHON_FREE_THREADED;
    bool is_known = version >> 16 == 0x030d ? LAYOUT_FROM((const struct offsets_3_13 *)runtime, &l)
                                            : LAYOUT_FROM((const struct offsets_3_14 *)runtime, &l);
    if (!is_known)
        return HEAP_PYTHON_CHECK;
    *ret = l;
    return HEAP_PYTHON_OK;
}

enum heap_python python_layout_find(uint32_t version, const void *runtime,
                                    struct python_layout *ret)
{
    switch (version >> 16) {
    case 0x0309:
        *ret = layout_3_9;
        return HEAP_PYTHON_OK;
    case 0x030a:
        *ret = layout_3_10;
        return HEAP_PYTHON_OK;
    case 0x030b:
        *ret = layout_3_11;
        return HEAP_PYTHON_OK;
    case 0x030c:
        *ret = layout_3_12;
        return HEAP_PYTHON_OK;
    case 0x030d:
    case 0x030e:
        return from_runtime(version, runtime, ret);
    default:
        return HEAP_PYTHON_VERSION;
    }
}

/* Parses a number of up to three digits at *AT. Returns false if there is no digit. */
static bool parse_minor(const char **at, uint32_t *ret)
{
    uint32_t value = 0;
    const char *start = *at;
    while (**at >= '0' && **at <= '9' && *at - start < 3)
        value = value * 10 + (uint32_t)(*(*at)++ - '0');
    *ret = value;
    return *at > start;
}

uint32_t python_layout_version(const char *text)
{
    uint32_t major, minor, micro;
    if (!parse_minor(&text, &major) || *text++ != '.' || !parse_minor(&text, &minor))
        return 0;
    if (*text++ != '.' || !parse_minor(&text, &micro) || major > 255 || minor > 255 || micro > 255)
        return 0;
    return major << 24 | minor << 16 | micro << 8 | 0xf0;
}
