/* Call frame information: finds the unwind rule for an instruction, which describes how to find the
 * caller's frame. Reads the library's .eh_frame_hdr, whose bytes are untrusted. x86-64 only. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The segment that contains .eh_frame_hdr and .eh_frame. */
struct cfi_section {
    const uint8_t *bytes;
    size_t len;
    uint64_t address; /* address of bytes[0] */
    uint64_t header;  /* address of .eh_frame_hdr */
};

/* How to compute the start of the caller's frame (the CFA). */
enum cfi_cfa {
    CFI_CFA_NONE = 0,   /* the CFA is unknown, or the rule for it has none of the forms below */
    CFI_CFA_END,        /* there is no caller, because the thread started here */
    CFI_CFA_SP,         /* sp + offset */
    CFI_CFA_FP,         /* rbp + offset */
    CFI_CFA_SP_POINTER, /* the CFA is the word at sp + offset */
    /* The CFA is the word at rbp + offset, in functions that realign their stack. */
    CFI_CFA_FP_POINTER,
    /* for a PLT stub: the CFA is sp + 8 if ip & 15 is below offset, otherwise sp + 16 */
    CFI_CFA_PLT,
    CFI_CFA_SIGNAL, /* for the return from a signal handler: all registers are saved at sp */
};

/* Where the caller's rbp is saved. */
enum cfi_fp {
    CFI_FP_SAME = 0,
    CFI_FP_AT_CFA, /* rbp is saved at CFA + offset */
    CFI_FP_AT_FP,  /* rbp is saved at rbp + offset */
    CFI_FP_LOST,
};

/* How to find the caller's frame. The return address is always at CFA - 8. */
struct cfi_rule {
    enum cfi_cfa cfa;
    int32_t cfa_offset;
    enum cfi_fp fp;
    int32_t fp_offset;
};

/* Finds the rule at IP. For a return address, pass an address inside the call instruction before
 * it. Returns -ENOENT if no FDE covers IP, -EBADMSG if the section is corrupt, or -EOPNOTSUPP if
 * the rule has an unsupported form. */
int cfi_find(const struct cfi_section *s, uint64_t ip, struct cfi_rule *ret);
