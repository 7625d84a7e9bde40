/* Loads libwslay. */
#include "server/http/live_wslay.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/err.h"
#include "base/place.h"

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define WSLAY_ENTRY(member, function) {#function, offsetof(struct wslay_table, member)},
    WSLAY_FUNCTIONS(WSLAY_ENTRY)};

int wslay_load(struct wslay_table *ret, struct err *err)
{
    char own[PATH_MAX];
    const char *path = place_find_wslay(own) ? own : "libwslay.so.1";
    struct wslay_table t = {.library = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (!t.library)
        return err_set(err, -ENOENT,
                       "libwslay.so.1, which the live stream requires, is not installed; install "
                       "libwslay1");
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(t.library, functions[i].name);
        if (!f) {
            wslay_unload(&t);
            return err_set(err, -ENOENT, "libwslay.so.1 lacks %s; install libwslay1 1.1 or newer",
                           functions[i].name);
        }
        memcpy((char *)&t + functions[i].offset, &f, sizeof f);
    }
    *ret = t;
    return 0;
}

void wslay_unload(struct wslay_table *t)
{
    if (t->library)
        dlclose(t->library);
    *t = (struct wslay_table){0};
}
