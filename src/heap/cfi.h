/* Call frame information: from the .eh_frame_hdr of a library to the one rule that leads from an
 * instruction to its caller. x86-64 alone. Pure, and believes none of the bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that can be read, and where they are mapped: the segment with .eh_frame_hdr and .eh_frame
 * in it. */
struct cfi_section {
    const uint8_t *bytes;
    size_t len;
    uint64_t address; /* of bytes[0] */
    uint64_t header;  /* of .eh_frame_hdr */
};

/* Where the frame of the caller begins (the CFA). */
enum cfi_cfa {
    CFI_CFA_NONE = 0,   /* not known, or too rare to be kept as a rule */
    CFI_CFA_END,        /* there is no caller: this is where the thread began */
    CFI_CFA_SP,         /* sp + offset */
    CFI_CFA_FP,         /* rbp + offset */
    CFI_CFA_SP_POINTER, /* what lies at sp + offset */
    CFI_CFA_FP_POINTER, /* what lies at rbp + offset: functions that align their stack anew */
    CFI_CFA_PLT,        /* sp + 8, and 8 more once ip & 15 has come to offset: a stub that pushes */
    CFI_CFA_SIGNAL,     /* the return from a signal handler: all registers lie at sp */
};

/* Where the caller's rbp is. */
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

/* The rule at IP: for a return address, that of the call before it. -ENOENT: no function is
 * described there. -EBADMSG: the section is broken. -EOPNOTSUPP: the rule is none of the above. */
int cfi_find(const struct cfi_section *s, uint64_t ip, struct cfi_rule *ret);
