/* The layout of the CPython structures that describe a stack. It comes from a table with one entry
 * per minor version, and from 3.13 on from the offsets that the interpreter publishes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heap/table.h"

enum python_instr {
    PYTHON_INSTR_BYTES,   /* the instruction is an int, an offset in bytes */
    PYTHON_INSTR_UNITS,   /* the instruction is an int, an offset in units of two bytes */
    PYTHON_INSTR_POINTER, /* the instruction is a pointer into the code object */
};
enum python_entry {
    PYTHON_ENTRY_ALL,   /* each frame has an evaluation loop of its own */
    PYTHON_ENTRY_FIELD, /* the frame has a flag that marks an entry frame */
    PYTHON_ENTRY_BELOW, /* an entry frame is followed by a shim frame on the C stack */
};

/* Offsets of fields, in bytes from the start of the object. */
struct python_layout {
    /* offset of the pointer to the innermost frame, or of the pointer to the cframe */
    uint16_t thread_frame;
    bool has_cframe;
    uint16_t cframe_frame;

    uint16_t frame_back, frame_code, frame_instr;
    uint16_t frame_owner, frame_is_entry; /* offsets of fields that not every version has */
    enum python_instr instr;
    enum python_entry entry;
    bool has_owner;
    uint8_t shim_owner; /* frames whose owner is at least this value are shims */
    /* owner of a generator's frame; such a frame has always started to run its function */
    uint8_t generator_owner;

    uint16_t code_first_line, code_file, code_name, code_lines;
    uint16_t code_instrs, code_first_traceable; /* used only with PYTHON_INSTR_POINTER */

    uint16_t text_length, text_state, text_ascii,
        text_other; /* offsets of the characters of ASCII strings and of other strings */
    uint16_t bytes_size, bytes_data;
    uint16_t object_type;
};

/* Finds the layout for the interpreter of VERSION (PY_VERSION_HEX). RUNTIME is the interpreter's
 * _PyRuntime, which is used from 3.13 on and may be NULL. Returns HEAP_PYTHON_OK, or the reason why
 * the layout is unknown, with *ret unchanged. */
enum heap_python python_layout_find(uint32_t version, const void *runtime,
                                    struct python_layout *ret);
/* Parses "3.9.2 (main, …" into PY_VERSION_HEX; returns 0 on failure. */
uint32_t python_layout_version(const char *text);
/* Encodes one character of a Python string as UTF-8, and returns the number of bytes. A lone
 * surrogate stands for a byte that Python could not decode, and is written as that byte. */
size_t python_layout_encode(uint32_t c, char ret[4]);
