/* Finds the other parts of ebb after `make install`, in wheels and tarballs, and in the build
 * folder. */
#include "base/place.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A part of ebb and its possible locations, relative to the folder of the ebb program. */
struct part {
    /* if the part is a folder, the name of a file that the folder must contain; otherwise NULL */
    const char *file;
    const char *places[8];
};

static const struct part shim = {
    .file = "sitecustomize.py",
    .places =
        {
            "../share/ebb/python/ebb/_shim",           /* make install */
            "../lib/python3*/site-packages/ebb/_shim", /* a wheel in a virtual environment */
            "../lib/python3*/dist-packages/ebb/_shim", /* a wheel in Debian's own Python */
            "../ebb/_shim",                            /* pip install --target */
            "../python/ebb/_shim",                     /* build/ebb */
            "../../python/ebb/_shim",                  /* build/asan/ebb */
        },
};

static const struct part heap = {
    .places =
        {
            "libebb-heap.so", /* build/ebb */
            "../lib/ebb/libebb-heap.so",
            "../lib/python3*/site-packages/ebb/lib/libebb-heap.so",
            "../lib/python3*/dist-packages/ebb/lib/libebb-heap.so",
            "../ebb/lib/libebb-heap.so",
        },
};

static const struct part wslay = {
    .places =
        {
            "../lib/ebb/libwslay.so.1",
            "../lib/python3*/site-packages/ebb/lib/libwslay.so.1",
            "../lib/python3*/dist-packages/ebb/lib/libwslay.so.1",
            "../ebb/lib/libwslay.so.1",
        },
};

/* True if PATH belongs to root, to the current user, or to the owner of the ebb program. Files of
 * other users are rejected, because the code in them will run with the current user's
 * permissions. */
static bool is_trusted(const struct part *part, const char *path, uid_t owner)
{
    char file[PATH_MAX + 32];
    struct stat st;
    snprintf(file, sizeof file, "%s%s%s", path, part->file ? "/" : "",
             part->file ? part->file : "");
    return stat(file, &st) == 0 && S_ISREG(st.st_mode) && access(file, R_OK) == 0 &&
           (st.st_uid == 0 || st.st_uid == geteuid() || st.st_uid == owner);
}

/* Escapes glob characters in the path of the ebb program. */
static void escape_pattern(const char *path, char ret[2 * PATH_MAX])
{
    for (; *path; *ret++ = *path++)
        if (strchr("*?[\\", *path))
            *ret++ = '\\';
    *ret = '\0';
}

static bool find_part_at(const struct part *part, const char *program_folder, const char *place,
                         uid_t owner, char ret[PATH_MAX])
{
    char folder[2 * PATH_MAX], pattern[sizeof folder + 64], real[PATH_MAX];
    glob_t found;
    bool is_there = false;
    escape_pattern(program_folder, folder);
    snprintf(pattern, sizeof pattern, "%s/%s", folder, place);
    if (glob(pattern, 0, NULL, &found) != 0)
        return false;
    for (size_t i = 0; i < found.gl_pathc && !is_there; i++)
        is_there = realpath(found.gl_pathv[i], real) && is_trusted(part, real, owner);
    globfree(&found);
    if (is_there)
        memcpy(ret, real, PATH_MAX);
    return is_there;
}

static bool find_part(const struct part *part, char ret[PATH_MAX])
{
    char program[PATH_MAX];
    struct stat st;
    ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    if (len <= 0 || stat("/proc/self/exe", &st) < 0)
        return false;
    program[len] = '\0';
    char *slash = strrchr(program, '/');
    if (!slash)
        return false;
    *slash = '\0';
    for (const char *const *place = part->places; *place; place++)
        if (find_part_at(part, program, *place, st.st_uid, ret))
            return true;
    return false;
}

bool place_find_shim(char ret[PATH_MAX])
{
    return find_part(&shim, ret);
}

bool place_find_heap(char ret[PATH_MAX])
{
    return find_part(&heap, ret);
}

bool place_find_wslay(char ret[PATH_MAX])
{
    return find_part(&wslay, ret);
}
