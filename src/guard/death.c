/* Determines why a job ended, from all evidence, and describes the cause in one line. */
#include "guard/death.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/number.h"
#include "base/text.h"
#include "base/words.h"
#include "proc/read.h"

/* --- the kernel's counters --- */

void death_ooms_read(const struct proc_root *root, const struct guard_cgroup *g,
                     const char *above_dir, bool above_is_v2, struct death_ooms *ret)
{
    char text[32 << 10]; /* /proc/vmstat gets longer with every kernel version */
    *ret = (struct death_ooms){0};
    ssize_t len = io_read_small(root->proc_fd, "vmstat", text, sizeof text);
    ret->host_known = len > 0 && proc_keyed_parse(text, (size_t)len, "oom_kill", &ret->host) == 0;
    ret->group_known = g && guard_cgroup_oom_kills(g, &ret->group) == 0;
    if (root->cgroup_fd < 0 || !above_dir[0])
        return;
    len = cgroup_read(root, above_dir, above_is_v2 ? "memory.events" : "memory.oom_control", text,
                      sizeof text);
    ret->above_known = len > 0 && proc_keyed_parse(text, (size_t)len, "oom_kill", &ret->above) == 0;
}

struct kills {
    uint64_t group, above, host;
};

/* The counter of the job's own cgroup includes every OOM kill of the job's processes, whichever
 * limit caused the kill. If this counter is known and unchanged, the OOM kills in the other
 * counters were not in this job. */
static struct kills kills_of(const struct death_facts *f)
{
    struct kills k = {0};
    const struct death_ooms *a = f->before, *b = f->after;
    if (!a || !b)
        return k;
    bool is_group_known = a->group_known && b->group_known;
    if (is_group_known)
        k.group = u64_minus(b->group, a->group);
    if (is_group_known && !k.group)
        return k;
    if (a->above_known && b->above_known)
        k.above = u64_minus(b->above, a->above);
    if (a->host_known && b->host_known)
        k.host = u64_minus(b->host, a->host);
    return k;
}

/* --- the end of a job according to its exit status --- */

/* Returns the signal that ended the process. For exit status 128 + N, returns signal N, because a
 * shell reports a signal this way. Returns 0 if no signal ended the process. */
static int signal_of(int status)
{
    if (WIFSIGNALED(status))
        return WTERMSIG(status);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    return code > 128 && sigabbrev_np(code - 128) ? code - 128 : 0;
}

static bool is_crash_signal(int signo)
{
    return signo == SIGSEGV || signo == SIGABRT || signo == SIGBUS || signo == SIGFPE ||
           signo == SIGILL;
}

static enum cause cause_by_status(int status, char text[DEATH_TEXT])
{
    char name[WORDS_SIGNAL_MAX];
    if (WIFSIGNALED(status)) {
        int signo = WTERMSIG(status);
        words_signal_name(name, signo);
        if (is_crash_signal(signo))
            snprintf(text, DEATH_TEXT, "crashed: %s", name);
        else
            snprintf(text, DEATH_TEXT, "killed by %s (sender unknown)", name);
        return CAUSE_SIGNAL;
    }
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : status;
    if (signal_of(status))
        snprintf(text, DEATH_TEXT, "exit status %d (the status that shells report for %s)", code,
                 words_signal_name(name, signal_of(status)));
    else
        snprintf(text, DEATH_TEXT, "exit status %d", code);
    return CAUSE_STATUS;
}

/* --- choosing between causes --- */

static bool is_operators(const struct death_facts *f, const struct death_reading *r)
{
    return f->sent_signal &&
           (signal_of(f->status) == f->sent_signal || r->signalled == f->sent_signal ||
            (f->sent_signal == SIGINT && r->interrupted));
}

/* Returns the cause found in the output or, if there is none, the cause according to the exit
 * status. */
static enum cause cause_by_output(const struct death_facts *f, const struct death_reading *r,
                                  char text[DEATH_TEXT])
{
    char name[WORDS_SIGNAL_MAX];
    bool is_bus_error = signal_of(f->status) == SIGBUS;
    if (r->sign != DEATH_SHM && is_bus_error && f->shm_full) {
        snprintf(text, DEATH_TEXT, "/dev/shm was full: crashed with SIGBUS");
        return CAUSE_SHM_FULL;
    }
    if (r->sign == DEATH_NO_SIGN)
        return cause_by_status(f->status, text);
    const char *before = r->sign == DEATH_SHM      ? "/dev/shm was full: "
                         : r->sign == DEATH_MEMORY ? "an allocation failed: "
                                                   : "";
    int n = snprintf(text, DEATH_TEXT, "%s%s", before, r->line);
    if (WIFSIGNALED(f->status) && n > 0 && n < DEATH_TEXT) {
        int signo = WTERMSIG(f->status);
        snprintf(text + n, DEATH_TEXT - (size_t)n, "; %s %s",
                 is_crash_signal(signo) ? "then crashed:" : "killed by",
                 words_signal_name(name, signo));
    }
    return r->sign == DEATH_CUDA_OOM ? CAUSE_GPU_MEMORY
           : r->sign == DEATH_MEMORY ? CAUSE_NO_MEMORY
           : r->sign == DEATH_SHM    ? CAUSE_SHM_FULL
                                     : CAUSE_EXCEPTION;
}

/* Returns true if a cgroup ran out of memory; false if the host did. */
static bool is_cgroup_oom(const struct death_facts *f, const struct kills *k)
{
    return k->above || (k->group && (f->limit_is_own || f->limit_where));
}

/* Maximum length of a reason such as "the job's cgroup ran out of memory (limit 2.00 GiB)". */
enum { REASON = 160 };
static void oom_reason(const struct death_facts *f, const struct kills *k, char out[REASON])
{
    char size[TEXT_SIZE_MAX], limit[48] = "", where[80] = "above the job's own";
    if (!is_cgroup_oom(f, k)) {
        snprintf(out, REASON, "the host ran out of memory");
        return;
    }
    if (f->limit_bytes)
        snprintf(limit, sizeof limit, " (limit %s)", text_size(size, f->limit_bytes));
    if (k->group && f->limit_is_own) {
        snprintf(out, REASON, "the job's cgroup ran out of memory%s", limit);
        return;
    }
    if (f->limit_where)
        text_fit(where, sizeof where, 40, f->limit_where, strlen(f->limit_where));
    snprintf(out, REASON, "cgroup %s ran out of memory%s", where, limit);
}

/* Appends to TEXT that the kernel killed a process of the job, but not the first process. */
static void add_other_kill(const struct kills *k, const char *reason, char text[DEATH_TEXT])
{
    size_t n = strlen(text);
    uint64_t count = k->group ? k->group : k->above;
    const char *plural = count == 1 ? "" : "es";
    if (k->group)
        snprintf(text + n, DEATH_TEXT - n, "; the kernel killed %llu process%s of the job: %s",
                 (unsigned long long)count, plural, reason);
    else if (k->above) /* the counter of an ancestor cgroup may include processes of other jobs */
        snprintf(text + n, DEATH_TEXT - n, "; the kernel killed %llu process%s: %s",
                 (unsigned long long)count, plural, reason);
    else
        snprintf(text + n, DEATH_TEXT - n, "; probably killed by the kernel: %s", reason);
}

static enum cause cause_by_kernel(const struct death_facts *f, const struct death_reading *r,
                                  const struct kills *k, char text[DEATH_TEXT])
{
    char reason[REASON];
    /* false if only the host's counter has changed */
    bool is_counted = k->group || k->above;
    enum cause oom = is_cgroup_oom(f, k) ? CAUSE_OOM_GROUP : CAUSE_OOM_HOST;
    oom_reason(f, k, reason);
    if (signal_of(f->status) == SIGKILL) {
        snprintf(text, DEATH_TEXT, "%skilled by the kernel: %s", is_counted ? "" : "probably ",
                 reason);
        return oom;
    }
    enum cause kind = cause_by_output(f, r, text);
    if (!is_counted && !r->child_killed)
        return kind;
    add_other_kill(k, reason, text);
    if (r->child_killed)
        return oom;
    /* A cause found in the output takes precedence over an OOM kill. An OOM kill that only the
     * ancestor's counter shows is not used as the cause, because it may have been in another
     * job. */
    bool has_own = kind != CAUSE_STATUS && kind != CAUSE_SIGNAL;
    return has_own || !k->group ? kind : oom;
}

enum cause death_cause(const struct death_facts *f, char text[DEATH_TEXT])
{
    struct death_reading r = {0};
    char name[WORDS_SIGNAL_MAX];
    if (f->cause == CAUSE_GUARD || f->cause == CAUSE_PLAN)
        snprintf(text, DEATH_TEXT, "stopped by the guard%s%s", f->why ? ": " : "",
                 f->why ? f->why : "");
    else if (f->cause == CAUSE_REQUEUED)
        snprintf(text, DEATH_TEXT, "returned to Slurm's queue%s%s", f->why ? ": " : "",
                 f->why ? f->why : "");
    else if (f->cause == CAUSE_CANCELLED)
        snprintf(text, DEATH_TEXT, "%s", f->why ? f->why : "cancelled");
    else if (f->cause == CAUSE_CLIENT)
        snprintf(text, DEATH_TEXT, "stopped because ebb run was killed");
    if (f->cause)
        return f->cause;
    if (WIFEXITED(f->status) && WEXITSTATUS(f->status) == 0) {
        snprintf(text, DEATH_TEXT, "finished");
        return CAUSE_DONE;
    }
    if (f->tail)
        death_reading_take(f->tail, &r);
    if (is_operators(f, &r)) {
        snprintf(text, DEATH_TEXT, "stopped by the operator: %s",
                 words_signal_name(name, f->sent_signal));
        return CAUSE_OPERATOR;
    }
    struct kills k = kills_of(f);
    if (k.group || k.above || k.host)
        return cause_by_kernel(f, &r, &k, text);
    return cause_by_output(f, &r, text);
}

static const struct {
    const char *kind, *by;
} causes[CAUSES] = {
    [CAUSE_CLIENT] = {"client killed", "the death of ebb run"},
    [CAUSE_PLAN] = {"guard", "a planned restart"},
    [CAUSE_REQUEUED] = {"requeued", "the guard"},
    [CAUSE_GUARD] = {"guard", "the guard"},
    [CAUSE_CANCELLED] = {"cancelled", NULL},
    [CAUSE_DONE] = {"finished", NULL},
    [CAUSE_STATUS] = {"exit status", NULL},
    [CAUSE_EXCEPTION] = {"exception", NULL},
    [CAUSE_GPU_MEMORY] = {"GPU memory", NULL},
    [CAUSE_NO_MEMORY] = {"allocation failed", NULL},
    [CAUSE_SHM_FULL] = {"shared memory full", NULL},
    [CAUSE_SIGNAL] = {"signal", NULL},
    [CAUSE_OPERATOR] = {"operator", NULL},
    [CAUSE_OOM_GROUP] = {"cgroup out of memory", NULL},
    [CAUSE_OOM_HOST] = {"host out of memory", NULL},
    [CAUSE_SUPERVISOR] = {"lost", "the death of the job's supervisor"},
    [CAUSE_SENTINEL] = {"lost", "the death of the job's supervisor and sentinel"},
};

const char *cause_kind_name(enum cause cause)
{
    return cause < CAUSES && causes[cause].kind ? causes[cause].kind : "unknown";
}

const char *cause_by_text(enum cause cause)
{
    return cause < CAUSES ? causes[cause].by : NULL;
}
