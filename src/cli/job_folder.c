/* Finds the folder of a job on several nodes by its id. */
#include "cli/job_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "judge/cluster.h"

static bool is_job(const char *name, char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "ebb-runs/%s", name);
    return n > 0 && n < PATH_MAX && cluster_is_folder(path);
}

const char *job_folder_find(const char *operand, char ret[PATH_MAX])
{
    struct stat st;
    char last[NAME_MAX + 1] = "", path[PATH_MAX];
    size_t len = strlen(operand);
    if (!len || operand[0] == '.' || strchr(operand, '/') || stat(operand, &st) == 0)
        return operand;
    if (is_job(operand, ret))
        return ret;
    DIR *dir = io_open_folder(AT_FDCWD, "ebb-runs");
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (strncmp(d->d_name, operand, len) == 0 && d->d_name[len] == '.' &&
            strverscmp(d->d_name, last) > 0 && is_job(d->d_name, path))
            snprintf(last, sizeof last, "%s", d->d_name);
    if (dir)
        closedir(dir);
    return last[0] && is_job(last, ret) ? ret : operand;
}
