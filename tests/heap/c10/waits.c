/* A library whose constructor, which runs under the dynamic linker's lock, announces its start and
 * waits for an answer. The environment variable WAITS has two descriptors: one for the announcement
 * and one for the answer. Exits with status 3 if there is no answer. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000 };

static __attribute__((constructor)) void wait_in_constructor(void)
{
    const char *text = getenv("WAITS");
    int to, from;
    if (!text || sscanf(text, "%d %d", &to, &from) != 2)
        return;
    struct pollfd answer = {.fd = from, .events = POLLIN};
    if (write(to, "", 1) != 1 || poll(&answer, 1, PATIENCE_MS) != 1)
        _exit(3);
}
