/* Fuzzes the page counter with arbitrary contents of a process's maps and pagemap. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "proc/pagemap.h"
#include "target.h"

enum { STEPS_MAX = 2000 };

static int file_of(int fd, const uint8_t *data, size_t size)
{
    if (ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size ||
        lseek(fd, 0, SEEK_SET) < 0)
        abort();
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pagemap_scan scan;
    static int fds[2] = {-1, -1};
    struct pagemap_pace pace;
    if (size < 2)
        return 0;
    for (int i = 0; i < 2; i++)
        if (fds[i] < 0)
            fds[i] = memfd_create("fuzz", MFD_CLOEXEC);
    size_t maps = size - 2 < 16U * data[0] ? size - 2 : 16U * data[0];
    int maps_fd = file_of(fds[0], data + 2, maps),
        pages_fd = file_of(fds[1], data + 2 + maps, size - 2 - maps);
    pagemap_pace_init(&pace, NS_PER_S, true);
    pagemap_begin(&scan, maps_fd, pages_fd, 4096, 1000, data[1] & 1);
    for (int i = 0; i < STEPS_MAX && pagemap_step(&scan, &pace) == PAGEMAP_MORE; i++)
        ;
    pagemap_end(&scan);
    return 0;
}
