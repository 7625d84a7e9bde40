/* What a job leaves on the machine when its processes have gone: files in /dev/shm, and sockets
 * that those it left behind still listened on. Only what is known to be the job's is listed: a
 * file that appeared while it ran and that one of its processes had open or mapped, or that bears
 * the number of one in the way torch names its files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/tree.h"

struct err;
struct leavings;

enum { LEAVINGS_FILES = 4096, LEAVINGS_SOCKETS = 32, LEAVINGS_NAME = 256 };

struct leavings_file {
    char name[LEAVINGS_NAME]; /* below the folder, raw */
    uint64_t dev, ino;
    uint64_t bytes; /* as allocated, at the end */
    uint32_t uid;   /* its owner; another's file is never removed */
    bool in_use;    /* some process has it open or mapped at the end: never removed */
    bool removed;
};

/* A socket that a process left behind listened on (it is gone with the process). */
struct leavings_socket {
    int32_t pid;
    char name[16];     /* of the process, raw */
    char address[112]; /* "127.0.0.1:29500", "[::]:8000", "/tmp/x.sock", "@abstract"; raw */
    bool is_file;      /* a unix socket's file that is still there at the end */
};

/* FOLDER is "/dev/shm" (tests: another). Begins to listen for new files there; what is in it now is
 * never the job's. -errno where the folder cannot be watched: then there is nothing to report. */
int leavings_new(const char *folder, struct leavings **ret, struct err *err);
void leavings_free(struct leavings *l);    /* NULL is fine */
int leavings_fd(const struct leavings *l); /* readable when something happened in the folder */
/* A process of the job was born. May be called from within leavings_look, which walks the tree. */
void leavings_process(struct leavings *l, int32_t pid);
/* Takes in what happened; looks which process of TREE has the new files open or mapped, for a few
 * milliseconds at most: the next look goes on from there. TREE is walked by it when there is a file
 * to look for. Cheap when nothing happened; call it at each tick, too, since a file may be mapped
 * later than it appears. */
void leavings_look(struct leavings *l, struct proc_tree *tree, uint64_t now_ns);
/* Processes of TREE are about to be ended as left behind: on what do they listen? Looks at each
 * one's fds, and at /proc/PID/net once for each network namespace. */
void leavings_sockets(struct leavings *l, struct proc_tree *tree);
/* At the very end, when the job's processes are gone: which of its files are still there. With
 * CLEAN they are removed (by name, if it is still the same file, ours, and nobody's who lives).
 * Returns how many there are (removed or not). */
size_t leavings_end(struct leavings *l, bool clean);
size_t leavings_files(const struct leavings *l, const struct leavings_file **ret); /* after end */
size_t leavings_socket_list(const struct leavings *l, const struct leavings_socket **ret);
bool leavings_were_removed(const struct leavings *l, size_t file); /* of index FILE */
/* True when the folder's file system has next to no room left (under 1 % or 1 MiB), or no inode. */
bool leavings_folder_is_full(const struct leavings *l);
