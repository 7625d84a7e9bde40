/* The opening handshake of a WebSocket (RFC 6455): checks the client's headers and computes the
 * accept key. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/http/http.h"
#include "server/http/http_answer.h"
#include "server/http/live_private.h"

enum { KEY_LEN = 24, ACCEPT_LEN = 28 };

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* ---- SHA-1 (FIPS 180-4), which the handshake requires ---- */

static uint32_t sha1_turn(uint32_t v, int bits)
{
    return v << bits | v >> (32 - bits);
}

static uint32_t sha1_mix(int t, uint32_t b, uint32_t c, uint32_t d, uint32_t *ret_k)
{
    static const uint32_t k[] = {0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6};
    *ret_k = k[t / 20];
    if (t < 20)
        return (b & c) | (~b & d);
    return t >= 40 && t < 60 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
}

static void sha1_add_block(uint32_t h[5], const uint8_t block[64])
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], k;
    for (int t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (int t = 16; t < 80; t++)
        w[t] = sha1_turn(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    for (int t = 0; t < 80; t++) {
        uint32_t f = sha1_mix(t, b, c, d, &k), next = sha1_turn(a, 5) + f + e + k + w[t];
        e = d;
        d = c;
        c = sha1_turn(b, 30);
        b = a;
        a = next;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

void live_sha1(const void *data, size_t len, uint8_t ret[SHA1_BYTES])
{
    uint32_t h[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
    uint8_t blocks[128] = {0};
    assert(len <= SHA1_TEXT_MAX && "a text longer than SHA1_TEXT_MAX does not fit into two blocks");
    size_t size = len < 56 ? 64 : 128;
    memcpy(blocks, data, len);
    blocks[len] = 0x80;
    blocks[size - 2] = (uint8_t)(len * 8 >> 8);
    blocks[size - 1] = (uint8_t)(len * 8);
    for (size_t i = 0; i < size; i += 64)
        sha1_add_block(h, blocks + i);
    for (size_t i = 0; i < SHA1_BYTES; i++)
        ret[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}

/* ---- the handshake ---- */

/* True if the comma-separated list contains WORD, ignoring case. */
static bool has_list_word(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *s = list; s && *s;) {
        s += strspn(s, ", \t");
        size_t n = strcspn(s, ", \t");
        if (n == len && strncasecmp(s, word, n) == 0)
            return true;
        s += n;
    }
    return false;
}

/* True if KEY is sixteen bytes in base64. */
static bool is_websocket_key(const char *key)
{
    return key && strlen(key) == KEY_LEN && strspn(key, digits) == KEY_LEN - 2 &&
           strcmp(key + KEY_LEN - 2, "==") == 0;
}

static void make_accept(const char *key, char ret[ACCEPT_LEN + 1])
{
    char text[64];
    uint8_t hash[SHA1_BYTES + 1] = {0};
    int n = snprintf(text, sizeof text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    live_sha1(text, (size_t)n, hash);
    for (int i = 0; i < 7; i++) {
        uint32_t v = (uint32_t)hash[3 * i] << 16 | (uint32_t)hash[3 * i + 1] << 8 | hash[3 * i + 2];
        for (int k = 0; k < 4; k++)
            ret[4 * i + k] = digits[v >> (18 - 6 * k) & 63];
    }
    /* one padding character, because 20 bytes are not a multiple of three */
    ret[ACCEPT_LEN - 1] = '=';
    ret[ACCEPT_LEN] = '\0';
}

void live_upgrade(struct live *l, struct http_request *r)
{
    const char *key = http_header(r, "Sec-WebSocket-Key");
    const char *version = http_header(r, "Sec-WebSocket-Version");
    char accept[ACCEPT_LEN + 1];
    if (http_method(r) != HTTP_GET) {
        http_answer_error(r, 405, "the live stream requires GET");
    } else if (!has_list_word(http_header(r, "Upgrade"), "websocket") ||
               !has_list_word(http_header(r, "Connection"), "upgrade")) {
        http_add_header(r, "Upgrade", "websocket");
        http_answer_error(r, 426,
                          "the live stream requires a WebSocket; send the headers "
                          "\"Upgrade: websocket\" and \"Connection: Upgrade\"");
    } else if (!version || strcmp(version, "13") != 0) {
        http_add_header(r, "Sec-WebSocket-Version", "13");
        http_answer_error(r, 426, "unsupported Sec-WebSocket-Version \"%.20s\"; use 13",
                          version ? version : "");
    } else if (!is_websocket_key(key)) {
        http_answer_error(r, 400, "Sec-WebSocket-Key \"%.40s\" is not 16 bytes in base64",
                          key ? key : "");
    } else if (!http_share_has_room(&l->places, http_rank(r), 1, l->viewers_max)) {
        http_answer_error(r, 503, "too many viewers (%u); try again later", l->counts.viewers);
    } else {
        make_accept(key, accept);
        if (has_list_word(http_header(r, "Sec-WebSocket-Protocol"), "ebb"))
            http_add_header(r, "Sec-WebSocket-Protocol", "ebb");
        http_add_header(r, "Upgrade", "websocket");
        http_add_header(r, "Sec-WebSocket-Accept", accept);
        http_upgrade(r, live_viewer_new, l);
    }
}
