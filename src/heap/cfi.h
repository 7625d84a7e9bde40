/* Call frame information: finds in a library's .eh_frame_hdr the rule that leads from an
 * instruction to its caller. x86-64 only. Treats the bytes of the section as untrusted. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A readable copy of the segment with .eh_frame_hdr and .eh_frame, and its mapped address. */
struct cfi_section {
    const uint8_t *bytes;
    size_t len;
    uint64_t address; /* of bytes[0] */
    uint64_t header;  /* of .eh_frame_hdr */
};

/* How to compute the start of the caller's frame (the CFA). */
enum cfi_cfa {
    CFI_CFA_NONE = 0,   /* unknown, or too rare to be kept as a rule */
    CFI_CFA_END,        /* there is no caller: the thread started here */
    CFI_CFA_SP,         /* sp + offset */
    CFI_CFA_FP,         /* rbp + offset */
    CFI_CFA_SP_POINTER, /* the word at sp + offset */
    CFI_CFA_FP_POINTER, /* the word at rbp + offset: functions that realign their stack */
    CFI_CFA_PLT,        /* a PLT stub: sp + 8, or sp + 16 from ip & 15 == offset on */
    CFI_CFA_SIGNAL,     /* return from a signal handler: all registers are saved at sp */
};

/* Where the caller's rbp is saved. */
enum cfi_fp {
    CFI_FP_SAME = 0,
    CFI_FP_AT_CFA, /* saved at CFA + offset */
    CFI_FP_AT_FP,  /* saved at rbp + offset */
    CFI_FP_LOST,
};

/* The return address is at CFA - 8. */
struct cfi_rule {
    enum cfi_cfa cfa;
    int32_t cfa_offset;
    enum cfi_fp fp;
    int32_t fp_offset;
};

/* Finds the rule at IP; for a return address, pass the address of the call before it. -ENOENT: no
 * function is described there. -EBADMSG: the section is corrupt. -EOPNOTSUPP: the rule has an
 * unsupported form. */
int cfi_find(const struct cfi_section *s, uint64_t ip, struct cfi_rule *ret);
