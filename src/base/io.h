/* Reads and writes small files with one call each, and opens pidfds. */
#pragma once

#include <dirent.h>
#include <stddef.h>
#include <sys/types.h>

struct buf;
struct err;

/* Reads up to SIZE - 1 bytes of DIRFD/PATH, usually a file in /proc, and appends a NUL. A longer
 * file is truncated. Returns the length or -errno. */
ssize_t io_read_small(int dirfd, const char *path, char *buf, size_t size);
/* Like io_read_small, but reads an open fd from offset 0 with a single pread. */
ssize_t io_pread_small(int fd, char *buf, size_t size);
/* Appends the content of DIRFD/PATH to RET. Returns 0, -EFBIG if the file is larger than MAX bytes,
 * or -errno. */
int io_read_all(int dirfd, const char *path, size_t max, struct buf *ret);
/* Like io_read_all, for files that another program may have created. Never blocks. Refuses symbolic
 * links (-ELOOP) and all other files that are not regular (-EBADMSG). */
int io_read_plain(int dirfd, const char *path, size_t max, struct buf *ret);
/* Opens a folder for listing. PATH may be "." to list DIRFD itself; the read position of DIRFD does
 * not change. Returns NULL on error, with errno set. */
DIR *io_open_folder(int dirfd, const char *path);
/* Writes all LEN bytes to FD, which must be blocking. Returns 0 or -errno. */
int io_write_all(int fd, const void *data, size_t len);
/* Writes BYTES (at most 64) random bytes from the kernel as hexadecimal digits, followed by a
 * NUL. */
int io_random_hex(size_t bytes, char *ret);
/* Creates a temporary file in FOLDER with an unpredictable name (RET_NAME), which the caller can
 * rename to BASE. Returns an fd for writing, or -errno. */
int io_create_temporary(int folder, const char *base, char *ret_name, size_t size);
/* Removes the temporary files that killed processes left behind while they replaced BASE. Must not
 * be called while another process replaces BASE. */
void io_remove_temporaries(int folder, const char *base);
/* Replaces the file DIRFD/NAME: writes a temporary file, syncs it, renames it and syncs the
 * folder. */
int io_replace_file(int dirfd, const char *name, const void *data, size_t len);
/* Like mkdir -p, with mode 0777 & ~umask. Returns 0 (also if the folder exists) or -errno. */
int io_mkdir_parents(const char *path);
/* Returns a close-on-exec pidfd, which refers to this process even after the pid is reused. Returns
 * -ESRCH if no such process exists. */
int io_pidfd_open(pid_t pid);
