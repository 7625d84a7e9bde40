/* Which files are the program's own. */
#include "profile/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/span.h"
#include "profile/names_known.h"
#include "profile/profile.h"

enum { PACKAGES = 16 }; /* that a stack may begin in; more are not looked at */

/* Packages by how many stacks begin in them. */
struct begun {
    char *package;
    size_t count;
};

void program_fini(struct program *p)
{
    free(p->package);
}

static bool is_users(const char *function, const char *file, uint32_t line)
{
    return !known_plumbing(function, file) && !known_library(file) &&
           !known_wrapper(function, file, line);
}

static const struct profile_code *code_of(const struct profile *p, uint32_t node)
{
    uint64_t frame = p->nodes[node].frame;
    uint64_t at = frame >> HEAP_FRAME_CODE_SHIFT & HEAP_FRAME_CODE_MASK;
    return frame & HEAP_FRAME_PYTHON && at < p->n_codes ? &p->codes[at] : NULL;
}

static bool has_users(const struct profile *p)
{
    bool found = false;
    for (size_t i = 0; !found && i < p->n_codes; i++) {
        const struct profile_code *code = &p->codes[i];
        char *file = span_copy((struct span){code->file.at, code->file.len});
        char *name = span_copy((struct span){code->name.at, code->name.len});
        found = file && name && *file && is_users(name, file, code->first_line);
        free(file);
        free(name);
    }
    return found;
}

static void count_package(struct begun list[PACKAGES], const char *file)
{
    size_t len, at = 0;
    if (!known_package(file, &len))
        return;
    while (at < PACKAGES && list[at].package &&
           (strncmp(list[at].package, file, len) != 0 || list[at].package[len]))
        at++;
    if (at == PACKAGES)
        return;
    if (!list[at].package)
        list[at].package = span_copy((struct span){file, len});
    list[at].count++;
}

/* Above NODE in its stack there is no package: its own is the one that the stack begins in. */
static bool begins_stack(const struct profile *p, uint32_t node)
{
    for (uint32_t at = p->nodes[node].parent; at; at = p->nodes[at].parent) {
        const struct profile_code *code = code_of(p, at);
        char *file = code ? span_copy((struct span){code->file.at, code->file.len}) : NULL;
        size_t len;
        bool is_package = file && known_package(file, &len);
        free(file);
        if (is_package || p->nodes[at].parent >= at)
            return false;
    }
    return true;
}

static char *package_started(const struct profile *p)
{
    struct begun list[PACKAGES] = {0};
    size_t best = 0;
    for (uint32_t i = 1; i < p->n_nodes; i++) {
        const struct profile_code *code = code_of(p, i);
        char *file = code ? span_copy((struct span){code->file.at, code->file.len}) : NULL;
        if (file && begins_stack(p, i))
            count_package(list, file);
        free(file);
    }
    for (size_t i = 1; i < PACKAGES; i++)
        best = list[i].count > list[best].count ? i : best;
    for (size_t i = 0; i < PACKAGES; i++)
        if (i != best)
            free(list[i].package);
    return list[best].package;
}

bool program_has(struct program *p, const struct profile *profile, const char *function,
                 const char *file, uint32_t line)
{
    if (!p->is_known) {
        p->package = has_users(profile) ? NULL : package_started(profile);
        p->is_known = true;
    }
    if (!p->package)
        return is_users(function, file, line);
    size_t len = strlen(p->package);
    return file && strncmp(file, p->package, len) == 0 && (file[len] == '/' || !file[len]);
}
