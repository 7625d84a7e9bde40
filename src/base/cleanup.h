/* Attributes for local variables that are freed or closed at the end of their scope. */
#pragma once

#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free(void *p)
{
    free(*(void **)p);
}

/* close changes errno only on failure, and a failed close of a read-only fd is harmless */
static inline void cleanup_close(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

/* Closes *FD if it is open, and sets it to -1. */
static inline void close_fd(int *fd)
{
    cleanup_close(fd);
    *fd = -1;
}

#define AUTO_FREE __attribute__((cleanup(cleanup_free)))
#define AUTO_CLOSE __attribute__((cleanup(cleanup_close)))
