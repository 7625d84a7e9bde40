/* What a frame is called, and whether it is one that a person wants to see first. */
#pragma once

#include "profile/profile.h"
#include "profile/symbols.h"

struct names;

/* UNKNOWN: in no module, or a frame that the recording does not explain. */
enum name_kind { NAME_PYTHON, NAME_NATIVE, NAME_UNKNOWN };

/* A frame in words. Texts are raw (to be escaped by whoever prints them) and live as long as the
 * names; the same text is not always at the same place. */
struct name {
    enum name_kind kind;
    const char *function; /* never NULL: "libfoo.so+0x1234" where nothing better is known */
    const char *file;     /* NULL: not known; a Python source or a C source */
    const char *lib;      /* base name of the module; NULL for Python */
    uint32_t line;        /* 0: not known */
    bool is_allocator;    /* malloc and its kin, operator new, the C++ library, the interpreter's,
                           * c10's, numpy's: not who to blame */
    bool is_inlined;
    bool is_own; /* Python of the user's own files: names_program_of_site */
};

/* P is borrowed. */
int names_new(const struct profile *p, const struct symbols_options *options, struct names **ret);
void names_free(struct names *n); /* NULL is fine */
/* The frames of one node, innermost (inlined) first; at least one. */
size_t names_of_node(struct names *n, uint32_t node, const struct name **ret);
/* The frame to show for a site: the innermost Python frame that is no plumbing if there is one,
 * else the innermost Python frame, else the innermost native one that is no allocator, else the
 * innermost at all. Never NULL.
 *
 * Plumbing is the standard library, what frameworks put between the lines that people write (a
 * module's __call__, a data loader's fetching), and packages that only ever compute for their
 * caller (numpy, PIL): names_known.c lists it. Other packages are not: a collator of transformers
 * that keeps what it makes is the culprit, not the line of the user's that called it. That line is
 * of names_program_of_site. */
const struct name *names_of_site(struct names *n, uint32_t site);
/* The Python frames of the user's own files, not of an installed package, innermost first: how
 * many, at most MAX. A comprehension is left out for the function that it stands in, a function
 * that calls itself is told once, and the script's own <module> only where it is the innermost.
 * Where no file of the job is the user's own, the package that was started (python -m, or by a
 * command of its own) counts as such. */
size_t names_program_of_site(struct names *n, uint32_t site, size_t max, const struct name **ret);
/* The innermost native frame of it that is no allocator; NULL: none. */
const struct name *names_native_of_site(struct names *n, uint32_t site);
