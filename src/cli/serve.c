/* `ebb serve`: options and config file of the job server. */
#include "server/http/serve.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/quantity.h"
#include "cli/client.h"
#include "server/http/log.h"
#include "trace/logs.h"

struct memory {
    bool is_none;
    struct quantity_size size;
};
struct gpus {
    bool is_auto;
    unsigned count;
};

/* The server's settings, and the options from which some of them are computed. */
struct options {
    struct serve_options serve;
    const char *config, *state_dir, *log_format, *log_level, *executor, *runs_dir;
    struct option_texts hosts, sbatch;
    struct memory memory;
    struct gpus gpus;
    int64_t slots, viewers, connections;
    bool check;
};

static int parse_memory(const char *what, const char *text, void *at, struct err *err)
{
    struct memory m = {.is_none = strcmp(text, "none") == 0};
    int r = m.is_none ? 0 : quantity_parse_size(what, text, &m.size, err);
    if (r == 0)
        *(struct memory *)at = m;
    return r;
}

static int parse_gpus(const char *what, const char *text, void *at, struct err *err)
{
    int64_t n = 0;
    bool is_auto = strcmp(text, "auto") == 0;
    if (!is_auto && quantity_parse_int(what, text, 0, 64, &n, NULL) < 0)
        return err_set(err, -EINVAL, "%s: \"%.100s\" is neither auto nor a number from 0 to 64",
                       what, text);
    *(struct gpus *)at = (struct gpus){.is_auto = is_auto, .count = (unsigned)n};
    return 0;
}

/* Parses one part of --keep: an age, a number of jobs or a size. */
static int parse_keep_part(const char *what, const char *text, struct jobs_keep *keep,
                           struct err *err)
{
    static const uint64_t most_ns = UINT64_C(36500) * 86400 * NS_PER_S;
    struct quantity_size size;
    int64_t n;
    if (strspn(text, "0123456789") == strlen(text) && *text) {
        int r = quantity_parse_int(what, text, 1, 1000000000, &n, err);
        keep->count = r == 0 ? (unsigned)n : keep->count;
        return r;
    }
    if (quantity_parse_duration(what, text, 1, most_ns, &keep->age_ns, NULL) == 0)
        return 0;
    if (quantity_parse_size(what, text, &size, NULL) == 0 && !size.is_percent) {
        keep->bytes = size.bytes;
        return 0;
    }
    return err_set(err, -EINVAL,
                   "%s: invalid value \"%.100s\"; expected an age (30d), a number of jobs (200), a "
                   "size (50G), several of these separated by commas, or the word all",
                   what, text);
}

static int parse_keep(const char *what, const char *text, void *at, struct err *err)
{
    struct jobs_keep keep = {0};
    char part[32];
    int r = 0;
    for (const char *p = text; r == 0 && strcmp(text, "all") != 0 && *p;) {
        size_t len = strcspn(p, ",");
        snprintf(part, sizeof part, "%.*s", (int)(len < 31 ? len : 31), p);
        r = parse_keep_part(what, part, &keep, err);
        p += len + (p[len] == ',');
    }
    if (r == 0)
        *(struct jobs_keep *)at = keep;
    return r;
}

#define AT(member) offsetof(struct options, member)
static const struct option_desc serve_table[] = {
    OPTION_ROW('l', "listen", TEXT, "ADDR:PORT", AT(serve.listen), .fallback = "127.0.0.1:7433",
               .help = "address for HTTP; port 0 chooses a free one; none: only the unix socket"),
    OPTION_ROW(0, "socket", PATH, "PATH", AT(serve.socket),
               .help = "unix socket for the server's own user (default: sock in the state "
                       "folder)"),
    OPTION_ROW('s', "state-dir", PATH, "DIR", AT(state_dir),
               .help = "folder of the database, the tokens and the runs (default: "
                       "$EBB_STATE_DIR, $XDG_STATE_HOME/ebb or ~/.local/state/ebb)"),
    OPTION_ROW(0, "allow-host", TEXTS, "NAME", AT(hosts),
               .help = "host name that browsers may use for this server, in addition to localhost "
                       "and IP addresses; separate several with commas"),
    OPTION_ROW(0, "no-auth", FLAG, NULL, AT(serve.no_auth),
               .help = "require no token: every user of this machine may run commands as the "
                       "server's user; only with a loopback address"),
    OPTION_ROW(0, "executor", CHOICE, "local|slurm", AT(executor), .heading = "Where jobs run",
               .fallback = "local",
               .help = "run jobs on this machine, or submit them to Slurm, which then manages "
                       "memory and GPUs"),
    OPTION_ROW(0, "runs-dir", PATH, "DIR", AT(runs_dir),
               .help =
                   "folder of the runs (default: runs in the state folder); for Slurm, a folder "
                   "that all nodes share"),
    OPTION_ROW(0, "sbatch-allow", TEXTS, "NAME", AT(sbatch),
               .help =
                   "comma-separated list of sbatch options, such as qos, that requests may set in "
                   "addition to partition and time"),
    OPTION_ROW(0, "slots", INT, "N", AT(slots), .heading = "Job resources", .min = 1, .max = 1024,
               .help = "maximum number of concurrent jobs (default: 1; with Slurm, 1024, including "
                       "those in its queue)"),
    OPTION_ROW(0, "memory", PARSED, "SIZE", AT(memory), .fallback = "90%", .parse = parse_memory,
               .help = "memory for all jobs together; a percentage refers to the server's "
                       "effective limit; none: no limit"),
    OPTION_ROW(0, "gpus", PARSED, "N", AT(gpus), .fallback = "auto", .parse = parse_gpus,
               .help = "number of GPUs for jobs, from GPU 0 on; auto: all that the driver "
                       "reports"),
    OPTION_ROW(0, "interval", DURATION, "TIME", AT(serve.jobs.interval_ns), .fallback = "1s",
               .min = 50, .max = 3600000,
               .help = "sampling interval of jobs; a request can override it"),
    OPTION_ROW(
        0, "grace", DURATION, "TIME", AT(serve.jobs.grace_ns), .fallback = "30s", .max = 86400000,
        .help = "time between cancelling and killing a job; a request can override this time"),
    OPTION_ROW(0, "keep", PARSED, "AGE,N,SIZE", AT(serve.jobs.keep), .heading = "Retention",
               .fallback = "30d,50G", .parse = parse_keep,
               .help =
                   "ended jobs to keep, by age (30d), number (200), size of their folders (50G) "
                   "or several of these; all: keep all"),
    OPTION_ROW(0, "log-max", BYTES, "SIZE", AT(serve.jobs.log_bytes), .min = LOGS_CAP_MIN,
               .fallback = "64M",
               .help = "maximum size of a job's output; its beginning and "
                       "its newest part are kept"),
    OPTION_ROW(0, "import", PATH, "FILE", AT(serve.import),
               .heading = "Other servers and front ends",
               .help = "at the start, import jobs from the job file (JSON) of another server"),
    OPTION_ROW(0, "job-file", PATH, "PATH", AT(serve.jobs.job_file),
               .help = "write the list of jobs to this JSON file whenever it changes, for front "
                       "ends that do not use the API"),
    OPTION_ROW(0, "max-viewers", INT, "N", AT(viewers), .heading = "The server", .fallback = "600",
               .min = 1, .max = 100000, .help = "maximum number of clients of the live stream"),
    OPTION_ROW(0, "max-connections", INT, "N", AT(connections), .fallback = "256",
               /* Clients without a token may use a quarter of the connections: at least eight,
                * because a browser opens six. */
               .min = 32, .max = 100000,
               .help = "maximum number of connections other than live streams"),
    OPTION_ROW(0, "ready-file", PATH, "FILE", AT(serve.ready_file),
               .help = "write the address into this file once the server listens"),
    OPTION_ROW(0, "log-format", CHOICE, "auto|json|text", AT(log_format), .fallback = "auto",
               .help = "format of the log on standard error; auto: text on a terminal, else JSON"),
    OPTION_ROW(0, "log-level", CHOICE, "debug|info|warn|error", AT(log_level), .fallback = "info",
               .help = "minimum severity of messages that are logged"),
    OPTION_ROW('c', "config", PATH, "FILE", AT(config), .scope = OPTION_COMMAND_LINE,
               .help = "read options from this file, one name = value per line; the command line "
                       "takes precedence"),
    OPTION_ROW(0, "check", FLAG, NULL, AT(check), .help = "check the configuration and exit"),
    {0},
};

/* Storage for the texts to which the server's settings point. */
struct serve_setup {
    struct buf hosts, sbatch;
    const char *host_list[OPTION_TEXTS_MAX + 1];
    char state_dir[PATH_MAX], program[PATH_MAX], runs_dir[PATH_MAX];
};

static bool is_host_name(const char *s)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    return *s && strspn(s, letters) == strlen(s) && strlen(s) < 254;
}

/* How to check the names in the value of an option such as --allow-host. */
struct name_rule {
    const char *option, *what;
    bool (*is_valid)(const char *name);
};

/* Splits the values of an option into one list of names, which ends with NULL. The option can be
 * given several times, and each value may contain several names ("a,b"). The names are stored in
 * SPACE. */
static int split_names(const struct name_rule *rule, const struct option_texts *texts,
                       struct buf *space, const char *ret[OPTION_TEXTS_MAX + 1], struct err *err)
{
    size_t count = 0;
    for (size_t i = 0; i < texts->count; i++) {
        buf_add_str(space, texts->v[i]);
        buf_add_byte(space, ',');
    }
    buf_add_byte(space, '\0');
    if (space->failed)
        return err_set(err, -ENOMEM, "out of memory");
    for (char *rest = space->data, *name; (name = strsep(&rest, ", ")) != NULL;) {
        if (!*name)
            continue;
        if (!rule->is_valid(name))
            return err_set(err, -EINVAL, "%s: \"%.100s\" is not %s", rule->option, name,
                           rule->what);
        if (count == OPTION_TEXTS_MAX)
            return err_set(err, -EINVAL, "%s: too many names: \"%.100s\"", rule->option, name);
        ret[count++] = name;
    }
    ret[count] = NULL;
    return 0;
}

static int split_lists(struct serve_setup *w, struct options *o, struct err *err)
{
    static const struct name_rule host = {"--allow-host", "a host name", is_host_name};
    static const struct name_rule sbatch = {
        "--sbatch-allow", "an sbatch option that requests may set", slurm_is_option};
    _Static_assert((int)SLURM_ALLOWED_MAX == (int)OPTION_TEXTS_MAX,
                   "the list has room for all names");
    int r = split_names(&host, &o->hosts, &w->hosts, w->host_list, err);
    if (r == 0)
        r = split_names(&sbatch, &o->sbatch, &w->sbatch, o->serve.jobs.slurm.allowed, err);
    o->serve.hosts = w->host_list;
    return r;
}

/* Makes --runs-dir absolute. The folder may not exist yet. */
static int find_runs_dir(struct serve_setup *w, const char *path, struct err *err)
{
    char cwd[PATH_MAX] = "";
    if (!path)
        return 0;
    if (path[0] != '/' && !getcwd(cwd, sizeof cwd))
        return err_set(err, -errno, "--runs-dir: %.200s: %s", path, strerror(errno));
    int n = snprintf(w->runs_dir, sizeof w->runs_dir, "%s%s%s", cwd, cwd[0] ? "/" : "", path);
    return n < 0 || n >= PATH_MAX
               ? err_set(err, -ENAMETOOLONG, "--runs-dir: \"%.100s\" is too long", path)
               : 0;
}

static int find_program(char ret[PATH_MAX], struct err *err)
{
    ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 1);
    if (n < 0)
        return err_set(err, -errno, "cannot find the executable file of ebb: %s", strerror(errno));
    ret[n] = '\0';
    return 0;
}

static void fill_jobs(const struct serve_setup *w, struct options *o)
{
    enum { SLOTS = 1, SLOTS_SLURM = 1024 };
    struct jobs_options *jobs = &o->serve.jobs;
    jobs->is_slurm = strcmp(o->executor, "slurm") == 0;
    jobs->slots = o->slots ? (unsigned)o->slots : jobs->is_slurm ? SLOTS_SLURM : SLOTS;
    jobs->state_dir = w->state_dir;
    jobs->runs_dir = w->runs_dir[0] ? w->runs_dir : NULL;
    jobs->program = w->program;
    if (jobs->is_slurm) /* the scheduler limits GPUs and memory */
        return;
    jobs->memory_bytes = o->memory.size.bytes;
    jobs->gpus = o->gpus.count;
    o->serve.gpus_auto = o->gpus.is_auto;
    o->serve.memory_auto = !o->memory.is_none && o->memory.size.is_percent;
    o->serve.memory_permyriad = o->memory.size.permyriad;
}

static int serve_set_up(struct serve_setup *w, const struct cli_call *call, struct err *err)
{
    struct options *o = call->options;
    const struct options_config c = {.file = o->config,
                                     .command = "serve",
                                     .table = serve_table,
                                     .given = call->given,
                                     .values = o,
                                     .values_size = sizeof *o};
    int r = o->config ? options_config_read(&c, err) : 0;
    if (r == 0)
        r = client_state_dir(o->state_dir, w->state_dir, err);
    if (r == 0)
        r = find_program(w->program, err);
    if (r == 0)
        r = split_lists(w, o, err);
    if (r == 0)
        r = find_runs_dir(w, o->runs_dir, err);
    if (r < 0)
        return r;
    fill_jobs(w, o);
    o->serve.viewers_max = (unsigned)o->viewers;
    o->serve.connections_max = (unsigned)o->connections;
    return 0;
}

static void start_log(const struct options *o)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    int level = LOG_INFO;
    for (int i = LOG_DEBUG; i <= LOG_ERROR; i++)
        level = strcmp(o->log_level, levels[i]) == 0 ? i : level;
    bool is_text = strcmp(o->log_format, "auto") == 0 ? isatty(STDERR_FILENO)
                                                      : strcmp(o->log_format, "text") == 0;
    log_start(STDERR_FILENO, (enum log_level)level, !is_text);
}

static int serve_exec(const struct cli_call *call, struct err *err)
{
    const struct options *o = call->options;
    struct serve_setup *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(err, -ENOMEM, "out of memory");
    int r = serve_set_up(w, call, err);
    if (r == 0 && o->check) {
        r = serve_check(&o->serve, err);
        if (r == 0 && puts("the configuration is valid") < 0)
            r = 2;
    } else if (r == 0) {
        start_log(o);
        r = serve_run(&o->serve, err);
    }
    buf_fini(&w->hosts);
    buf_fini(&w->sbatch);
    free(w);
    return r;
}

const struct cli_command cmd_serve = {
    .name = "serve",
    .operands = "",
    .summary = "run the job server: a queue, live progress, a web page, metrics",
    .description =
        "Accepts jobs over HTTP and runs each of them with `ebb run`: with a guard, a recording "
        "and its own processes, so that all of a job's memory is released when it ends, and a "
        "crash does not affect other jobs. Accepted jobs are stored on disk. Jobs continue when "
        "the server exits or is killed, and the next server finds them.\n"
        "\n"
        "`ebb submit`, `ebb jobs`, `ebb show`, `ebb logs`, `ebb wait`, `ebb cancel`, `ebb "
        "checkpoint` and `ebb rerun` reach it over the unix socket in the state folder. The "
        "page is at the address of --listen; it asks for the token, which is in the file token "
        "of the state folder (the token in token.read-only allows only reading).\n"
        "\n"
        "A --config FILE contains these options by their long names, one per line; # begins a "
        "comment:\n"
        "\n"
        "  listen = 127.0.0.1:7433\n"
        "  slots = 2\n"
        "  memory = 80%\n"
        "  keep = 30d,50G\n"
        "\n"
        "SIGTERM and Ctrl-C stop the server; jobs continue.",
    .examples = "ebb serve\n"
                "ebb serve --slots 4 --memory 80% --keep 30d,200\n"
                "ebb serve --config /etc/ebb/serve.conf --check\n",
    .options = serve_table,
    .options_size = sizeof(struct options),
    .exec = serve_exec,
};
