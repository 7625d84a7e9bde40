/* Tests symbols of this program (with DWARF, stripped, with a separate debug file) and of missing,
 * special and damaged files. */
#include "profile/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/io.h"
#include "profile/symbols_private.h"

struct fixture {
    char exe[PATH_MAX];
    char folder[64];
    uint8_t id[64];
    size_t id_len;
    uintptr_t bias;
    struct symbols *s;
    bool has_dwarf;
};

__attribute__((noinline)) static uintptr_t here(void)
{
    return (uintptr_t)__builtin_return_address(0) - 1;
}

static volatile int add; /* Work after the call keeps it from becoming a tail call. */

static inline __attribute__((always_inline)) uintptr_t innermost_inlined(void)
{
    uintptr_t at = here();
    return at + (uintptr_t)add;
}

static inline __attribute__((always_inline)) uintptr_t middle_inlined(void)
{
    return innermost_inlined() + (uintptr_t)add;
}

enum { LINE_OF_OUTER = __LINE__ + 4 };

__attribute__((noinline)) static uintptr_t outer_function(void)
{
    return middle_inlined() + (uintptr_t)add;
}

uintptr_t cpp_named(void) __asm__("_ZN3ebb8Profiler4takeERKSt6vectorIiSaIiEE");

__attribute__((noinline)) uintptr_t cpp_named(void)
{
    return here() + (uintptr_t)add;
}

/* The program is the first object, and its notes have the build id. */
static int note_self(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct fixture *f = arg;
    (void)size;
    f->bias = info->dlpi_addr;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const char *at = (const char *)(info->dlpi_addr + p->p_vaddr); /* NOLINT */
        const char *end = p->p_type == PT_NOTE ? at + p->p_memsz : at;
        while (end - at >= (ptrdiff_t)sizeof(ElfW(Nhdr))) {
            ElfW(Nhdr) note;
            memcpy(&note, at, sizeof(note));
            at += sizeof(note) + (note.n_namesz + 3U) / 4 * 4;
            if (note.n_type == NT_GNU_BUILD_ID && note.n_descsz <= sizeof(f->id))
                memcpy(f->id, at, f->id_len = note.n_descsz);
            at += (note.n_descsz + 3U) / 4 * 4;
        }
    }
    return 1;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct symbols_options options = {0};
    struct elf_file self;
    assert_true(readlink("/proc/self/exe", f->exe, sizeof(f->exe) - 1) > 0);
    dl_iterate_phdr(note_self, f);
    snprintf(f->folder, sizeof(f->folder), "/tmp/ebb-test-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    assert_int_equal(elf_file_open(f->exe, &self), 0);
    f->has_dwarf = elf_file_has(&self, ".debug_info");
    elf_file_close(&self);
    assert_int_equal(symbols_new(&options, &f->s), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", f->folder);
    symbols_free(f->s);
    assert_int_equal(system(command), 0); /* NOLINT */
    free(f);
    return 0;
}

static size_t find(struct fixture *f, const char *path, uintptr_t at, struct symbol *ret)
{
    return symbols_find(f->s, path, strlen(path), f->id, f->id_len, at - f->bias, ret);
}

/* Runs TOOL with the arguments REST in a shell. $F is the test's folder and $E this program. */
static void shell(const struct fixture *f, const char *tool, const char *rest)
{
    char command[2 * PATH_MAX];
    snprintf(command, sizeof(command), "F='%s' E='%s'; %s %s", f->folder, f->exe, tool, rest);
    assert_int_equal(system(command), 0); /* NOLINT */
}

static char *in_folder(const struct fixture *f, const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", f->folder, name);
    return path;
}

static void need_dwarf(const struct fixture *f)
{
    if (!f->has_dwarf) {
        print_message("this program was built without debug information\n");
        skip();
    }
}

static void check_inlined(const struct symbol *found, size_t n)
{
    assert_int_equal(n, 3);
    assert_string_equal(found[0].function, "innermost_inlined");
    assert_string_equal(found[1].function, "middle_inlined");
    assert_string_equal(found[2].function, "outer_function");
    assert_true(found[0].is_inlined && found[1].is_inlined && !found[2].is_inlined);
    assert_non_null(strstr(found[0].file, "test_symbols.c"));
    assert_non_null(strstr(found[2].file, "test_symbols.c"));
    assert_int_equal(found[2].line, LINE_OF_OUTER);
    assert_true(found[0].line > 0 && found[0].line < found[1].line);
    assert_true(found[1].line < LINE_OF_OUTER);
}

static void inlined_functions_come_first_with_their_lines(void **state)
{
    struct fixture *f = *state;
    struct symbol found[SYMBOL_INLINE_MAX], again[SYMBOL_INLINE_MAX];
    need_dwarf(f);
    size_t n = find(f, f->exe, outer_function(), found);
    check_inlined(found, n);
    assert_int_equal(find(f, f->exe, outer_function(), again), n);
    assert_ptr_equal(again[0].function, found[0].function);
}

static void functions_without_debug_info_get_symbol_table_names(void **state)
{
    struct fixture *f = *state;
    struct symbol found[SYMBOL_INLINE_MAX];
    shell(f, "strip", "-g -o \"$F\"/bare \"$E\"");
    assert_int_equal(find(f, in_folder(f, "bare"), outer_function(), found), 1);
    assert_string_equal(found[0].function, "outer_function");
    assert_null(found[0].file);
    assert_int_equal(found[0].line, 0);
    assert_int_equal(find(f, in_folder(f, "bare"), cpp_named(), found), 1);
    assert_string_equal(found[0].function,
                        "ebb::Profiler::take(std::vector<int, std::allocator<int> > const&)");
}

static void names_of_a_stripped_program_come_from_its_debug_file(void **state)
{
    struct fixture *f = *state;
    struct symbol found[SYMBOL_INLINE_MAX];
    shell(f, "strip", "-s -o \"$F\"/naked \"$E\"");
    assert_int_equal(find(f, in_folder(f, "naked"), outer_function(), found), 0);
    need_dwarf(f);
    shell(f, "objcopy", "--only-keep-debug \"$E\" \"$F\"/linked.debug");
    shell(f, "strip", "-s -o \"$F\"/linked \"$E\"");
    shell(f, "objcopy", "--add-gnu-debuglink=\"$F\"/linked.debug \"$F\"/linked");
    size_t n = find(f, in_folder(f, "linked"), outer_function(), found);
    check_inlined(found, n);
}

static void debuglink_file_is_verified_by_the_checksum(void **state)
{
    struct fixture *f = *state;
    struct symbol found[SYMBOL_INLINE_MAX];
    uintptr_t at = outer_function() - f->bias;
    shell(f, "strip", "-s -R .note.gnu.build-id -o \"$F\"/plain \"$E\"");
    shell(f, "objcopy", "-R .note.gnu.build-id \"$E\" \"$F\"/plain.debug");
    shell(f, "objcopy", "--add-gnu-debuglink=\"$F\"/plain.debug \"$F\"/plain");
    shell(f, "cp", "\"$F\"/plain \"$F\"/other; mkdir \"$F\"/.debug");
    assert_true(symbols_find(f->s, in_folder(f, "plain"), strlen(in_folder(f, "plain")), NULL, 0,
                             at, found) > 0);
    assert_string_equal(found[0].function, f->has_dwarf ? "innermost_inlined" : "outer_function");
    shell(f, "printf", "x >>\"$F\"/plain.debug");
    assert_int_equal(symbols_find(f->s, in_folder(f, "other"), strlen(in_folder(f, "other")), NULL,
                                  0, at, found),
                     0);
}

static void debug_file_with_another_build_id_is_ignored(void **state)
{
    struct fixture *f = *state;
    struct symbol found[SYMBOL_INLINE_MAX];
    uint8_t other[sizeof(f->id)];
    uintptr_t at = outer_function() - f->bias;
    size_t len = strlen(f->exe);
    if (f->id_len == 0) {
        print_message("this program has no build-id\n");
        skip();
    }
    assert_true(symbols_find(f->s, f->exe, len, f->id, f->id_len, at, found) > 0);
    memcpy(other, f->id, f->id_len);
    other[f->id_len - 1] ^= 1;
    assert_int_equal(symbols_find(f->s, f->exe, len, other, f->id_len, at, found), 0);
    assert_int_equal(symbols_find(f->s, f->exe, len, f->id, f->id_len - 1, at, found), 0);
    assert_int_equal(symbols_find(f->s, f->exe, len, NULL, 0, at, found), 0);
}

static void module_recorded_as_deleted_is_read_if_the_file_exists(void **state)
{
    struct fixture *f = *state;
    struct symbol found[SYMBOL_INLINE_MAX];
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s (deleted)", f->exe);
    assert_int_equal(find(f, path, outer_function(), found) > 0, f->id_len > 0);
}

static void debug_files_are_searched_in_the_sysroot_first(void **state)
{
    struct fixture *f = *state;
    struct symbol found[SYMBOL_INLINE_MAX];
    struct symbols_options options = {.sysroot = f->folder};
    struct symbols *s;
    shell(f, "mkdir", "-p \"$F\"/opt/gone && cp \"$E\" \"$F\"/opt/gone/program");
    assert_int_equal(find(f, "/opt/gone/program", outer_function(), found), 0);
    assert_int_equal(symbols_new(&options, &s), 0);
    assert_true(symbols_find(s, "/opt/gone/program", strlen("/opt/gone/program"), f->id, f->id_len,
                             outer_function() - f->bias, found) > 0);
    assert_non_null(found[0].function);
    symbols_free(s);
}

static void fifo_in_place_of_a_module_does_not_block_symbol_lookup(void **state)
{
    static const char *const paths[] = {"/dev/zero",  "/dev/tty",   "/",        "",      "vdso",
                                        "/proc/kmsg", "/no\n/such", "\x1b[31m", "[heap]"};
    struct fixture *f = *state;
    struct symbol found[SYMBOL_INLINE_MAX];
    char cut[] = "/dev/null\0hidden";
    assert_int_equal(mkfifo(in_folder(f, "fifo"), 0600), 0);
    alarm(500); /* The alarm prevents a hang if the test fails. */
    assert_int_equal(find(f, in_folder(f, "fifo"), 0x1000, found), 0);
    shell(f, "ln", "-s \"$F\"/fifo \"$F\"/link && ln -s loop \"$F\"/loop && : >\"$F\"/empty");
    assert_int_equal(find(f, in_folder(f, "link"), 0x1000, found), 0);
    assert_int_equal(find(f, in_folder(f, "loop"), 0x1000, found), 0);
    assert_int_equal(find(f, in_folder(f, "empty"), 0x1000, found), 0);
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        assert_int_equal(find(f, paths[i], 0x1000, found), 0);
    assert_int_equal(symbols_find(f->s, cut, sizeof(cut), NULL, 0, 1, found), 0);
    assert_int_equal(symbols_find(f->s, NULL, 0, NULL, 0, 1, found), 0);
    alarm(0);
    shell(f, "ln", "-s \"$E\" \"$F\"/good");
    assert_true(find(f, in_folder(f, "good"), outer_function(), found) > 0);
}

static void address_outside_functions_has_no_symbol(void **state)
{
    struct fixture *f = *state;
    struct symbol found[SYMBOL_INLINE_MAX];
    assert_int_equal(find(f, f->exe, f->bias, found), 0);
    assert_int_equal(find(f, f->exe, f->bias + (UINT64_C(1) << 47), found), 0);
    assert_int_equal(find(f, f->exe, UINT64_MAX, found), 0);
}

/* Two bytes of each file are changed, and every fourth file is truncated; the reader must not crash
 * on any of these files. */
static void damaged_elf_files_do_not_crash_symbol_lookup(void **state)
{
    enum { ROUNDS = 60 };
    struct fixture *f = *state;
    struct buf whole = {0};
    uint64_t random = 88172645463325252U;
    uintptr_t at = outer_function() - f->bias;
    size_t answers = 0;
    assert_int_equal(io_read_all(AT_FDCWD, f->exe, 256 << 20, &whole), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct symbol found[SYMBOL_INLINE_MAX];
        char name[32];
        size_t header = sizeof(ElfW(Ehdr)), len = i % 4 ? whole.len : random % whole.len, places[2];
        char old[2];
        for (size_t k = 0; k < 2; k++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            places[k] = k ? random % whole.len : whole.len - header - random % (64 * 40);
            old[k] = whole.data[places[k]];
            whole.data[places[k]] = (char)(random >> 40);
        }
        snprintf(name, sizeof(name), "damaged-%u", i);
        int fd = open(in_folder(f, name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(io_write_all(fd, whole.data, len), 0);
        close(fd);
        answers += find(f, in_folder(f, name), at + f->bias, found) > 0;
        unlink(in_folder(f, name));
        for (size_t k = 2; k-- > 0;)
            whole.data[places[k]] = old[k];
    }
    buf_fini(&whole);
    assert_true(answers > 0 && answers < ROUNDS);
}

static void symbol_name_with_the_fewest_leading_underscores_is_preferred(void **state)
{
    struct fixture *f = *state;
    struct elf_function items[] = {{0x10, 8, 1}, {0x20, 16, 1}, {0x20, 16, 8}, {0x40, 0, 13}};
    static const char strings[] = "\0__real\0real\0hand";
    struct elf_functions t = {.items = items, .count = 4, .strings_len = sizeof(strings)};
    char name[ELF_NAME_MAX];
    t.fd = open(in_folder(f, "strings"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(io_write_all(t.fd, strings, sizeof(strings)), 0);
    assert_true(elf_functions_find(&t, 0x2f, name));
    assert_string_equal(name, "real");
    assert_true(elf_functions_find(&t, 0x10, name));
    assert_string_equal(name, "__real");
    assert_false(elf_functions_find(&t, 0x18, name)); /* between two functions */
    assert_false(elf_functions_find(&t, 0x0f, name));
    assert_true(elf_functions_find(&t, 0x48, name)); /* The symbol "hand" has no known size. */
    assert_string_equal(name, "hand");
    close(t.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(inlined_functions_come_first_with_their_lines, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(functions_without_debug_info_get_symbol_table_names, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(names_of_a_stripped_program_come_from_its_debug_file, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(debuglink_file_is_verified_by_the_checksum, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(debug_file_with_another_build_id_is_ignored, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(module_recorded_as_deleted_is_read_if_the_file_exists,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(debug_files_are_searched_in_the_sysroot_first, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(fifo_in_place_of_a_module_does_not_block_symbol_lookup,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(address_outside_functions_has_no_symbol, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_elf_files_do_not_crash_symbol_lookup, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            symbol_name_with_the_fewest_leading_underscores_is_preferred, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
