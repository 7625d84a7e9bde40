/* The frame of a recording: the head of the file and the head of each block. Shared with the
 * history of a heap (profile/store.h), which is framed alike and has its own types of blocks; the
 * format is docs/trace-format.md. */
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
    BLOCK_PAYLOAD_MAX = 16 << 20, /* stored or unpacked; more is not of our making */
};

enum block_type {
    BLOCK_HEADER = 1, /* JSON: what the file says of itself */
    BLOCK_RAW = 2,    /* records of block SEQ, from byte PART of its record stream on */
    BLOCK_SEALED = 3, /* all records of block SEQ as compressed columns; in place of its RAW */
};

struct block_head {
    uint16_t type;
    uint16_t flags; /* 0 */
    uint64_t seq;   /* from 1 on */
    uint32_t part;
    uint32_t stored_len;
    uint32_t raw_len; /* unpacked */
    uint32_t crc;     /* CRC-32C of the head, with 0 here, and of what is stored */
};

/* MAGIC: eight bytes. */
void block_add_file_head(struct buf *out, const char *magic, uint16_t major, uint16_t minor);
/* Fills in stored_len and crc. */
void block_add(struct buf *out, const struct block_head *head, const void *payload, size_t len);

/* 0, or -EBADMSG: no head of a block, or one whose lengths cannot be. The CRC is not checked. */
int block_head_parse(const uint8_t bytes[BLOCK_HEAD_BYTES], struct block_head *ret);
/* The CRC of the head itself, to be continued over the payload. */
uint32_t block_head_crc(const uint8_t bytes[BLOCK_HEAD_BYTES]);
/* The first place in the LEN bytes where a head may begin (it may be cut off at the end); LEN if
 * none. */
size_t block_find(const uint8_t *bytes, size_t len);
