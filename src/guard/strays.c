/* Finds and ends the processes of a job that nobody watches any more. */
#include "guard/strays.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "guard/rounds.h"
#include "guard/scan.h"

enum {
    LOOK_MS = 50,          /* between two looks */
    KILL_S = 10,           /* after which a process that does not die is left alone */
    ENVIRON_MAX = 4 << 20, /* of one process */
    SIGN_MAX = 4200,
};

/* ENTRY stands in TEXT as a whole: between two of the bytes BEFORE and of AFTER. */
static bool has_entry(const struct buf *text, const char *entry, char before, const char *after)
{
    const char *at = text->data, *end = text->data + text->len;
    const size_t len = strlen(entry);
    while (at && (at = memmem(at, (size_t)(end - at), entry, len))) {
        bool begins = at == text->data || at[-1] == before;
        if (begins && (at + len == end || memchr(after, at[len], strlen(after) + 1)))
            return true;
        at++;
    }
    return false;
}

static bool file_has_entry(const struct proc_root *root, int32_t pid, const char *file,
                           const char *entry, char before, const char *after)
{
    char path[48];
    struct buf text = {0};
    snprintf(path, sizeof path, "%d/%s", pid, file);
    bool is_there = io_read_all(root->proc_fd, path, ENVIRON_MAX, &text) == 0 && text.len > 0 &&
                    has_entry(&text, entry, before, after);
    buf_fini(&text);
    return is_there;
}

static bool has_sign(const struct proc_root *root, const struct stray_signs *signs, int32_t pid)
{
    char variable[SIGN_MAX];
    int n = snprintf(variable, sizeof variable, "EBB_RUN_DIR=%s", signs->run_dir);
    if (signs->cgroup[0] && file_has_entry(root, pid, "cgroup", signs->cgroup, '/', "\n/"))
        return true;
    return signs->run_dir[0] && n < (int)sizeof variable &&
           file_has_entry(root, pid, "environ", variable, '\0', "");
}

static void mark_strays(const struct proc_root *root, struct scan *s, const void *user)
{
    const struct stray_signs *signs = user;
    const int32_t self = (int32_t)getpid();
    for (size_t i = 0; i < s->count; i++)
        s->v[i].below =
            s->v[i].pid != self && !s->v[i].zombie && has_sign(root, signs, s->v[i].pid);
    scan_mark_below(s, -1);
    for (size_t i = 0; i < s->count; i++)
        s->v[i].below = s->v[i].below && s->v[i].pid != self;
}

int guard_signal_strays(const struct proc_root *root, const struct stray_signs *signs, int signo)
{
    struct scan s = {0};
    int count = 0;
    if (proc_root_is_foreign(root))
        return -EXDEV;
    int r = scan_all(root, &s);
    mark_strays(root, &s, signs);
    for (size_t i = 0; i < s.count; i++)
        if (s.v[i].below && !s.v[i].zombie &&
            scan_signal(root, s.v[i].pid, &s.v[i].start_ticks, 0, signo) == 0)
            count++;
    free(s.v);
    return r < 0 && count == 0 ? r : count;
}

int guard_end_strays(const struct proc_root *root, const struct stray_signs *signs,
                     uint64_t grace_ns)
{
    int ended = guard_signal_strays(root, signs, SIGTERM);
    if (ended <= 0)
        return ended;
    guard_signal_strays(root, signs, SIGCONT); /* a stopped process cannot act on SIGTERM */
    const uint64_t kill_ns = clock_mono_ns() + grace_ns;
    int left = ended;
    while (left > 0 && clock_mono_ns() < kill_ns) {
        poll(NULL, 0, LOOK_MS);
        left = guard_signal_strays(root, signs, 0);
    }
    struct guard_kill k = {0};
    while (left > 0 && clock_mono_ns() < kill_ns + KILL_S * NS_PER_S) {
        left = guard_kill_scan(&k, root, mark_strays, signs);
        poll(NULL, 0, (int)(k.wait_ns / NS_PER_MS));
    }
    guard_kill_fini(&k);
    return ended;
}
