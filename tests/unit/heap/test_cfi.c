/* Tests the unwind rules of hand-made functions and of this program, and invalid bytes. */
#include "heap/cfi.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "heap/modules.h"

enum { ADDRESS = 0x10000, CODE = 0x20000, CODE_BYTES = 0x100, IMAGE_MAX = 256 };

struct image {
    uint8_t bytes[IMAGE_MAX];
    size_t len;
};

static void put(struct image *m, const void *bytes, size_t n)
{
    assert_true(n <= sizeof(m->bytes) - m->len);
    memcpy(m->bytes + m->len, bytes, n);
    m->len += n;
}

static void put_u8(struct image *m, unsigned v)
{
    uint8_t byte = (uint8_t)v;
    put(m, &byte, 1);
}

static void put_u32(struct image *m, uint32_t v)
{
    put(m, &v, sizeof(v));
}

static void set_u32(struct image *m, size_t at, uint32_t v)
{
    memcpy(m->bytes + at, &v, sizeof(v));
}

static uint32_t here(const struct image *m)
{
    return ADDRESS + (uint32_t)m->len;
}

/* CFI programs are string literals, which may contain NUL. */
#define PROGRAM(s) s, sizeof(s) - 1
/* At the start of a function the CFA is rsp + 8 and the return address is at CFA - 8. */
#define USUAL "\x0c\x07\x08\x90\x01"

/* Creates one function at CODE whose CIE has the given augmentation string and data. */
static void make(struct image *m, const char *augmentation, const void *data, size_t data_len,
                 const void *common, size_t common_len, const void *program, size_t program_len)
{
    *m = (struct image){0};
    put(m, "\x01\x1b\x03\x3b", 4);
    put_u32(m, 0);
    put_u32(m, 1);
    put_u32(m, CODE - ADDRESS);
    put_u32(m, 0);

    size_t cie = m->len;
    put_u32(m, 0);
    put_u32(m, 0);
    put_u8(m, 1);
    put(m, augmentation, strlen(augmentation) + 1);
    put(m, "\x01\x78\x10",
        3); /* Code alignment is 1, data alignment -8, and the return address is in column 16. */
    put_u8(m, (unsigned)data_len);
    put(m, data, data_len);
    put(m, common, common_len);
    set_u32(m, cie, (uint32_t)(m->len - cie - 4));

    size_t fde = m->len;
    set_u32(m, 16, (uint32_t)fde);
    put_u32(m, 0);
    put_u32(m, (uint32_t)(m->len - cie));
    put_u32(m, CODE - here(m));
    put_u32(m, CODE_BYTES);
    put_u8(m, 0);
    put(m, program, program_len);
    set_u32(m, fde, (uint32_t)(m->len - fde - 4));
}

static struct cfi_section section_of(const struct image *m)
{
    return (struct cfi_section){
        .bytes = m->bytes, .len = m->len, .address = ADDRESS, .header = ADDRESS};
}

static int find(const struct image *m, uint64_t ip, struct cfi_rule *ret)
{
    struct cfi_section s = section_of(m);

    return cfi_find(&s, ip, ret);
}

static void usual(struct image *m, const void *program, size_t len)
{
    make(m, "zR", PROGRAM("\x1b"), PROGRAM(USUAL), program, len);
}

static void assert_rule(const struct image *m, uint64_t ip, struct cfi_rule want)
{
    struct cfi_rule got;

    memset(&got, 0x5a, sizeof(got));
    assert_int_equal(find(m, ip, &got), 0);
    assert_int_equal(got.cfa, want.cfa);
    assert_int_equal(got.cfa_offset, want.cfa_offset);
    assert_int_equal(got.fp, want.fp);
    assert_int_equal(got.fp_offset, want.fp_offset);
}

static void assert_error(const struct image *m, uint64_t ip, int want)
{
    struct cfi_rule got, before;

    memset(&got, 0x5a, sizeof(got));
    before = got;
    assert_int_equal(find(m, ip, &got), want);
    assert_memory_equal(&got, &before, sizeof(got));
}

static void function_with_frame_pointer_has_a_rule_at_each_instruction(void **state)
{
    struct image m;

    (void)state;
    /* The function is: push rbp; mov rsp, rbp; … pop rbp; ret. */
    usual(&m, PROGRAM("\x41\x0e\x10\x86\x02\x43\x0d\x06\x02\x80\x0c\x07\x08\xc6"));
    assert_rule(&m, CODE, (struct cfi_rule){CFI_CFA_SP, 8, CFI_FP_SAME, 0});
    assert_rule(&m, CODE + 1, (struct cfi_rule){CFI_CFA_SP, 16, CFI_FP_AT_CFA, -16});
    assert_rule(&m, CODE + 3, (struct cfi_rule){CFI_CFA_SP, 16, CFI_FP_AT_CFA, -16});
    assert_rule(&m, CODE + 4, (struct cfi_rule){CFI_CFA_FP, 16, CFI_FP_AT_CFA, -16});
    assert_rule(&m, CODE + 0x83, (struct cfi_rule){CFI_CFA_FP, 16, CFI_FP_AT_CFA, -16});
    assert_rule(&m, CODE + 0x84, (struct cfi_rule){CFI_CFA_SP, 8, CFI_FP_SAME, 0});
    assert_rule(&m, CODE + CODE_BYTES - 1, (struct cfi_rule){CFI_CFA_SP, 8, CFI_FP_SAME, 0});
}

static void address_outside_functions_has_no_unwind_rule(void **state)
{
    struct image m;

    (void)state;
    usual(&m, PROGRAM(""));
    assert_error(&m, CODE - 1, -ENOENT);
    assert_error(&m, CODE + CODE_BYTES, -ENOENT);
    assert_error(&m, UINT64_MAX, -ENOENT);
    assert_error(&m, 0, -ENOENT);
}

static void cfi_restore_state_also_restores_the_cfa_rule(void **state)
{
    struct image m;

    (void)state;
    usual(&m, PROGRAM("\x0e\x40\x86\x02\x41\x0a\x0e\x08\xc6\x41\x0b"));
    assert_rule(&m, CODE + 1, (struct cfi_rule){CFI_CFA_SP, 8, CFI_FP_SAME, 0});
    assert_rule(&m, CODE + 2, (struct cfi_rule){CFI_CFA_SP, 64, CFI_FP_AT_CFA, -16});
}

static void large_and_signed_cfi_offsets_are_read(void **state)
{
    struct image m;

    (void)state;
    /* The program uses def_cfa_offset 0x12345 × 8, offset_extended_sf for rbp, and def_cfa_sf rbp,
     * -2 × -8. */
    usual(&m, PROGRAM("\x0e\xa8\xb4\x24\x11\x06\x04\x04\x01\x00\x00\x00\x12\x06\x7e"));
    assert_rule(&m, CODE, (struct cfi_rule){CFI_CFA_SP, 0x12345 * 8, CFI_FP_AT_CFA, -32});
    assert_rule(&m, CODE + 1, (struct cfi_rule){CFI_CFA_FP, 16, CFI_FP_AT_CFA, -32});
}

static void cfi_rules_of_unneeded_registers_are_skipped(void **state)
{
    struct image m;

    (void)state;
    /* The program has rules for rbx, r12, r13 and r15, which the unwinder does not need. */
    usual(&m, PROGRAM("\x83\x03\x8c\x04\x09\x0d\x0e\x16\x0f\x02\x77\x00\x2e\x10\x07\x03\x08\x03"
                      "\x0e\x30"));
    assert_rule(&m, CODE, (struct cfi_rule){CFI_CFA_SP, 48, CFI_FP_SAME, 0});
}

static void cfa_of_realigned_stack_is_loaded_from_a_saved_pointer(void **state)
{
    struct image m;

    (void)state;
    /* The CFA is breg6 -8, deref; rbp is at breg6 0. */
    usual(&m, PROGRAM("\x0f\x03\x76\x78\x06\x10\x06\x02\x76\x00"));
    assert_rule(&m, CODE, (struct cfi_rule){CFI_CFA_FP_POINTER, -8, CFI_FP_AT_FP, 0});
}

static void plt_stub_is_recognised_by_its_cfa_expression(void **state)
{
    struct image m;

    (void)state;
    usual(&m, PROGRAM("\x0f\x0b\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22"));
    assert_rule(&m, CODE, (struct cfi_rule){CFI_CFA_PLT, 11, CFI_FP_SAME, 0});
}

static void frame_with_undefined_return_address_is_the_outermost(void **state)
{
    struct image m;

    (void)state;
    usual(&m, PROGRAM("\x07\x10"));
    assert_rule(&m, CODE, (struct cfi_rule){CFI_CFA_END, 0, CFI_FP_SAME, 0});
}

static void signal_frame_is_recognised_by_augmentation_and_cfa_rule(void **state)
{
    struct image m;

    (void)state;
    make(&m, "zRS", PROGRAM("\x1b"), PROGRAM(USUAL), PROGRAM("\x0f\x04\x77\xa0\x01\x06"));
    assert_rule(&m, CODE, (struct cfi_rule){CFI_CFA_SIGNAL, 0, CFI_FP_SAME, 0});
    make(&m, "zRS", PROGRAM("\x1b"), PROGRAM(USUAL), PROGRAM("\x0f\x04\x77\xa8\x01\x06"));
    assert_error(&m, CODE, -EOPNOTSUPP);
}

static void personality_field_of_a_cie_is_skipped(void **state)
{
    struct image m;

    (void)state;
    make(&m, "zPLR", PROGRAM("\x9b\x01\x02\x03\x04\x1b\x1b"), PROGRAM(USUAL), PROGRAM("\x0e\x20"));
    assert_rule(&m, CODE, (struct cfi_rule){CFI_CFA_SP, 32, CFI_FP_SAME, 0});
}

static void unsupported_unwind_rules_return_eopnotsupp(void **state)
{
    struct image m;

    (void)state;
    usual(&m, PROGRAM("\x0d\x03")); /* CFA by rbx */
    assert_error(&m, CODE, -EOPNOTSUPP);
    usual(&m, PROGRAM("\x0f\x03\x77\x08\x1f")); /* breg7 8, neg */
    assert_error(&m, CODE, -EOPNOTSUPP);
    usual(&m, PROGRAM("\x90\x02")); /* The rule puts the return address at CFA - 16. */
    assert_error(&m, CODE, -EOPNOTSUPP);
    usual(&m,
          /* rbp is saved in rbx, which the unwinder does not track. The caller's rbp is therefore
           * unknown, but the frame can be unwound. */
          PROGRAM("\x09\x06\x03"));
    assert_rule(&m, CODE, (struct cfi_rule){CFI_CFA_SP, 8, CFI_FP_LOST, 0});
}

static void invalid_cfi_programs_are_refused(void **state)
{
    static const char deep[] =
        "\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a";
    struct image m;

    (void)state;
    usual(&m, PROGRAM("\x3f")); /* This CFI operation does not exist. */
    assert_error(&m, CODE, -EBADMSG);
    usual(&m, PROGRAM("\x0b")); /* The CFI program restores a state that was never remembered. */
    assert_error(&m, CODE, -EBADMSG);
    usual(&m, PROGRAM("\x0f\x7f\x77")); /* A CFI expression extends beyond the entry. */
    assert_error(&m, CODE, -EBADMSG);
    usual(&m, PROGRAM("\x0e\xff\xff")); /* A CFI number extends beyond the entry. */
    assert_error(&m, CODE, -EBADMSG);
    usual(&m, deep, sizeof(deep) - 1);
    assert_error(&m, CODE, -EBADMSG);
    /* The augmentation string has an unknown letter. */
    make(&m, "zX", PROGRAM("\x1b"), PROGRAM(USUAL), PROGRAM(""));
    assert_error(&m, CODE, -EBADMSG);
    make(&m, "eh", PROGRAM(""), PROGRAM(USUAL), PROGRAM(""));
    assert_error(&m, CODE, -EBADMSG);
}

/* Copies the first LEN bytes to the end of an allocation, so that a sanitizer detects reads past
 * the end. */
static void find_in_copy(const struct image *m, size_t len, uint64_t ip)
{
    uint8_t *copy = malloc(len ? len : 1);
    struct cfi_section s = {.bytes = copy, .len = len, .address = ADDRESS, .header = ADDRESS};
    struct cfi_rule rule = {.cfa = CFI_CFA_NONE};

    memcpy(copy, m->bytes, len);
    if (cfi_find(&s, ip, &rule) < 0)
        assert_int_equal(rule.cfa, CFI_CFA_NONE);
    else
        assert_int_not_equal(rule.cfa, CFI_CFA_NONE);
    free(copy);
}

static void damaged_eh_frame_is_not_read_out_of_bounds(void **state)
{
    struct image m;

    (void)state;
    make(&m, "zPLR", PROGRAM("\x9b\x01\x02\x03\x04\x1b\x1b"), PROGRAM(USUAL),
         PROGRAM("\x41\x0a\x0f\x03\x76\x78\x06\x10\x06\x02\x76\x00\x0b\x02\x10\x0e\x10\x86\x02"));
    for (size_t len = 0; len < m.len; len++) {
        struct cfi_section s = section_of(&m);
        struct cfi_rule rule;
        s.len = len;
        assert_true(cfi_find(&s, CODE, &rule) < 0);
        find_in_copy(&m, len, CODE + 1);
    }
    for (size_t at = 0; at < m.len; at++) {
        uint8_t before = m.bytes[at];
        for (unsigned v = 0; v < 256; v++) {
            m.bytes[at] = (uint8_t)v;
            find_in_copy(&m, m.len, CODE + 1);
            find_in_copy(&m, m.len, CODE + 0x20);
        }
        m.bytes[at] = before;
    }
}

#ifdef __x86_64__
static void every_function_of_this_program_has_an_unwind_rule(void **state)
{
    struct module_map map;
    struct cfi_rule rule;

    (void)state;
    assert_true(modules_map((uintptr_t)cfi_find, &map));
    assert_int_not_equal(map.eh_header, 0);
    struct cfi_section s = {.bytes = (const uint8_t *)map.eh_start,
                            .len = map.eh_len,
                            .address = map.eh_start,
                            .header = map.eh_header};
    const int32_t *table = (const int32_t *)(map.eh_header + 12);
    int32_t count = table[-1];
    assert_true(count > 20);
    for (int32_t i = 0; i < count; i++) {
        uint64_t start = map.eh_header + (uint64_t)(int64_t)table[2 * i];
        assert_int_equal(cfi_find(&s, start, &rule), 0);
        assert_int_not_equal(rule.cfa, CFI_CFA_NONE);
    }
    assert_int_equal(cfi_find(&s, (uintptr_t)cfi_find, &rule), 0);
    assert_int_equal(rule.cfa, CFI_CFA_SP);
    assert_int_equal(rule.cfa_offset, 8);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(function_with_frame_pointer_has_a_rule_at_each_instruction),
        cmocka_unit_test(address_outside_functions_has_no_unwind_rule),
        cmocka_unit_test(cfi_restore_state_also_restores_the_cfa_rule),
        cmocka_unit_test(large_and_signed_cfi_offsets_are_read),
        cmocka_unit_test(cfi_rules_of_unneeded_registers_are_skipped),
        cmocka_unit_test(cfa_of_realigned_stack_is_loaded_from_a_saved_pointer),
        cmocka_unit_test(plt_stub_is_recognised_by_its_cfa_expression),
        cmocka_unit_test(frame_with_undefined_return_address_is_the_outermost),
        cmocka_unit_test(signal_frame_is_recognised_by_augmentation_and_cfa_rule),
        cmocka_unit_test(personality_field_of_a_cie_is_skipped),
        cmocka_unit_test(unsupported_unwind_rules_return_eopnotsupp),
        cmocka_unit_test(invalid_cfi_programs_are_refused),
        cmocka_unit_test(damaged_eh_frame_is_not_read_out_of_bounds),
#ifdef __x86_64__
        cmocka_unit_test(every_function_of_this_program_has_an_unwind_rule),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
