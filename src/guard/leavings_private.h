/* The inside of leavings, shared by its own files and their tests: leavings.c hears of files,
 * leavings_look.c looks for them in processes, leavings_end.c lists and removes what stayed,
 * leavings_sockets.c finds listeners. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guard/leavings.h"
#include "proc/helper.h"

enum {
    KNOWN_JOBS = 1u << 0, /* proven */
    KNOWN_USED = 1u << 1, /* by a process that lives at the end */
};

/* One file of the folder. The inode names it; its name may change. */
struct known {
    uint64_t dev, ino;
    char *name;
    uint32_t marks;
    uint32_t closes; /* after writing, as far as they matter */
    uint64_t due_ns; /* when processes are to be asked for it next */
    uint64_t gap_ns; /* and how long after that again */
};

struct known_list {
    struct known *v;
    size_t count, cap;
};

/* The mappings of one process, read in short pieces: the kernel goes on by address, so what changes
 * in between does no harm. */
struct maps_reader {
    int fd; /* -1: none under way */
    size_t len;
    bool is_away; /* all of this is the helper's */
    ssize_t got;
    char text[8192];
};

enum { LEAVINGS_PIDS = 4096, LEAVINGS_TURNS = 1024 };

struct leavings {
    int folder_fd, inotify_fd, proc_fd;
    char folder[512]; /* with a slash at its end, as links of /proc show it */
    size_t folder_len;
    uint64_t folder_dev;
    uint64_t began_wall_ns;
    bool must_rescan;        /* events were lost, or there was no room for a file */
    struct known_list old;   /* there before the job */
    struct known_list fresh; /* came while it ran */

    int32_t pids[LEAVINGS_PIDS]; /* of the job, the latest births */
    size_t pid_at;

    bool in_round;              /* over the processes of the tree */
    uint32_t next_slot;         /* of the process to ask next in it */
    uint64_t round_ns;          /* when it began */
    uint64_t rest_ns;           /* no work before this: looking must not cost more than a share */
    struct proc_helper *helper; /* of the tree that was last looked at; may be NULL */
    struct maps_reader maps;
    struct {
        uint32_t slot;
        uint64_t next_ns;
    } turns[LEAVINGS_TURNS]; /* when the mappings of a process may be read again */

    struct leavings_file *files; /* at the end */
    size_t file_count;
    struct leavings_socket sockets[LEAVINGS_SOCKETS];
    size_t socket_count;
};

struct known *known_find(const struct known_list *list, uint64_t dev, uint64_t ino); /* or NULL */
void known_drop(struct known_list *list, size_t i);

/* Takes in every event there is. */
void leavings_hear(struct leavings *l, uint64_t now_ns);
/* Compares the folder with what is known of it, after events were lost. */
void leavings_rescan(struct leavings *l, uint64_t now_ns);

/* Proves files by the number that torch writes into their names. TREE may be NULL. */
void leavings_prove_by_name(struct leavings *l, struct proc_tree *tree);
/* Sets BIT in the marks of each new file that FD_FOLDER (/proc/PID/fd; it is closed) shows. */
void leavings_mark_open(struct leavings *l, int fd_folder, uint32_t bit);
/* The same for the next piece of l->maps; closes it at its end. False: the process does not let us
 * read it now. */
bool leavings_mark_mapped(struct leavings *l, uint32_t bit);
/* Sets KNOWN_USED on what any process that we may look at has open or mapped. */
void leavings_mark_used(struct leavings *l);

/* Takes a line of /proc/net/tcp or tcp6: 0 with the address it listens on, -ENOENT where it does
 * not listen, -EBADMSG. */
int leavings_tcp_parse(const char *line, size_t len, uint64_t *ret_ino, char ret_address[112]);
int leavings_unix_parse(const char *line, size_t len, uint64_t *ret_ino, char ret_address[112]);
