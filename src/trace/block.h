/* The framing of a recording: file header and block headers. Heap histories (profile/store.h) use
 * it with their own block types. docs/reference/trace-format.md describes the format. */
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
    /* maximum size of a payload, both compressed and uncompressed; ebb never writes a larger one */
    BLOCK_PAYLOAD_MAX = 16 << 20,
};

enum block_type {
    BLOCK_HEADER = 1, /* JSON object that describes the recording */
    /* part of the records of block SEQ; PART is the byte offset of this part in the records */
    BLOCK_RAW = 2,
    /* all records of block SEQ, as compressed columns; replaces the RAW blocks of SEQ */
    BLOCK_SEALED = 3,
};

struct block_head {
    uint16_t type;
    uint16_t flags; /* always 0 */
    uint64_t seq;   /* number of the block, from 1 */
    uint32_t part;
    uint32_t stored_len;
    uint32_t raw_len; /* length of the uncompressed payload */
    uint32_t crc;     /* CRC-32C of the header (with this field set to 0) and the payload */
};

/* Appends a file header. MAGIC is eight bytes long. */
void block_add_file_head(struct buf *out, const char *magic, uint16_t major, uint16_t minor);
/* Appends a block. stored_len and crc are computed; their values in HEAD are ignored. */
void block_add(struct buf *out, const struct block_head *head, const void *payload, size_t len);

/* Parses a block header. Returns 0, or -EBADMSG if BYTES do not form a header or its lengths are
 * impossible. Does not check the CRC. */
int block_head_parse(const uint8_t bytes[BLOCK_HEAD_BYTES], struct block_head *ret);
/* The CRC of the header alone. The caller continues it over the payload. */
uint32_t block_head_crc(const uint8_t bytes[BLOCK_HEAD_BYTES]);
/* Returns the first offset in the LEN bytes where a block header may begin, or LEN if there is
 * none. A header near the end of the bytes may be incomplete. */
size_t block_find(const uint8_t *bytes, size_t len);
/* Describes the kind of file that begins with BYTES: "gzip data", "a program", "an ebb recording".
 * Returns NULL for text and unknown kinds. */
const char *block_guess_kind(const uint8_t *bytes, size_t len);

/* ---- payloads: each is one zstd frame, with the size of its content in the frame header ---- */

/* zstd's compression level, and log2 of the sizes of its window and tables. These sizes determine
 * how much memory zstd uses. */
struct pack_effort {
    int level, window_log, table_log;
};

/* Compresses LEN bytes and appends the result. Returns 0 or -ENOMEM. */
int pack_add(struct buf *out, const void *plain, size_t len, const struct pack_effort *effort);
/* Decompresses a frame, which must contain exactly RAW_LEN (not 0) bytes. The caller frees the
 * result. Returns 0, -EBADMSG or -ENOMEM. */
int pack_open(const void *stored, size_t stored_len, size_t raw_len, char **ret);
