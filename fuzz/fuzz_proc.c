/* Fuzzes the parsers of files in /proc and cgroupfs. The first byte selects the file; the rest is
 * its content. A job controls the names, paths and command lines in these files. */
#include <errno.h>

#include "guard/cgroup.h"
#include "proc/command.h"
#include "proc/limit.h"
#include "proc/procfs.h"
#include "proc/role.h"
#include "target.h"

typedef void parse_fn(const char *s, size_t len);

static void must(bool is_true)
{
    if (!is_true)
        abort();
}

static void parse_stat(const char *s, size_t len)
{
    struct proc_stat v;
    if (proc_stat_parse(s, len, &v) == 0)
        must(v.ppid >= 0 && v.comm_len < sizeof v.comm && v.comm[v.comm_len] == '\0');
}

static void parse_statm(const char *s, size_t len)
{
    struct proc_statm v;
    proc_statm_parse(s, len, &v);
}

static void parse_status(const char *s, size_t len)
{
    struct proc_status v;
    if (proc_status_parse(s, len, &v) == 0)
        must(v.has != 0 && v.tgid >= 0);
}

static void parse_meminfo(const char *s, size_t len)
{
    struct proc_meminfo v;
    proc_meminfo_parse(s, len, &v);
}

static void parse_psi(const char *s, size_t len)
{
    struct proc_psi v;
    if (proc_psi_parse(s, len, &v) == 0)
        must(v.some_avg10_permyriad <= 100000 * 100 + 99);
}

static void parse_smaps_rollup(const char *s, size_t len)
{
    uint64_t bytes;
    proc_smaps_rollup_parse(s, len, &bytes);
}

static void parse_maps(const char *s, size_t len)
{
    const char *at = s, *end = s + len;
    struct proc_map map;
    struct role_maps facts = {0};
    while (proc_maps_next(&at, end, &map) == 1) {
        must(map.start <= map.end && map.path >= s && map.path + map.path_len <= end);
        role_maps_add(&facts, &map);
    }
    role_maps_library(&facts);
}

static void parse_children(const char *s, size_t len)
{
    int32_t pids[16];
    size_t n = proc_pids_parse(s, len, pids, 16);
    must(n <= 16);
    for (size_t i = 0; i < n; i++)
        must(pids[i] > 0);
}

static void parse_number(const char *s, size_t len)
{
    bool is_unlimited;
    uint64_t v;
    proc_cgroup_number_parse(s, len, &is_unlimited, &v);
}

static void parse_memory_stat(const char *s, size_t len)
{
    static const enum limit_kind kinds[] = {LIMIT_CGROUP_V1, LIMIT_CGROUP_V2};
    uint64_t v;
    proc_keyed_parse(s, len, "inactive_file", &v);
    for (size_t i = 0; i < 2; i++) {
        struct limit_stats stats;
        limit_stats_parse(limit_files(kinds[i]), s, len, &stats);
        must(stats.known < 1u << LIMIT_STATS);
        limit_reclaimable(&stats);
    }
}

static void parse_cgroup(const char *s, size_t len)
{
    char path[64];
    for (int v2 = 0; v2 < 2; v2++)
        if (proc_cgroup_parse(s, len, v2, path, sizeof path) == 0)
            must(strlen(path) < sizeof path);
}

static void parse_mountinfo(const char *s, size_t len)
{
    char path[64];
    for (int v2 = 0; v2 < 2; v2++)
        if (proc_mount_parse(s, len, v2, path, sizeof path) == 0)
            must(strlen(path) < sizeof path);
}

static void parse_limits(const char *s, size_t len)
{
    bool is_unlimited;
    uint64_t v;
    proc_rlimit_parse(s, len, "Max address space", &is_unlimited, &v);
    proc_rlimit_parse(s, len, "Max data size", &is_unlimited, &v);
}

static void parse_cmdline(const char *s, size_t len)
{
    struct command c;
    command_parse(s, len, &c);
    must(c.what.len + c.rest.len <= len);
    launcher_of(&c);
    role_launcher_name(s, len);
    role_is_python_command(s, len);
}

static void parse_environ(const char *s, size_t len)
{
    size_t n;
    const char *value = proc_environ_find(s, len, "EBB_SOCKET", &n);
    if (value)
        must(value > s && n > 0 && value + n <= s + len && !memchr(value, '\0', n));
}

static void parse_folder_name(const char *s, size_t len)
{
    struct process_id id;
    char *name = fuzz_string((const uint8_t *)s, len);
    guard_cgroup_name_parse(name, &id);
    free(name);
}

static parse_fn *const parsers[] = {
    parse_stat,   parse_statm,        parse_status,      parse_meminfo,
    parse_psi,    parse_smaps_rollup, parse_maps,        parse_children,
    parse_number, parse_memory_stat,  parse_cgroup,      parse_mountinfo,
    parse_limits, parse_cmdline,      parse_folder_name, parse_environ,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0)
        parsers[data[0] % (sizeof parsers / sizeof *parsers)]((const char *)data + 1, size - 1);
    return 0;
}
