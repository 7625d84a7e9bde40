/* A lock-free index from the address of a code object to its entry in the table. */
#include "heap/python_code.h"

#include <stdatomic.h>
#include <string.h>

#include "heap/heap.h"

enum {
    SLOTS = 2 * HEAP_CODES, /* number of slots of the hash table, a power of two */
    PROBES = 32,
    TEXT_MAX = 4096,       /* maximum length of a name or a path in bytes */
    LINES_MAX = 128 << 10, /* maximum length of a line table in bytes */
    FILES = 512,           /* cached paths, shared by functions of the same file; a power of two */
    /* How often a thread checks the lock before it gives up. These checks take about ten
     * microseconds, far longer than adding a code object takes. */
    SPINS = 4000,
    INDEX_BITS = 15,
};
_Static_assert(HEAP_CODES <= 1 << INDEX_BITS, "an index fits");

/* A slot of the index. VALUE has the entry's index in its low bits and a hash of the code object's
 * contents in its high bits; VALUE is 0 while the entry is being added. If the hash differs,
 * another code object has reused the address. */
struct slot {
    _Atomic(uintptr_t) code;
    _Atomic(uint64_t) value;
};
static struct slot slots[SLOTS];

/* Held by the thread that adds a code object; protects all variables below. */
static _Atomic(uint32_t) is_adding;
static char text_buffer[TEXT_MAX];
static struct {
    uint64_t hash;
    struct heap_text text;
} files[FILES];

static uintptr_t word_at(uintptr_t object, uint16_t offset)
{
    uintptr_t word;
    memcpy(&word, (const void *)(object + offset), sizeof word);
    return word;
}

static uint32_t int_at(uintptr_t object, uint16_t offset)
{
    uint32_t value;
    memcpy(&value, (const void *)(object + offset), sizeof value);
    return value;
}

static uint64_t mix_code(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* ---- strings ---- */

struct characters {
    const uint8_t *data;
    size_t count;
    uint32_t width; /* bytes per character: 1, 2 or 4 */
    bool is_ascii;
};

/* Finds the characters of TEXT. Returns false if TEXT is not a compact string; all names of code
 * objects are compact strings. */
static bool characters_of(uintptr_t text, const struct python_layout *l,
                          const struct python_symbols *symbols, struct characters *ret)
{
    if (!text || word_at(text, l->object_type) != (uintptr_t)symbols->text_type)
        return false;
    uint32_t state = int_at(text, l->text_state);
    bool is_compact = state >> 5 & 1, is_ascii = state >> 6 & 1;
    uint32_t width = state >> 2 & 7;
    if (!is_compact || (width != 1 && width != 2 && width != 4))
        return false;
    *ret = (struct characters){
        .data = (const uint8_t *)text + (is_ascii ? l->text_ascii : l->text_other),
        .count = word_at(text, l->text_length),
        .width = width,
        .is_ascii = is_ascii,
    };
    return true;
}

static uint32_t character_at(const struct characters *c, size_t i)
{
    uint16_t two;
    uint32_t four;
    switch (c->width) {
    case 1:
        return c->data[i];
    case 2:
        memcpy(&two, c->data + 2 * i, sizeof two);
        return two;
    default:
        memcpy(&four, c->data + 4 * i, sizeof four);
        return four;
    }
}

/* Encodes a string into the shared buffer and returns its length. Longer names are truncated. */
static size_t encode_all(const struct characters *c)
{
    size_t len = 0;
    for (size_t i = 0; i < c->count && len + 4 <= TEXT_MAX; i++)
        len += python_layout_encode(character_at(c, i), &text_buffer[len]);
    return len;
}

static struct heap_text text_of(uintptr_t text, const struct python_layout *l,
                                const struct python_symbols *symbols)
{
    struct characters c;
    if (!characters_of(text, l, symbols, &c) || !c.count)
        return (struct heap_text){0};
    if (c.is_ascii)
        return heap_text_add(heap_process.table, c.data, c.count < TEXT_MAX ? c.count : TEXT_MAX);
    return heap_text_add(heap_process.table, text_buffer, encode_all(&c));
}

/* Copies a path into the table. Paths are cached, because many functions share a file and the
 * text section is small. */
static struct heap_text file_of(uintptr_t text, const struct python_layout *l,
                                const struct python_symbols *symbols)
{
    struct characters c;
    if (!characters_of(text, l, symbols, &c) || !c.count)
        return (struct heap_text){0};
    size_t len = c.count < TEXT_MAX / 4 ? c.count : TEXT_MAX / 4;
    uint64_t hash = c.width;
    for (size_t i = 0; i < len; i++)
        hash = mix_code(hash, character_at(&c, i));
    size_t at = hash >> 32 & (FILES - 1);
    if (files[at].hash != hash || !files[at].text.len) {
        files[at].text = text_of(text, l, symbols);
        files[at].hash = hash;
    }
    return files[at].text;
}

static struct heap_text lines_of(uintptr_t lines, const struct python_layout *l,
                                 const struct python_symbols *symbols)
{
    if (!lines || word_at(lines, l->object_type) != (uintptr_t)symbols->bytes_type)
        return (struct heap_text){0};
    size_t size = word_at(lines, l->bytes_size);
    if (!size || size > LINES_MAX)
        return (struct heap_text){0};
    return heap_text_add(heap_process.table, (const char *)lines + l->bytes_data, size);
}

/* ---- entries ---- */

static uint64_t hash_text_end(uint64_t hash, uintptr_t text, const struct python_layout *l,
                              const struct python_symbols *symbols)
{
    struct characters c;
    uint64_t end = 0;
    hash = mix_code(hash, text);
    if (!characters_of(text, l, symbols, &c))
        return hash;
    size_t bytes = c.count * c.width, len = bytes < sizeof end ? bytes : sizeof end;
    memcpy(&end, c.data + bytes - len, len);
    return mix_code(mix_code(hash, c.count), end);
}

/* Returns a hash that distinguishes code objects that had the same address at different times. The
 * hash covers only part of the code object: the first line number, the address of the line table,
 * and the address, length and last bytes of the file's path and of the name. */
static uint64_t hash_code(uintptr_t code, const struct python_layout *l,
                          const struct python_symbols *symbols)
{
    uint64_t hash = mix_code(1, int_at(code, l->code_first_line));
    hash = mix_code(hash, word_at(code, l->code_lines));
    hash = hash_text_end(hash, word_at(code, l->code_file), l, symbols);
    return hash_text_end(hash, word_at(code, l->code_name), l, symbols);
}

/* Adds a code object and returns its index. The caller holds is_adding. */
static uint32_t add_code(uintptr_t code, const struct python_layout *l,
                         const struct python_symbols *symbols)
{
    struct heap_table *t = heap_process.table;
    uint32_t i = HEAP_LOAD(t->header.codes);
    if (i == 0) /* PYTHON_CODE_UNKNOWN stays empty */
        i = 1;
    if (i >= HEAP_CODES) {
        heap_drop(HEAP_DROP_CODES);
        return PYTHON_CODE_UNKNOWN;
    }
    t->codes[i] = (struct heap_code){
        .file = file_of(word_at(code, l->code_file), l, symbols),
        .name = text_of(word_at(code, l->code_name), l, symbols),
        .lines = lines_of(word_at(code, l->code_lines), l, symbols),
        .first_line = int_at(code, l->code_first_line),
    };
    HEAP_STORE_RELEASE(t->header.codes, i + 1);
    return i;
}

/* Returns the slot of CODE. Takes a free slot if CODE has none. Returns NULL if other code objects
 * occupy all slots that CODE may use. */
static struct slot *code_slot(uintptr_t code)
{
    size_t at = (code >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 40;
    for (size_t i = 0; i < PROBES; i++) {
        struct slot *slot = &slots[(at + i) & (SLOTS - 1)];
        uintptr_t there = HEAP_LOAD_ACQUIRE(slot->code);
        if (there == code)
            return slot;
        if (!there && atomic_compare_exchange_strong_explicit(
                          &slot->code, &there, code, memory_order_acq_rel, memory_order_acquire))
            return slot;
        if (there == code)
            return slot;
    }
    return NULL;
}

static bool is_current(const struct slot *slot, uint64_t hash, uint32_t *ret)
{
    const uint64_t mask = (1U << INDEX_BITS) - 1;
    uint64_t value = HEAP_LOAD_ACQUIRE(slot->value);
    *ret = (uint32_t)(value & mask);
    return value && (value & ~mask) == hash;
}

uint32_t python_code_index(uintptr_t code, const struct python_layout *l,
                           const struct python_symbols *symbols)
{
    uint64_t hash = hash_code(code, l, symbols) << INDEX_BITS;
    struct slot *slot = code_slot(code);
    uint32_t i;
    if (!slot) {
        heap_drop(HEAP_DROP_CODES);
        return PYTHON_CODE_UNKNOWN;
    }
    if (is_current(slot, hash, &i))
        return i;
    if (!heap_spin(&is_adding, SPINS))
        return PYTHON_CODE_UNKNOWN;
    if (!is_current(slot, hash, &i)) { /* no other thread added the code object meanwhile */
        i = add_code(code, l, symbols);
        if (i != PYTHON_CODE_UNKNOWN)
            HEAP_STORE_RELEASE(slot->value, hash | i);
    }
    HEAP_STORE_RELEASE(is_adding, 0);
    return i;
}

void python_code_reset(void)
{
    for (size_t i = 0; i < SLOTS; i++) {
        if (!HEAP_LOAD(slots[i].code))
            /* Skips empty slots, because writing to a page that was never touched would allocate
             * the page. */
            continue;
        HEAP_STORE(slots[i].code, 0);
        HEAP_STORE(slots[i].value, 0);
    }
    memset(files, 0, sizeof files);
    HEAP_STORE(is_adding, 0);
}
