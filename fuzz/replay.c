/* Replaces libFuzzer if the compiler does not have it: runs the fuzz target once on each file in
 * the given folders, so that the sanitizers check the corpora. libFuzzer's options are ignored. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/io.h"

enum { INPUT_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t replay_file(int dirfd, const char *name)
{
    struct buf text = {0};
    if (io_read_plain(dirfd, name, INPUT_MAX, &text) < 0)
        return 0;
    /* The buffer has exactly the size of the input, so that a read past its end is detected. */
    uint8_t *data = malloc(text.len);
    for (size_t i = 0; data && i < text.len; i++)
        data[i] = (uint8_t)text.data[i];
    if (data)
        LLVMFuzzerTestOneInput(data, text.len);
    free(data);
    buf_fini(&text);
    return 1;
}

static size_t replay_folder(const char *path)
{
    size_t count = 0;
    DIR *dir = opendir(path);
    for (const struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        count += replay_file(dirfd(dir), entry->d_name);
    if (dir)
        closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    size_t count = 0;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '-')
            count += replay_folder(argv[i]) + replay_file(AT_FDCWD, argv[i]);
    printf("replayed %zu inputs\nstat::number_of_executed_units: %zu\n", count, count);
    return 0;
}
