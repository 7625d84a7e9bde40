/* Tests tokens and their files, host names, and sessions that survive a restart. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "server/http/auth.h"

struct folder {
    char path[64];
    int fd;
};

static int make_folder(void **state)
{
    struct folder *f = calloc(1, sizeof(*f));
    snprintf(f->path, sizeof(f->path), "/tmp/ebb-auth-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = f;
    return 0;
}

static int remove_folder(void **state)
{
    struct folder *f = *state;
    unlinkat(f->fd, "token", 0);
    unlinkat(f->fd, "token.read-only", 0);
    unlinkat(f->fd, "sessions", 0);
    close(f->fd);
    assert_int_equal(rmdir(f->path), 0);
    free(f);
    return 0;
}

static void put(struct folder *f, const char *name, const char *text, mode_t mode)
{
    int fd = openat(f->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, mode), 0);
    assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

static int read_token(int folder, const char *name, char ret[300])
{
    ssize_t len = io_read_small(folder, name, ret, 300);
    if (len == AUTH_SECRET_SIZE)
        ret[len - 1] = '\0';
    return len == AUTH_SECRET_SIZE ? 0 : -1;
}

static void secret_comparison_accepts_only_the_same_secret(void **state)
{
    (void)state;
    assert_true(auth_secret_equal("abc", "abc"));
    assert_false(auth_secret_equal("abd", "abc"));
    assert_false(auth_secret_equal("ab", "abc"));
    assert_false(auth_secret_equal("abcabc", "abc"));
    assert_false(auth_secret_equal("", "abc"));
    assert_false(auth_secret_equal("", ""));
}

static void token_files_are_created_once_with_mode_0600(void **state)
{
    struct folder *f = *state;
    struct auth *a = NULL;
    struct err err = {""};
    struct stat st;
    char first[300], again[300];
    assert_int_equal(auth_check(f->path, &err), 0);
    assert_int_equal(faccessat(f->fd, "token", F_OK, 0), -1);
    assert_int_equal(auth_open(f->path, NULL, &a, &err), 0);
    auth_free(a);
    assert_int_equal(fstatat(f->fd, "token", &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(read_token(f->fd, "token", first), 0);
    assert_int_equal(strlen(first), 64);
    assert_int_equal(auth_open(f->path, NULL, &a, &err), 0);
    auth_free(a);
    assert_int_equal(read_token(f->fd, "token", again), 0);
    assert_string_equal(first, again);
    assert_int_equal(read_token(f->fd, "token.read-only", again), 0);
    assert_string_not_equal(first, again);
}

static void token_file_that_other_users_can_read_is_refused(void **state)
{
    struct folder *f = *state;
    struct auth *a = NULL;
    struct err err = {""};
    put(f, "token", "0123456789012345678901234567890123456789\n", 0640);
    assert_int_equal(auth_open(f->path, NULL, &a, &err), -EPERM);
    assert_non_null(strstr(err.text, "chmod 600"));
    assert_int_equal(auth_check(f->path, &err), -EPERM);
    assert_null(a);
}

static void short_or_binary_token_is_refused(void **state)
{
    struct folder *f = *state;
    struct auth *a = NULL;
    struct err err = {""};
    put(f, "token", "secret\n", 0600);
    assert_int_equal(auth_open(f->path, NULL, &a, &err), -EINVAL);
    put(f, "token", "01234567890123456789 01234567890123456789\n", 0600);
    assert_int_equal(auth_open(f->path, NULL, &a, &err), -EINVAL);
    unlinkat(f->fd, "token", 0);
    assert_int_equal(symlinkat("/etc/passwd", f->fd, "token"), 0);
    assert_int_equal(auth_open(f->path, NULL, &a, &err), -ELOOP);
    assert_null(a);
}

static void only_the_right_token_opens_a_session(void **state)
{
    struct folder *f = *state;
    struct auth *a = NULL;
    struct err err = {""};
    char token[300], reader[300];
    struct auth_grant grant, other;
    assert_int_equal(auth_open(f->path, NULL, &a, &err), 0);
    assert_int_equal(read_token(f->fd, "token", token), 0);
    assert_int_equal(read_token(f->fd, "token.read-only", reader), 0);
    assert_int_equal(auth_login(a, token, NS_PER_S, &grant), 0);
    assert_int_equal(grant.rank, HTTP_OWNER);
    assert_non_null(strstr(grant.cookie, "HttpOnly; SameSite=Strict; Path=/"));
    assert_null(strstr(grant.cookie, token));
    assert_null(strstr(grant.cookie, grant.key));
    assert_null(strstr(grant.cookie, grant.view));
    assert_string_not_equal(grant.key, grant.view);
    assert_int_equal(auth_login(a, reader, NS_PER_S, &other), 0);
    assert_int_equal(other.rank, HTTP_READER);
    assert_string_not_equal(grant.key, other.key);
    token[0] = token[0] == 'a' ? 'b' : 'a';
    assert_int_equal(auth_login(a, token, NS_PER_S, &grant), -EACCES);
    assert_int_equal(auth_login(a, "", NS_PER_S, &grant), -EACCES);
    auth_free(a);
}

static void right_token_is_accepted_while_wrong_tokens_are_rate_limited(void **state)
{
    struct folder *f = *state;
    struct auth *a = NULL;
    struct err err = {""};
    char token[300];
    struct auth_grant grant;
    uint64_t now_ns = 1000 * NS_PER_S;
    assert_int_equal(auth_open(f->path, NULL, &a, &err), 0);
    assert_int_equal(read_token(f->fd, "token", token), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(auth_login(a, "wrong", now_ns, &grant), -EACCES);
    assert_int_equal(auth_login(a, "wrong", now_ns, &grant), -EAGAIN);
    assert_int_equal(auth_login(a, token, now_ns, &grant), 0);
    assert_int_equal(grant.rank, HTTP_OWNER);
    assert_int_equal(auth_login(a, "wrong", now_ns + 7 * NS_PER_S, &grant), -EACCES);
    auth_free(a);
}

static void sessions_are_limited_in_number_and_survive_a_restart(void **state)
{
    struct folder *f = *state;
    struct auth *a = NULL;
    struct err err = {""};
    struct stat st;
    char token[300], reader[300], text[32 << 10];
    struct auth_grant grant, of_reader;
    assert_int_equal(auth_open(f->path, NULL, &a, &err), 0);
    assert_int_equal(read_token(f->fd, "token", token), 0);
    assert_int_equal(read_token(f->fd, "token.read-only", reader), 0);
    for (unsigned i = 0; i < AUTH_SESSIONS_MAX + 5; i++)
        assert_int_equal(auth_login(a, token, (i + 1) * NS_PER_S, &grant), 0);
    assert_int_equal(grant.rank, HTTP_OWNER);
    /* Readers' sessions do not displace the owner's sessions. */
    for (unsigned i = 0; i < AUTH_SESSIONS_MAX + 5; i++)
        assert_int_equal(auth_login(a, reader, (i + 100) * NS_PER_S, &of_reader), 0);
    assert_int_equal(of_reader.rank, HTTP_READER);
    auth_free(a);
    assert_int_equal(fstatat(f->fd, "sessions", &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    ssize_t n = io_read_small(f->fd, "sessions", text, sizeof(text) - 1);
    assert_true(n > 0);
    unsigned lines = 0;
    for (ssize_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    assert_int_equal(lines, AUTH_SESSIONS_MAX);
    text[n] = '\0';
    grant.cookie[strlen("ebb=") + AUTH_SECRET_SIZE - 1] = '\0';
    assert_non_null(strstr(text, grant.cookie + strlen("ebb=")));
    assert_non_null(strstr(text, grant.key));
    assert_non_null(strstr(text, grant.view));
}

/* The session files were written by an earlier version, or are invalid. */
static void stored_sessions_without_a_key_are_dropped(void **state)
{
    struct folder *f = *state;
    struct auth *a = NULL;
    struct err err = {""};
    char token[300], text[1024];
    struct auth_grant grant;
    put(f, "sessions",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef w 9999999999999999999\n"
        "nonsense\n",
        0600);
    assert_int_equal(auth_open(f->path, NULL, &a, &err), 0);
    assert_int_equal(read_token(f->fd, "token", token), 0);
    assert_int_equal(auth_login(a, token, NS_PER_S, &grant), 0);
    assert_int_equal(grant.rank, HTTP_OWNER);
    auth_free(a);
    ssize_t n = io_read_small(f->fd, "sessions", text, sizeof(text) - 1);
    assert_true(n > 0);
    text[n] = '\0';
    assert_null(strstr(text, "0123456789abcdef w"));
    assert_ptr_equal(strchr(text, '\n'), text + n - 1);
}

static void host_check_accepts_literal_addresses_and_allowed_names(void **state)
{
    (void)state;
    static const char *const hosts[] = {"gpu.example", NULL};
    static const char *const good[] = {"localhost",      "LocalHost:7433", "127.0.0.1:1",
                                       "10.1.2.3",       "[::1]:7433",     "[::1]",
                                       "gpu.example:80", "GPU.example"};
    static const char *const bad[] = {
        "evil.example", "localhost.evil.example", "127.0.0.1.nip", "",
        ":80",          "localhost:80:80",        "localhost:x",   "[::1",
        "[evil]:80",    "localhost@evil",         "gpu.example.",  "1.2.3"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        if (!auth_host_ok(hosts, good[i]))
            fail_msg("%s is refused", good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (auth_host_ok(hosts, bad[i]))
            fail_msg("%s is taken", bad[i]);
    }
    assert_false(auth_host_ok(NULL, "gpu.example"));
}

static void origin_is_accepted_only_if_it_equals_the_host(void **state)
{
    (void)state;
    assert_true(auth_origin_is_host("http://localhost:7433", "localhost:7433"));
    assert_true(auth_origin_is_host("https://gpu.example", "gpu.example"));
    assert_false(auth_origin_is_host("http://localhost:7434", "localhost:7433"));
    assert_false(auth_origin_is_host("http://localhost", "localhost:7433"));
    assert_false(auth_origin_is_host("null", "localhost:7433"));
    assert_false(auth_origin_is_host("file://", "localhost:7433"));
    assert_false(auth_origin_is_host("http://evil.example", "localhost:7433"));
    assert_false(auth_origin_is_host("", ""));
}

static bool has_no_random;

int __real_io_random_hex(size_t bytes, char *ret); /* NOLINT: the linker's names */
int __wrap_io_random_hex(size_t bytes, char *ret); /* NOLINT */

int __wrap_io_random_hex(size_t bytes, char *ret)
{
    return has_no_random ? -EIO : __real_io_random_hex(bytes, ret);
}

static void right_token_is_not_called_wrong_if_random_numbers_are_missing(void **state)
{
    struct folder *f = *state;
    struct auth *a = NULL;
    struct err err = {""};
    char token[300];
    struct auth_grant grant;
    assert_int_equal(auth_open(f->path, NULL, &a, &err), 0);
    assert_int_equal(read_token(f->fd, "token", token), 0);
    has_no_random = true;
    assert_int_equal(auth_login(a, token, NS_PER_S, &grant), -EIO);
    assert_int_equal(auth_login(a, "wrong", NS_PER_S, &grant), -EACCES);
    has_no_random = false;
    assert_int_equal(auth_login(a, token, NS_PER_S, &grant), 0);
    auth_free(a);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secret_comparison_accepts_only_the_same_secret),
        TEST(token_files_are_created_once_with_mode_0600),
        TEST(token_file_that_other_users_can_read_is_refused),
        TEST(short_or_binary_token_is_refused),
        TEST(only_the_right_token_opens_a_session),
        TEST(right_token_is_accepted_while_wrong_tokens_are_rate_limited),
        TEST(right_token_is_not_called_wrong_if_random_numbers_are_missing),
        TEST(sessions_are_limited_in_number_and_survive_a_restart),
        TEST(stored_sessions_without_a_key_are_dropped),
        cmocka_unit_test(host_check_accepts_literal_addresses_and_allowed_names),
        cmocka_unit_test(origin_is_accepted_only_if_it_equals_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
