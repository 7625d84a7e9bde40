/* Small whole-file reads and writes that handle interruption, and pidfds. */
#pragma once

#include <dirent.h>
#include <stddef.h>
#include <sys/types.h>

struct buf;
struct err;

/* Reads at most SIZE - 1 bytes of DIRFD/PATH and adds a NUL. Returns the length or -errno. A
 * longer file is truncated. Meant for /proc files. */
ssize_t io_read_small(int dirfd, const char *path, char *buf, size_t size);
/* Like io_read_small, with one pread from the start of an open fd. */
ssize_t io_pread_small(int fd, char *buf, size_t size);
/* Appends the whole file, at most MAX bytes. 0, -EFBIG or -errno. */
int io_read_all(int dirfd, const char *path, size_t max, struct buf *ret);
/* Like io_read_all, for a file that another program may have created: never blocks, and refuses
 * links (-ELOOP) and everything that is not a regular file (-EBADMSG). */
int io_read_plain(int dirfd, const char *path, size_t max, struct buf *ret);
/* Opens a folder for listing. PATH may be "." to list DIRFD without changing its position. NULL on
 * error, with errno set. */
DIR *io_open_folder(int dirfd, const char *path);
/* Writes all LEN bytes to a blocking fd. 0 or -errno. */
int io_write_all(int fd, const void *data, size_t len);
/* Writes BYTES (at most 64) random bytes from the kernel as hexadecimal digits and a NUL. */
int io_random_hex(size_t bytes, char *ret);
/* Creates a temporary file with an unpredictable name (RET_NAME), which can then be renamed to
 * FOLDER/BASE. Returns an fd for writing, or -errno. */
int io_create_temporary(int folder, const char *base, char *ret_name, size_t size);
/* Removes temporary files left by killed processes. Only for files that a single process replaces.
 */
void io_remove_temporaries(int folder, const char *base);
/* Replaces DIRFD/NAME: writes a temporary file, syncs it, renames it and syncs the folder. */
int io_replace_file(int dirfd, const char *name, const void *data, size_t len);
/* Like mkdir -p, with mode 0777 & ~umask. 0 (also if it exists) or -errno. */
int io_mkdir_parents(const char *path);
/* Returns a pidfd, closed on exec, which refers to this process even after the pid is reused.
 * -ESRCH if there is no such process. */
int io_pidfd_open(pid_t pid);
