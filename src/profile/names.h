/* Resolves frames to names, and chooses the frame to show first. */
#pragma once

#include "profile/profile.h"
#include "profile/symbols.h"

struct names;

/* A frame is UNKNOWN if it is in no module or missing in the recording. */
enum name_kind { NAME_PYTHON, NAME_NATIVE, NAME_UNKNOWN };

/* A named frame. Texts are not escaped and live as long as the struct names; equal texts may
 * have different addresses. */
struct name {
    enum name_kind kind;
    const char *function; /* function name, or "libfoo.so+0x1234" if it is unknown; never NULL */
    const char *file;     /* Python or C source file, or NULL if unknown */
    const char *lib;      /* base name of the module, or NULL for Python */
    uint32_t line;        /* 0: unknown */
    /* True for malloc and related functions, operator new, the C++ library, and the allocators of
     * the interpreter, c10 and numpy. They are never the cause of a leak. */
    bool is_allocator;
    bool is_inlined;
    /* true if the function runs an autograd node; the frame is then named "backward of NODE" */
    bool is_backward;
    /* true for a Python function in the user's own files; names_program_of_site defines these */
    bool is_own;
};

/* Borrows P. */
int names_new(const struct profile *p, const struct symbols_options *options, struct names **ret);
void names_free(struct names *n); /* NULL is fine */
/* Returns how many frames NODE has: more than one if functions are inlined there. The innermost
 * (inlined) frame comes first. */
size_t names_of_node(struct names *n, uint32_t node, const struct name **ret);
/* Returns the frame to show for a site, never NULL. This is the first of the following frames
 * that exists: the innermost Python frame that is not plumbing; the innermost Python frame; the
 * frame of names_native_of_site; the innermost frame.
 *
 * Plumbing is library code that runs between the user's line and the allocation and is never the
 * cause of a leak. names_known.c lists it: the standard library, framework code that calls the
 * user's code or loads its data (a module's __call__, a data loader), and packages that only
 * compute for their caller (numpy, PIL). Other packages are not plumbing. For example, if a
 * collator of transformers keeps the memory that it allocates, the cause is the collator, not
 * the user's line that called it; names_program_of_site returns that line. */
const struct name *names_of_site(struct names *n, uint32_t site);
/* Stores the Python frames in the user's own files (not in installed packages), innermost first.
 * Returns their number, at most MAX. A comprehension is replaced by its function. A recursive
 * function appears once. The script's <module> appears only if it is innermost. If no file of the
 * job is the user's own, the package that was started (python -m, or a command) is treated as the
 * user's own. */
size_t names_program_of_site(struct names *n, uint32_t site, size_t max, const struct name **ret);
/* Returns the autograd node that allocated the memory, or else the innermost native frame of the
 * site that is not an allocator, or NULL. The backward pass on a GPU runs in a thread without
 * Python frames, so the line of the forward pass that made the node is unknown. */
const struct name *names_native_of_site(struct names *n, uint32_t site);
