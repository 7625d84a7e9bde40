/* The layouts of CPython's structures: constants for 3.9 to 3.12, _Py_DebugOffsets for 3.13 and
 * 3.14. python.c verifies them against the running interpreter before it uses them. */
#include "heap/python_layout.h"

#include <string.h>

/* Offsets that are the same in all versions, on 64-bit systems. */
#define OBJECT_PARTS .object_type = 8, .bytes_size = 16, .bytes_data = 32

/* Before 3.12 a string also has a wchar_t representation. */
#define TEXT_WITH_WCHAR .text_length = 16, .text_state = 32, .text_ascii = 48, .text_other = 72
#define TEXT_WITHOUT_WCHAR .text_length = 16, .text_state = 32, .text_ascii = 40, .text_other = 56
#define FRAME_BEFORE_3_11                                                                          \
    .thread_frame = 24, .frame_back = 24, .frame_code = 32, .entry = PYTHON_ENTRY_ALL
#define CODE_BEFORE_3_11                                                                           \
    .code_first_line = 40, .code_file = 104, .code_name = 112, .code_lines = 120
#define FRAME_WITH_OWNER                                                                           \
    .instr = PYTHON_INSTR_POINTER, .has_owner = true, .shim_owner = 3, .generator_owner = 1

enum { OFFSET_MAX = 4095 }; /* largest offset of a field that ebb reads in any of these objects */

static const struct python_layout layouts[] = {
    /* 3.9 */
    {OBJECT_PARTS, TEXT_WITH_WCHAR, CODE_BEFORE_3_11, FRAME_BEFORE_3_11, .frame_instr = 104,
     .instr = PYTHON_INSTR_BYTES},
    /* 3.10 */
    {OBJECT_PARTS, TEXT_WITH_WCHAR, CODE_BEFORE_3_11, FRAME_BEFORE_3_11, .frame_instr = 96,
     .instr = PYTHON_INSTR_UNITS},
    /* 3.11 */
    {OBJECT_PARTS, TEXT_WITH_WCHAR, .thread_frame = 56, .has_cframe = true, .cframe_frame = 8,
     .frame_back = 48, .frame_code = 32, .frame_instr = 56, .frame_owner = 69, .frame_is_entry = 68,
     .entry = PYTHON_ENTRY_FIELD, FRAME_WITH_OWNER, .code_first_line = 72, .code_file = 112,
     .code_name = 128, .code_lines = 136, .code_first_traceable = 168, .code_instrs = 184},
    /* 3.12 */
    {OBJECT_PARTS, TEXT_WITHOUT_WCHAR, .thread_frame = 56, .has_cframe = true, .cframe_frame = 0,
     .frame_back = 8, .frame_code = 0, .frame_instr = 56, .frame_owner = 70,
     .entry = PYTHON_ENTRY_BELOW, FRAME_WITH_OWNER, .code_first_line = 68, .code_file = 112,
     .code_name = 128, .code_lines = 136, .code_first_traceable = 176, .code_instrs = 192},
};

/* ---- _Py_DebugOffsets ---- */

/* words at the same position in _Py_DebugOffsets of 3.13 and 3.14 */
enum { DEBUG_VERSION = 1, DEBUG_FREE_THREADED = 2 };

/* One offset that the interpreter publishes. The first two fields are the index of its word in 3.13
 * and in 3.14. FIELD receives the offset plus PLUS bytes. */
static const struct published {
    uint8_t word_3_13, word_3_14;
    int8_t plus;
    uint8_t field;
} published[] = {
    {23, 26, 0, offsetof(struct python_layout, thread_frame)},
    {29, 32, 0, offsetof(struct python_layout, frame_back)},
    {30, 33, 0, offsetof(struct python_layout, frame_code)},
    {31, 34, 0, offsetof(struct python_layout, frame_instr)},
    {33, 36, 0, offsetof(struct python_layout, frame_owner)},
    {35, 40, 0, offsetof(struct python_layout, code_file)},
    {37, 42, 0, offsetof(struct python_layout, code_name)},
    {38, 43, 0, offsetof(struct python_layout, code_lines)},
    {39, 44, 0, offsetof(struct python_layout, code_first_line)},
    {43, 48, 0, offsetof(struct python_layout, code_instrs)},
    /* _co_firsttraceable and co_extra are the two words before the instructions */
    {43, 48, -16, offsetof(struct python_layout, code_first_traceable)},
    {45, 51, 0, offsetof(struct python_layout, object_type)},
    {65, 75, 0, offsetof(struct python_layout, bytes_size)},
    {66, 76, 0, offsetof(struct python_layout, bytes_data)},
    {68, 78, 0, offsetof(struct python_layout, text_state)},
    {69, 79, 0, offsetof(struct python_layout, text_length)},
    {70, 80, 0, offsetof(struct python_layout, text_ascii)},
    /* a string that is not ASCII has two more words before its characters */
    {70, 80, 16, offsetof(struct python_layout, text_other)},
};

static enum heap_python from_runtime(uint32_t version, const void *runtime,
                                     struct python_layout *ret)
{
    const uint64_t *words = runtime;
    struct python_layout l = {.entry = PYTHON_ENTRY_BELOW, FRAME_WITH_OWNER};
    if (!words || memcmp(words, "xdebugpy", 8) != 0 || words[DEBUG_VERSION] != version)
        return HEAP_PYTHON_CHECK;
    if (words[DEBUG_FREE_THREADED])
        return HEAP_PYTHON_FREE_THREADED;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const struct published *p = &published[i];
        uint64_t offset = words[version >> 16 == 0x030d ? p->word_3_13 : p->word_3_14];
        if (offset + (uint64_t)p->plus > OFFSET_MAX)
            return HEAP_PYTHON_CHECK;
        uint16_t value = (uint16_t)(offset + (uint64_t)p->plus);
        memcpy((char *)&l + p->field, &value, sizeof value);
    }
    *ret = l;
    return HEAP_PYTHON_OK;
}

enum heap_python python_layout_find(uint32_t version, const void *runtime,
                                    struct python_layout *ret)
{
    uint32_t minor = version >> 16 & 0xff;
    if (version >> 24 != 3 || minor < 9 || minor > 14)
        return HEAP_PYTHON_VERSION;
    if (minor >= 13)
        return from_runtime(version, runtime, ret);
    *ret = layouts[minor - 9];
    return HEAP_PYTHON_OK;
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

size_t python_layout_encode(uint32_t c, char ret[4])
{
    if (c >= 0xdc80 && c <= 0xdcff) {
        ret[0] = (char)(uint8_t)(c - 0xdc00);
        return 1;
    }
    if ((c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff)
        c = '?';
    if (c < 0x80) {
        ret[0] = (char)c;
        return 1;
    }
    size_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, c >>= 6)
        ret[i] = (char)(uint8_t)(0x80 | (c & 0x3f));
    ret[0] = (char)(uint8_t)((0xf00 >> len & 0xff) | c);
    return len;
}
