/* FIPS 180-4, for a text of one or two blocks. */
#include "server/http/live_sha1.h"

#include <assert.h>
#include <string.h>

static uint32_t turn(uint32_t v, int bits)
{
    return v << bits | v >> (32 - bits);
}

static uint32_t mix(int t, uint32_t b, uint32_t c, uint32_t d, uint32_t *ret_k)
{
    static const uint32_t k[] = {0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6};
    *ret_k = k[t / 20];
    if (t < 20)
        return (b & c) | (~b & d);
    return t >= 40 && t < 60 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
}

static void add_block(uint32_t h[5], const uint8_t block[64])
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], k;
    for (int t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (int t = 16; t < 80; t++)
        w[t] = turn(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    for (int t = 0; t < 80; t++) {
        uint32_t f = mix(t, b, c, d, &k), next = turn(a, 5) + f + e + k + w[t];
        e = d;
        d = c;
        c = turn(b, 30);
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
    assert(len <= SHA1_TEXT_MAX && "a longer text needs a third block");
    size_t size = len < 56 ? 64 : 128;
    memcpy(blocks, data, len);
    blocks[len] = 0x80;
    blocks[size - 2] = (uint8_t)(len * 8 >> 8);
    blocks[size - 1] = (uint8_t)(len * 8);
    for (size_t i = 0; i < size; i += 64)
        add_block(h, blocks + i);
    for (size_t i = 0; i < SHA1_BYTES; i++)
        ret[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}
