/* execs N: allocates, then execs itself N times. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 0;
    char left[16];
    for (int i = 0; i < 400; i++)
        if (!malloc(100000))
            return 1;
    if (n == 0)
        return 0;
    snprintf(left, sizeof(left), "%d", n - 1);
    execl("/proc/self/exe", argv[0], left, (char *)NULL);
    return 1;
}
