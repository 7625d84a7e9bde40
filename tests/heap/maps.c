/* Creates mappings of each kind. Their sizes differ, so that each mapping can be recognised. The
 * last mapping is of an ordinary file, which ebb does not count. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20, PROT = PROT_READ | PROT_WRITE };

int main(void)
{
    char path[] = "/dev/shm/ebb-test-XXXXXX", plain[] = "/var/tmp/ebb-test-XXXXXX";
    int fd = memfd_create("maps", MFD_CLOEXEC), shm = mkstemp(path), file = mkstemp(plain);
    unlink(path);
    unlink(plain);
    if (ftruncate(fd, 4 * MIB) != 0 || ftruncate(shm, 5 * MIB) != 0 ||
        ftruncate(file, 9 * MIB) != 0)
        return 1;
    char *maps[] = {
        mmap(NULL, 2 * MIB, PROT, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
        mmap(NULL, 3 * MIB, PROT, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
        mmap(NULL, 4 * MIB, PROT, MAP_SHARED, fd, 0),
        mmap(NULL, 5 * MIB, PROT, MAP_SHARED, shm, 0),
        mmap(NULL, 6 * MIB, PROT, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
        mmap(NULL, 100 * MIB, PROT, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
        mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, fd, 0),
        mmap(NULL, 9 * MIB, PROT, MAP_SHARED, file, 0),
    };
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (maps[i] == MAP_FAILED)
            return 1;
    munmap(maps[2] + 3 * MIB, MIB); /* Part of a shared mapping is unmapped. */
    munmap(maps[5], 10 * MIB);      /* The start of a memory pool is unmapped. */
    _exit(0);
}
