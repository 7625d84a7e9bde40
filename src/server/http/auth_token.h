/* Secrets: random names, files that nobody else may read, and comparison in constant time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct err;

enum { SECRET_BYTES = 32, SECRET_SIZE = 2 * SECRET_BYTES + 1, TOKEN_MIN = 32, TOKEN_MAX = 256 };

/* 256 random bits in hexadecimal. 0 or -errno. */
int secret_make(char ret[SECRET_SIZE]);
/* Takes as long for every GIVEN of one length. */
bool secret_equal(const char *given, const char *secret);
/* The token in DIRFD/NAME: one line of 32 to 256 visible characters. Made where MAY_MAKE and it is
 * not there, else -ENOENT. -EPERM where others may read it. PATH is for the sentence. */
int secret_read(int dirfd, const char *name, const char *path, bool may_make,
                char ret[TOKEN_MAX + 1], struct err *err);
