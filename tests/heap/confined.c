/* confined WAY: sets no_new_privs, or a low limit on file sizes, or neither, and then allocates.
 * Prints how many more descriptors the process has afterwards. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static int descriptors(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        n++;
    if (folder)
        closedir(folder);
    return n;
}

int main(int argc, char **argv)
{
    struct rlimit low = {1 << 20, 1 << 20};
    /* The sandbox or the limit is set before the first allocation, because any allocation may be
     * sampled, and the first sample creates the table. */
    if (argc > 1 && strcmp(argv[1], "sandbox") == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return 2;
    if (argc > 1 && strcmp(argv[1], "limit") == 0 && setrlimit(RLIMIT_FSIZE, &low) != 0)
        return 2;
    int before = descriptors();
    for (int i = 0; i < 1000; i++)
        if (!malloc(100000))
            return 1;
    printf("%d\n", descriptors() - before);
    return 0;
}
