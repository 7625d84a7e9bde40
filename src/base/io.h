/* Small whole-file reads and writes that do not give up half-way, and fds of processes. */
#pragma once

#include <dirent.h>
#include <stddef.h>
#include <sys/types.h>

struct buf;
struct err;

/* Reads at most SIZE - 1 bytes of DIRFD/PATH and ends them with NUL. Returns the length or -errno;
 * a longer file is cut. For /proc files. */
ssize_t io_read_small(int dirfd, const char *path, char *buf, size_t size);
/* pread from the start of a kept fd, same rules. One system call. */
ssize_t io_pread_small(int fd, char *buf, size_t size);
/* Appends the whole file, at most MAX bytes: 0, -EFBIG or -errno. */
int io_read_all(int dirfd, const char *path, size_t max, struct buf *ret);
/* The same of a file that somebody else may have put there: never waits, and neither a link nor
 * anything but a plain file is read (-ELOOP, -EBADMSG). */
int io_read_plain(int dirfd, const char *path, size_t max, struct buf *ret);
/* A folder to list, which may be "." for an fd whose own position must stay. NULL: errno says why.
 */
DIR *io_open_folder(int dirfd, const char *path);
/* Writes all LEN bytes to a blocking fd: 0 or -errno. */
int io_write_all(int fd, const void *data, size_t len);
/* BYTES (at most 64) from the kernel's random source as hexadecimal digits, with a NUL. */
int io_random_hex(size_t bytes, char *ret);
/* Creates a file that is to replace FOLDER/BASE by a rename, under a name that nobody can have
 * taken (RET_NAME). An fd to write, or -errno. */
int io_create_temporary(int folder, const char *base, char *ret_name, size_t size);
/* Removes those that killed processes left behind. Only for files that one process alone replaces.
 */
void io_remove_temporaries(int folder, const char *base);
/* Replaces DIRFD/NAME by temporary file + fsync + rename + fsync of the folder. */
int io_replace_file(int dirfd, const char *name, const void *data, size_t len);
/* mkdir -p with mode 0777 & ~umask: 0 (also if it is there) or -errno. */
int io_mkdir_parents(const char *path);
/* A pidfd, which is closed on exec: it means PID as it is now, whoever has its number later.
 * -errno: -ESRCH where there is none. */
int io_pidfd_open(pid_t pid);
