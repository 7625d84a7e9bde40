/* Finds the processes that `ebb watch` watches: those on the command line, below a launcher, or
 * found by a search. */
#include "cli/watch_targets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/io.h"
#include "base/quantity.h"
#include "base/text.h"
#include "proc/find.h"

enum { CANDIDATES_MAX = 16 };

void watch_notice_add(struct watch_targets *t, const char *sentence)
{
    size_t len = strlen(t->notice);
    snprintf(t->notice + len, sizeof t->notice - len, "%s%s", len ? ". " : "", sentence);
}

static void add_pid(struct watch_targets *t, int32_t pid)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->pids[i] == pid)
            return;
    t->pids[t->count++] = pid;
}

/* Adds a process given with --pid. For a launcher, adds the process that does the work. */
static int take_pid(struct watch_targets *t, const struct proc_root *root, const char *text,
                    struct err *err)
{
    int64_t pid;
    int32_t real = 0;
    char why[256] = "";
    int r = quantity_parse_int("--pid", text, 1, INT32_MAX, &pid, err);
    if (r == 0)
        r = find_real_process(root, (int32_t)pid, &real, why, err);
    if (r < 0)
        return r;
    if (real == getpid()) { /* the only process that the shell PID has started is this ebb */
        real = (int32_t)pid;
        why[0] = '\0';
    }
    if (why[0])
        watch_notice_add(t, why);
    add_pid(t, real);
    return 0;
}

static void list_candidates(const struct find_candidate *c, size_t count)
{
    struct buf out = {0};
    char size[TEXT_SIZE_MAX];
    buf_printf(&out, "ebb: %zu processes look like a training job:\n", count);
    for (size_t i = 0; i < count && i < CANDIDATES_MAX; i++) {
        buf_printf(&out, "%9d  %9s  ", (int)c[i].process.id.pid, text_size(size, c[i].rss_bytes));
        text_command(&out, c[i].process.cmdline, c[i].process.cmdline_len);
        buf_add_byte(&out, '\n');
        buf_printf(&out, "%22s%s\n", "", c[i].reasons);
    }
    buf_printf(&out, "Choose one, for instance: ebb watch --pid %d\n", (int)c[0].process.id.pid);
    (void)io_write_all(STDERR_FILENO, out.data, out.len);
    buf_fini(&out);
}

/* Finds the training job. */
static int take_training(struct watch_targets *t, const struct proc_root *root, struct err *err)
{
    AUTO_FREE struct find_candidate *c = calloc(CANDIDATES_MAX, sizeof *c);
    char sentence[WATCH_NOTICE_MAX];
    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    int count = find_training(root, getpid(), c, CANDIDATES_MAX, err);
    if (count < 0)
        return count;
    if (count == 0)
        return err_set(err, -ENOENT,
                       "no training job found: no process that you may inspect has torch, jax or "
                       "tensorflow mapped, uses a GPU or is a Python with a training script on its "
                       "command line; --pid PID watches any process");
    if (count > 1 && 2 * c[0].score < 3 * c[1].score) {
        list_candidates(c, (size_t)count);
        return 2;
    }
    snprintf(sentence, sizeof sentence, "watching %d (%.*s): %s", (int)c[0].process.id.pid,
             (int)c[0].process.comm_len, c[0].process.comm, c[0].reasons);
    watch_notice_add(t, sentence);
    add_pid(t, c[0].process.id.pid);
    return 0;
}

int watch_targets_choose(const struct watch_choice *choice, const struct proc_root *root,
                         struct watch_targets *ret, struct err *err)
{
    int ways = (choice->pids.count > 0) + choice->find_training + choice->system;
    if (ways != 1)
        return err_set(err, -EINVAL,
                       "%s: --pid PID for a process and its descendants, --find-training to search "
                       "for the job, or --system for all processes",
                       ways ? "several targets given; choose one of three"
                            : "no target given; choose one of three");
    int r = 0;
    for (size_t i = 0; r == 0 && i < choice->pids.count; i++)
        r = take_pid(ret, root, choice->pids.v[i], err);
    return r == 0 && choice->find_training ? take_training(ret, root, err) : r;
}
