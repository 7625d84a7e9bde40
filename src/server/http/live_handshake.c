/* The opening handshake of RFC 6455: what the client must have sent, and the proof that we read it.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/http/http.h"
#include "server/http/live_private.h"
#include "server/http/live_sha1.h"

enum { KEY_LEN = 24, ACCEPT_LEN = 28 };

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Whether WORD is in the list with commas, in any case. */
static bool has_word(const char *list, const char *word)
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

/* Sixteen bytes in base64. */
static bool is_key(const char *key)
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
    ret[ACCEPT_LEN - 1] = '='; /* twenty bytes are two thirds of a byte short */
    ret[ACCEPT_LEN] = '\0';
}

void live_take(struct live *l, struct http_request *r)
{
    const char *key = http_header(r, "Sec-WebSocket-Key");
    const char *version = http_header(r, "Sec-WebSocket-Version");
    char accept[ACCEPT_LEN + 1];
    if (http_method(r) != HTTP_GET) {
        http_answer_error(r, 405, "the live stream is opened with GET");
    } else if (!has_word(http_header(r, "Upgrade"), "websocket") ||
               !has_word(http_header(r, "Connection"), "upgrade")) {
        http_add_header(r, "Upgrade", "websocket");
        http_answer_error(r, 426, "the live stream is a WebSocket: Upgrade: websocket is missing");
    } else if (!version || strcmp(version, "13") != 0) {
        http_add_header(r, "Sec-WebSocket-Version", "13");
        http_answer_error(r, 426, "Sec-WebSocket-Version \"%.20s\" is not known; 13 is",
                          version ? version : "");
    } else if (!is_key(key)) {
        http_answer_error(r, 400, "Sec-WebSocket-Key \"%.40s\" is not 16 bytes in base64",
                          key ? key : "");
    } else if (!http_share_has_room(&l->places, http_rank(r), 1, l->viewers_max)) {
        http_answer_error(r, 503, "there are %u viewers already; that is all there may be",
                          l->counts.viewers);
    } else {
        make_accept(key, accept);
        if (has_word(http_header(r, "Sec-WebSocket-Protocol"), "ebb"))
            http_add_header(r, "Sec-WebSocket-Protocol", "ebb");
        http_add_header(r, "Upgrade", "websocket");
        http_add_header(r, "Sec-WebSocket-Accept", accept);
        http_upgrade(r, live_viewer_take, l);
    }
}
