/* The framing of a recording: the file header and block headers. Also used by heap histories
 * (profile/store.h), which have their own block types. The format is described in
 * docs/reference/trace-format.md. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buf;

#define BLOCK_FILE_MAGIC "EBBTRACE"

enum {
    BLOCK_MAJOR = 1,
    BLOCK_MINOR = 0,
    BLOCK_FILE_HEAD_BYTES = 16,
    BLOCK_HEAD_BYTES = 32,
    /* of the stored and of the unpacked payload; ebb never writes more */
    BLOCK_PAYLOAD_MAX = 16 << 20,
};

enum block_type {
    BLOCK_HEADER = 1, /* JSON that describes the recording */
    BLOCK_RAW = 2,    /* records of block SEQ, starting at byte PART of its record stream */
    /* all records of block SEQ as compressed columns; replaces the RAW blocks of SEQ */
    BLOCK_SEALED = 3,
};

struct block_head {
    uint16_t type;
    uint16_t flags; /* always 0 */
    uint64_t seq;   /* counts from 1 */
    uint32_t part;
    uint32_t stored_len;
    uint32_t raw_len; /* length of the unpacked payload */
    uint32_t crc;     /* CRC-32C of the header, with this field 0, and the payload */
};

/* Appends a file header. MAGIC has eight bytes. */
void block_add_file_head(struct buf *out, const char *magic, uint16_t major, uint16_t minor);
/* Appends a block. stored_len and crc of HEAD are ignored and computed here. */
void block_add(struct buf *out, const struct block_head *head, const void *payload, size_t len);

/* 0, or -EBADMSG: not a block header, or one with impossible lengths. The CRC is not checked. */
int block_head_parse(const uint8_t bytes[BLOCK_HEAD_BYTES], struct block_head *ret);
/* The CRC of the header alone; continue it over the payload. */
uint32_t block_head_crc(const uint8_t bytes[BLOCK_HEAD_BYTES]);
/* The first offset in the LEN bytes where a block header may begin (possibly truncated at the
 * end); LEN if there is none. */
size_t block_find(const uint8_t *bytes, size_t len);
/* The kind of file that begins with BYTES: "gzip data", "a program", "a recording of ebb". NULL if
 * it is text or unknown. */
const char *block_guess_kind(const uint8_t *bytes, size_t len);
