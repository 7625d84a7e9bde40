/* Processes that `ebb attach` loads its hooks into. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attach/claim.h"
#include "attach/inject.h"
#include "attach/script.h"
#include "attach/target.h"

struct mark;

enum attach_phase {
    ATTACH_IDLE,    /* nothing in the process was changed */
    ATTACH_WAITING, /* a script was passed to the process and has not finished */
    ATTACH_ON,
    ATTACH_OFF,    /* the hooks were removed, or the process has exited */
    ATTACH_FAILED, /* `reason` contains the error */
};

struct attach_process {
    struct attach_target target;
    struct inject inject;
    /* connection to a process that was started with EBB_ATTACH=1, for the request to load the
     * hooks; -1 for other processes */
    int request_fd;
    enum attach_phase phase;
    bool is_stopping; /* true if the pending script removes the hooks */
    /* true once the script has called ebb._attach, which sends the result at its end */
    bool has_run;
    bool has_answered;
    bool is_late; /* true once the user was notified that ebb is waiting */
    uint64_t since_ns;
    /* the error, or a warning about a part that could not be loaded; "" if there is neither */
    char reason[512];
    bool has_heap;
    struct claim *claim;
};

struct attach_processes {
    struct attach_process *at;
    size_t count;
    uint64_t pause_ns; /* longest time for which ebb stopped a process */
};

/* Opens PID and, if ALL, every Python process that descends from it. Returns 0, or -errno with an
 * error about PID. */
int attach_processes_open(const struct proc_root *root, int32_t pid, bool all,
                          struct attach_processes *ret, struct err *err);
void attach_processes_fini(struct attach_processes *p);
/* attach_processes_start passes the script S to each process in phase ATTACH_IDLE,
 * attach_processes_stop to each process in phase ATTACH_ON. Both fill in the pid of the process,
 * and return the number of processes for which ebb then waits. */
size_t attach_processes_start(struct attach_processes *p, struct script *s);
size_t attach_processes_stop(struct attach_processes *p, struct script *s);
/* Handles a mark that one of the scripts sent. */
void attach_processes_mark(struct attach_processes *p, const struct mark *mark);
/* Detects processes that have exited. Informs the user once about each process that has not
 * answered for five seconds. Returns the number of processes that ebb still waits for. */
size_t attach_processes_check(struct attach_processes *p, uint64_t now_ns);
/* Withdraws all scripts that have not run. */
void attach_processes_withdraw(struct attach_processes *p);
/* sets the phase to ATTACH_FAILED for each process that has not answered */
void attach_processes_give_up(struct attach_processes *p);
size_t attach_processes_in(const struct attach_processes *p, enum attach_phase phase);
