/* Token files: made once, read at every start. */
#include "server/http/auth_token.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/io.h"

int secret_make(char ret[SECRET_SIZE])
{
    return io_random_hex(SECRET_BYTES, ret);
}

bool secret_equal(const char *given, const char *secret)
{
    size_t given_len = strlen(given), secret_len = strlen(secret);
    volatile size_t differs = given_len ^ secret_len;
    for (size_t i = 0; i < given_len; i++)
        differs =
            differs | (size_t)(unsigned char)(given[i] ^ secret[secret_len ? i % secret_len : 0]);
    return differs == 0 && secret_len > 0;
}

static int make_file(int dirfd, const char *name)
{
    char text[SECRET_SIZE];
    int r = secret_make(text);
    if (r < 0)
        return r;
    AUTO_CLOSE int fd =
        openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno == EEXIST ? 0 : -errno;
    text[SECRET_SIZE - 1] = '\n';
    r = io_write_all(fd, text, SECRET_SIZE);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (r < 0)
        unlinkat(dirfd, name, 0);
    return r;
}

static int check_token(char *token, size_t len)
{
    while (len > 0 && strchr("\n\r \t", token[len - 1]))
        token[--len] = '\0';
    if (len < TOKEN_MIN || len > TOKEN_MAX)
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        if (token[i] <= ' ' || token[i] > '~')
            return -EINVAL;
    }
    return 0;
}

int secret_read(int dirfd, const char *name, const char *path, bool may_make,
                char ret[TOKEN_MAX + 1], struct err *err)
{
    char text[TOKEN_MAX + 16];
    struct stat st;
    int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    AUTO_CLOSE int fd = openat(dirfd, name, flags);
    if (fd < 0 && errno == ENOENT && may_make) {
        int r = make_file(dirfd, name);
        if (r < 0)
            return err_set(err, r, "cannot make %s/%s: %s", path, name, strerror(-r));
        fd = openat(dirfd, name, flags);
    }
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, -errno, "cannot open %s/%s: %s", path, name, strerror(errno));
    if (!S_ISREG(st.st_mode) || (st.st_mode & 077) || (st.st_uid != geteuid() && st.st_uid != 0))
        return err_set(err, -EPERM,
                       "%s/%s must be a file that only the server's user can read; `chmod 600` it, "
                       "or remove it and a new one is made",
                       path, name);
    ssize_t n = io_pread_small(fd, text, sizeof text);
    if (n < 0)
        return err_set(err, (int)n, "cannot read %s/%s: %s", path, name, strerror((int)-n));
    if (check_token(text, (size_t)n) < 0)
        return err_set(err, -EINVAL,
                       "%s/%s holds no token: one line of %d to %d visible characters; remove it "
                       "and a new one is made",
                       path, name, TOKEN_MIN, TOKEN_MAX);
    memcpy(ret, text, strlen(text) + 1);
    return 0;
}
