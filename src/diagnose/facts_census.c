/* The censuses that main took of itself: the first after training began, and the last. */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/number.h"
#include "diagnose/facts_private.h"

enum { CENSUS_MAX = 16 << 20 };

/* "0002-18577-33.json": its number among those of PID; -1: another's, or none at all. */
static int64_t number_of(const char *name, int32_t pid)
{
    int64_t number, owner;
    const char *dash = strchr(name, '-'), *next = dash ? strchr(dash + 1, '-') : NULL;
    size_t len = strlen(name);
    if (!next || len < 5 || strcmp(name + len - 5, ".json") != 0 ||
        number_parse_i64(name, (size_t)(dash - name), &number) < 0 || number < 0 ||
        number_parse_i64(dash + 1, (size_t)(next - dash - 1), &owner) < 0 || owner != pid)
        return -1;
    return number;
}

/* A file of the job's own: whatever is in it, it is an object of our format or nothing. */
static json_t *read_one(int dir, const char *name)
{
    struct stat st;
    struct buf text = {0};
    json_t *doc = NULL;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
        io_read_all(dir, name, CENSUS_MAX, &text) == 0)
        doc = json_parse(buf_str(&text), text.len, NULL);
    buf_fini(&text);
    if (doc && json_integer_value(json_object_get(doc, "format")) == 1)
        return doc;
    json_decref(doc);
    return NULL;
}

static void choose(DIR *dir, int32_t pid, char first[256], char last[256])
{
    int64_t least = INT64_MAX, most = -1;
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        int64_t n = number_of(entry->d_name, pid);
        if (n < 0 || strlen(entry->d_name) >= 256)
            continue;
        if (n < least)
            snprintf(first, 256, "%s", entry->d_name);
        if (n > most)
            snprintf(last, 256, "%s", entry->d_name);
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
}

void facts_read_census(const char *folder, struct facts *f)
{
    AUTO_CLOSE int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int at = fd >= 0 ? openat(fd, "census", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    char first[256] = "", last[256] = "";
    DIR *dir = at >= 0 ? fdopendir(at) : NULL;
    if (!dir || !f->main) {
        if (dir)
            closedir(dir);
        else if (at >= 0)
            close(at);
        return;
    }
    choose(dir, f->main->id.pid, first, last);
    f->census_first = first[0] ? read_one(at, first) : NULL;
    f->census_last = strcmp(first, last) == 0 ? json_incref(f->census_first)
                     : last[0]                ? read_one(at, last)
                                              : NULL;
    closedir(dir);
    if (f->census_first && f->census_last)
        return;
    json_decref(f->census_first);
    json_decref(f->census_last);
    f->census_first = f->census_last = NULL;
}
