/* Determines the default state folder. */
#include "cli/state_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

static int join(char ret[PATH_MAX], const char *folder, const char *name, struct err *err)
{
    int n = snprintf(ret, PATH_MAX, "%s/%s", folder, name);
    return n >= PATH_MAX ? err_set(err, -ENAMETOOLONG, "%.200s is too long for a path", folder) : 0;
}

int cli_state_dir(const char *given, char ret[PATH_MAX], struct err *err)
{
    const char *home = getenv("HOME"), *state = getenv("XDG_STATE_HOME");
    const char *own = getenv("EBB_STATE_DIR");
    char here[PATH_MAX];
    if (!given && own && *own)
        given = own;
    if (given && given[0] == '/') {
        size_t len = strlen(given);
        while (len > 1 && given[len - 1] == '/')
            len--;
        if (len >= PATH_MAX)
            return err_set(err, -ENAMETOOLONG, "%.200s is too long for a path", given);
        snprintf(ret, PATH_MAX, "%.*s", (int)len, given);
        return 0;
    }
    if (given) {
        if (!getcwd(here, sizeof here))
            return err_set(err, -errno, "cannot find the working directory: %s", strerror(errno));
        return join(ret, here, given, err);
    }
    if (state && state[0] == '/')
        return join(ret, state, "ebb", err);
    if (!home || home[0] != '/')
        return err_set(err, -ENOENT, "$HOME is not set; give the state folder with --state-dir");
    return join(ret, home, ".local/state/ebb", err);
}

int cli_state_socket(const char *state_dir, char ret[PATH_MAX], struct err *err)
{
    return join(ret, state_dir, "sock", err);
}
