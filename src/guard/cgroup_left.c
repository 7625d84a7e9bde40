/* Processes of the job that have left its cgroup: root, and the owner of another group, may move
 * them. */
#include "guard/cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"
#include "proc/limit.h"
#include "proc/read.h"
#include "proc/tree.h"

enum { MEMBERS_TEXT_MAX = 1 << 20 };

static int compare_pids(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* The numbers of cgroup.procs, sorted; RET has room for one in two bytes of TEXT. */
static size_t members_parse(const char *text, int32_t *ret)
{
    size_t n = 0;
    char *end;
    for (const char *p = text; *p != '\0'; p = *end != '\0' ? end + 1 : end) {
        ret[n] = (int32_t)strtol(p, &end, 10);
        n += end > p;
    }
    qsort(ret, n, sizeof *ret, compare_pids);
    return n;
}

/* In a group below it, or ended by now. The folder's name is nobody else's, so that it tells
 * whatever part of the path can be seen here. */
static bool is_below(const struct proc_root *root, const struct guard_cgroup *g, int32_t pid)
{
    char text[4096], path[LIMIT_PATH_MAX];
    struct proc_statm statm;
    const char *folder = strrchr(g->memory_dir, '/');
    ssize_t len = proc_read(root, pid, "cgroup", text, sizeof text);
    if (len < 0 || !folder ||
        proc_cgroup_parse(text, (size_t)len, g->memory_is_v2, path, sizeof path) < 0)
        return true;
    const char *at = strstr(path, folder);
    if (at && (at[strlen(folder)] == '/' || at[strlen(folder)] == '\0'))
        return true;
    return proc_read_statm(root, pid, &statm) < 0 || statm.size_pages == 0;
}

uint64_t guard_cgroup_left(const struct proc_root *root, const struct guard_cgroup *g,
                           struct proc_tree *tree, int32_t *ret_pid)
{
    char path[GUARD_CGROUP_PATH + 32];
    struct buf text = {0};
    uint64_t bytes = 0;
    snprintf(path, sizeof path, "%s/cgroup.procs", g->memory_dir);
    int32_t *members = NULL;
    if (g->memory_dir[0] != '\0' &&
        io_read_all(root->cgroup_fd, path, MEMBERS_TEXT_MAX, &text) == 0)
        members = malloc((text.len / 2 + 1) * sizeof *members);
    size_t n = members != NULL ? members_parse(buf_str(&text), members) : 0;
    for (size_t i = 0; members != NULL && i < proc_tree_count(tree); i++) {
        const struct proc_node *node = proc_tree_at(tree, i);
        const int32_t pid = node->info.id.pid;
        if (bsearch(&pid, members, n, sizeof *members, compare_pids) != NULL ||
            !sample_has(&node->sample, SAMPLE_RSS) || is_below(root, g, pid))
            continue;
        bytes += node->sample.v[SAMPLE_RSS];
        *ret_pid = pid;
    }
    free(members);
    buf_fini(&text);
    return bytes;
}
