/* Finds and reads the census files of a run folder. */
#include "trace/census.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/number.h"

enum { CENSUS_BYTES_MAX = 16 << 20 };

/* Returns the pid in the name of a census file, NNNN-PID-STEP.json, or 0 if NAME has another
 * form. */
static int32_t census_pid(const char *name)
{
    const char *dash = strchr(name, '-'), *second = dash ? strchr(dash + 1, '-') : NULL;
    const char *dot = second ? strrchr(second, '.') : NULL;
    int64_t number, pid;
    bool is_one = dot && strcmp(dot, ".json") == 0 &&
                  number_parse_i64(name, (size_t)(dash - name), &number) == 0 && number >= 0 &&
                  number_parse_i64(dash + 1, (size_t)(second - dash - 1), &pid) == 0 && pid > 0 &&
                  pid <= INT32_MAX;
    return is_one ? (int32_t)pid : 0;
}

static int census_is_named(const struct dirent *entry)
{
    return census_pid(entry->d_name) != 0;
}

void census_files_list(const char *folder, int32_t pid, struct census_files *ret)
{
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, census_is_named, versionsort);
    *ret = (struct census_files){.v = calloc(n > 0 ? (size_t)n : 1, sizeof *ret->v)};
    for (int i = 0; i < n; i++) {
        struct census_file file = {.pid = census_pid(entries[i]->d_name)};
        if (ret->v && (!pid || file.pid == pid) &&
            asprintf(&file.path, "%s/%s", folder, entries[i]->d_name) >= 0)
            ret->v[ret->count++] = file;
        free(entries[i]);
    }
    free(entries);
}

void census_files_fini(struct census_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        free(files->v[i].path);
    free(files->v);
    *files = (struct census_files){0};
}

json_t *census_file_read(const char *path, struct err *err)
{
    struct buf text = {0};
    json_t *doc = NULL;
    int r = io_read_plain(AT_FDCWD, path, CENSUS_BYTES_MAX, &text);
    if (r < 0)
        err_set(err, r, "cannot read %s: %s", path, strerror(-r));
    else
        doc = json_parse(buf_str(&text), text.len, err);
    buf_fini(&text);
    if (doc && !json_is_object(doc)) {
        err_set(err, -EBADMSG, "%s is not a census file", path);
        json_decref(doc);
        doc = NULL;
    }
    return doc;
}
