/* SHA-1, which the WebSocket handshake wants of a server, and for nothing else. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA1_BYTES = 20 };
/* Of at most 119 bytes: two blocks. */
enum { SHA1_TEXT_MAX = 119 };
void live_sha1(const void *data, size_t len, uint8_t ret[SHA1_BYTES]);
