/* What a frame is called, and whether it is one that a person wants to see first. */
#pragma once

#include "profile/profile.h"
#include "profile/symbols.h"

struct names;

enum name_kind { NAME_PYTHON, NAME_NATIVE, NAME_UNKNOWN };

/* A frame in words. Texts are raw (to be escaped by whoever prints them) and live as long as the
 * names.
 */
struct name {
    enum name_kind kind;
    const char *function; /* never NULL: "libfoo.so+0x1234" where nothing better is known */
    const char *file;     /* NULL: not known; a Python source or a C source */
    const char *lib;      /* base name of the module; NULL for Python */
    uint32_t line;        /* 0: not known */
    bool is_allocator; /* malloc and its kin, operator new, the interpreter's, c10's, numpy's: not
                        * who to blame */
    bool is_inlined;
};

/* P is borrowed. */
int names_new(const struct profile *p, const struct symbols_options *options, struct names **ret);
void names_free(struct names *n); /* NULL is fine */
/* The frames of one node, innermost (inlined) first; at least one. */
size_t names_of_node(struct names *n, uint32_t node, const struct name **ret);
/* The frame to show for a site: the innermost Python frame that is not of the standard library's or
 * a framework's plumbing if there is one, else the innermost Python frame, else the innermost
 * native one that is no allocator. Never NULL. */
const struct name *names_of_site(struct names *n, uint32_t site);
/* The innermost native frame of it that is no allocator; NULL: none. */
const struct name *names_native_of_site(struct names *n, uint32_t site);
