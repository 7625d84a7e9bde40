/* `ebb watch`: samples running processes, and shows them on a terminal, as lines, or as JSON. */
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/watch_attach.h"
#include "cli/watch_cluster.h"
#include "engine/engine.h"
#include "engine/memory.h"
#include "judge/cluster.h"
#include "judge/judge.h"
#include "judge/verdicts.h"
#include "present/document.h"
#include "present/lines.h"
#include "present/screen.h"
#include "present/summary.h"
#include "proc/find.h"
#include "run/outcome.h"
#include "trace/rundir.h"

enum { NOTICE_MAX = 512, CANDIDATES_MAX = 16 };

/* The three ways to choose the processes to watch. The user must give exactly one. */
struct watch_choice {
    struct option_texts pids;
    bool find_training, system;
};

/* The processes to watch. A zeroed struct is valid and empty. */
struct watch_targets {
    int32_t pids[OPTION_TEXTS_MAX]; /* empty with --system */
    size_t count;
    char notice[NOTICE_MAX]; /* the reason why these processes were chosen, or "" */
};

struct watch_options {
    struct watch_choice choice;
    bool record, json, no_unique, pss;
    uint64_t interval_ns, for_ns;
    const char *run_dir;
};

#define AT(member) offsetof(struct watch_options, member)
static const struct option_desc watch_table[] = {
    OPTION_ROW('p', "pid", TEXTS, "PID", AT(choice.pids),
               .help = "watch this process and its descendants; can be repeated"),
    OPTION_ROW('f', "find-training", FLAG, NULL, AT(choice.find_training),
               .help = "find the training job and watch it; if there are several, list them and "
                       "exit"),
    OPTION_ROW('s', "system", FLAG, NULL, AT(choice.system),
               .help = "watch every process on the machine"),
    OPTION_ROW('i', "interval", DURATION, "TIME", AT(interval_ns), .fallback = "1s", .min = 50,
               .max = 3600000, .help = "sampling interval"),
    OPTION_ROW(0, "for", DURATION, "TIME", AT(for_ns), .min = 1,
               .help = "stop after this time (default: when the job ends, or at Ctrl-C)"),
    OPTION_ROW('r', "record", FLAG, NULL, AT(record),
               .help = "record into a run folder, as ebb run does"),
    OPTION_ROW(
        'd', "run-dir", PATH, "DIR", AT(run_dir),
        .help = "record into this folder, which must not exist yet (default: ebb-runs/NAME-DATE)"),
    OPTION_ROW(0, "json", FLAG, NULL, AT(json),
               .help = "print one JSON object per line for each sample, and one for the summary"),
    OPTION_ROW(0, "no-unique", FLAG, NULL, AT(no_unique), .help = "do not measure unique memory"),
    OPTION_ROW(0, "pss", FLAG, NULL, AT(pss),
               .help = "also read PSS once a minute; this stalls the job by about 9 ms/GiB"),
    {0},
};

/* ---- choosing processes ---- */

static void watch_notice_add(struct watch_targets *t, const char *sentence)
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

static int take_training(struct watch_targets *t, const struct proc_root *root, struct err *err)
{
    AUTO_FREE struct find_candidate *c = calloc(CANDIDATES_MAX, sizeof *c);
    char sentence[NOTICE_MAX];
    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    int count = find_training(root, getpid(), c, CANDIDATES_MAX, err);
    if (count < 0)
        return count;
    if (count == 0)
        return err_set(
            err, -ENOENT,
            "no training job found: of the processes that you may inspect, none has loaded "
            "torch, jax or tensorflow, uses a GPU, or runs Python with a training script; "
            "--pid PID watches any process");
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

/* Chooses the processes to watch. Returns 0, -errno and an error, or the exit status after printing
 * the candidates to choose from. */
static int watch_targets_choose(const struct watch_choice *choice, const struct proc_root *root,
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

/* The frame that the views show. A zeroed struct is valid and empty. Its memory is reused at each
 * tick. */
struct watch_frame {
    struct frame frame;
    size_t rows_cap;
    uint64_t judged; /* number of verdict updates up to this frame */
    struct verdicts verdicts;
};

struct watch {
    const struct watch_options *options;
    struct proc_root root;
    struct loop *loop;
    struct engine *engine;
    struct screen *screen; /* the live view, or NULL if lines are printed */
    struct loop_source *keys;
    struct watch_frame frame;
    struct watch_attach attach;
    struct rundir dir;
    struct watch_targets targets;
    char title[128];
    char name[PROCESS_COMM_MAX + 1]; /* name of the watched program, for the run folder */
    struct outcome outcome;
    uint64_t started_wall_ns;
    struct buf line;
    bool is_empty; /* true once all watched processes have exited */
    /* For the summary: the reason why ebb stopped watching although processes still run. */
    const char *ended_by;
    int write_error; /* errno of a failed write to standard output */
};

/* ---- the frame ---- */

_Static_assert(sizeof((struct frame *)0)->limit_where == sizeof((struct machine_limit *)0)->where,
               "frame.limit_where is as large as machine_limit.where");

static void watch_frame_fini(struct watch_frame *f)
{
    free(f->frame.rows);
    verdicts_fini(&f->verdicts);
    *f = (struct watch_frame){0};
}

static void fill_row(struct frame_row *row, const struct proc_node *node)
{
    const struct run_entity *entity = engine_entity(node);
    *row = (struct frame_row){.slot = node->slot, .info = node->info, .sample = node->sample};
    if (!entity)
        return;
    const struct verdict_result *r = judge_result(entity);
    row->spark_count = series_newest(entity->signal[SAMPLE_RSS], FRAME_SPARK, row->spark);
    if (entity->peak_bytes > row->sample.v[SAMPLE_PEAK])
        sample_put(&row->sample, SAMPLE_PEAK, entity->peak_bytes);
    row->rate_known = r && r->rate_bytes_per_min.known;
    row->rate_bytes_per_min = row->rate_known ? r->rate_bytes_per_min.value : 0;
}

static int fill_rows(struct watch_frame *f, struct engine *e)
{
    struct proc_tree *tree = engine_tree(e);
    size_t count = proc_tree_count(tree);
    if (count > f->rows_cap) {
        size_t cap = count + count / 2;
        struct frame_row *rows = reallocarray(f->frame.rows, cap, sizeof *rows);
        if (!rows)
            return -ENOMEM;
        f->frame.rows = rows;
        f->rows_cap = cap;
    }
    for (size_t i = 0; i < count; i++)
        fill_row(&f->frame.rows[i], proc_tree_at(tree, i));
    f->frame.count = count;
    return 0;
}

static void fill_machine(struct frame *o, struct engine *e)
{
    struct machine_limit limit;
    o->machine = engine_run(e)->machine.last;
    const struct frame_bytes most = frame_figure(&o->machine, MACHINE_LIMIT);
    const struct frame_bytes used = frame_figure(&o->machine, MACHINE_LIMIT_USED);
    o->headroom = (struct frame_bytes){.known = most.known && used.known};
    if (o->headroom.known && most.bytes > used.bytes)
        o->headroom.bytes = most.bytes - used.bytes;
    o->limit_where[0] = '\0';
    if (engine_limit(e, &limit) == 0)
        memcpy(o->limit_where, limit.where, sizeof limit.where);
}

static void fill_verdict(struct watch_frame *f, struct engine *e)
{
    if (engine_verdict_count(e) == f->judged)
        return;
    f->judged = engine_verdict_count(e);
    verdicts_fini(&f->verdicts);
    bool is_made = judge_verdicts(engine_verdict(e), &f->verdicts) == 0;
    f->frame.verdicts = is_made && judge_has_verdict(engine_verdict(e)) && f->verdicts.has_job
                            ? &f->verdicts
                            : NULL;
    const struct judge_tree *tree = judge_tree(engine_verdict(e));
    f->frame.tree_rate_known = tree && tree->result.rate_bytes_per_min.known;
    f->frame.tree_rate_bytes_per_min =
        f->frame.tree_rate_known ? tree->result.rate_bytes_per_min.value : 0;
}

/* Fills in everything except title and notice. Returns 0 or -ENOMEM. */
static int watch_frame_fill(struct watch_frame *f, struct engine *e, uint64_t now_ns)
{
    const struct run *run = engine_run(e);
    struct run_entity *const *gpus;
    struct frame *o = &f->frame;
    o->t_ns = now_ns > run->start_mono_ns ? now_ns - run->start_mono_ns : 0;
    o->wall_ns = clock_wall_ns();
    o->interval_ns = engine_interval_ns(e);
    fill_machine(o, e);
    fill_verdict(f, e);
    o->step_known = run->has_step;
    o->step = run->step;
    size_t n = run_living(run, RUN_GPU, &gpus);
    o->gpus = n < FRAME_GPUS ? n : FRAME_GPUS;
    for (size_t i = 0; i < o->gpus; i++) {
        snprintf(o->gpu[i].name, sizeof o->gpu[i].name, "%s", gpus[i]->name);
        o->gpu[i].sample = gpus[i]->last;
    }
    return fill_rows(f, e);
}

/* ---- targets ---- */

static int add_targets(struct watch *w, struct err *err)
{
    int r = 0;
    if (w->options->choice.system)
        return engine_watch_all(w->engine, err);
    for (size_t i = 0; i < w->targets.count && r == 0; i++)
        r = engine_watch_pid(w->engine, w->targets.pids[i], err);
    return r;
}

static void name_it(struct watch *w)
{
    const struct proc_node *node = w->options->choice.system
                                       ? NULL
                                       : proc_tree_find(engine_tree(w->engine), w->targets.pids[0]);
    int len = node ? (int)node->info.comm_len : 0;
    snprintf(w->name, sizeof w->name, "%.*s", len, node ? node->info.comm : "");
    if (w->options->choice.system)
        snprintf(w->title, sizeof w->title, "every process on this machine");
    else if (w->targets.count > 1)
        snprintf(w->title, sizeof w->title, "%zu jobs, from %d (%s)", w->targets.count,
                 (int)w->targets.pids[0], w->name);
    else
        snprintf(w->title, sizeof w->title, "%s%d (%s)",
                 w->options->choice.find_training ? "training job " : "pid ",
                 (int)w->targets.pids[0], w->name);
    if (!w->name[0])
        snprintf(w->name, sizeof w->name, "%s", w->options->choice.system ? "system" : "watch");
}

/* ---- the document ---- */

/* Fills in the facts that are known before the first sample. */
static void about_start(struct watch *w)
{
    struct outcome_about *a = &w->outcome.about;
    const struct proc_node *node =
        w->targets.count ? proc_tree_find(engine_tree(w->engine), w->targets.pids[0]) : NULL;
    char text[TEXT_LOCAL_MAX];
    outcome_about_start(a, w->name, w->dir.fd >= 0 ? w->dir.path : NULL);
    outcome_set_text(&a->started, text_local_time(text, w->started_wall_ns));
    if (node) /* the process may have exited meanwhile */
        a->command = outcome_words(node->info.cmdline, node->info.cmdline_len, &a->command_count);
}

/* Returns the facts for run.json and the recording's header. */
static json_t *facts_json(const struct watch *w)
{
    json_t *doc = json_object(), *pids = json_array();
    for (size_t i = 0; i < w->targets.count; i++)
        json_array_append_new(pids, json_integer(w->targets.pids[i]));
    json_object_set_new(doc, "watched", pids);
    outcome_put(&w->outcome, doc);
    return doc;
}

static json_t *ended_json(struct watch *w)
{
    struct outcome *o = &w->outcome;
    char text[TEXT_LOCAL_MAX];
    outcome_set_text(&o->about.state, "ended");
    outcome_set_text(&o->ended, text_local_time(text, clock_wall_ns()));
    o->has_end = true;
    o->end.kind = w->is_empty ? OUTCOME_GONE : OUTCOME_WATCH_ENDED;
    outcome_set_text(&o->end.by, w->is_empty ? NULL : w->ended_by);
    o->has_measured = engine_measure(w->engine, clock_mono_ns(), &o->measured) == 0;
    json_t *doc = facts_json(w);
    json_object_set_new(doc, "verdict", judge_json(engine_verdict(w->engine)));
    return doc;
}

/* ---- output ---- */

/* Writes the output. A closed pipe is not an error: ebb then stops watching without a message. */
static void write_out(struct watch *w)
{
    int r = w->line.failed ? -ENOMEM : io_write_all(STDOUT_FILENO, w->line.data, w->line.len);
    if (r < 0 && !w->write_error) {
        w->write_error = r;
        w->ended_by = "a closed output";
        loop_stop(w->loop);
    }
    buf_clear(&w->line);
}

static void watch_on_tick(void *user, uint64_t now_ns)
{
    struct watch *w = user;
    if ((w->screen && screen_is_paused(w->screen)) ||
        watch_frame_fill(&w->frame, w->engine, now_ns) < 0)
        return;
    w->frame.frame.title = w->title;
    w->frame.frame.notice = w->targets.notice[0] ? w->targets.notice : NULL;
    if (w->screen) {
        screen_draw(w->screen, &w->frame.frame);
        return;
    }
    if (w->frame.frame.count == 0)
        return; /* all processes have exited, so the summary reports the end of the job */
    if (w->options->json)
        lines_json(&w->line, &w->frame.frame);
    else
        lines_text(&w->line, &w->frame.frame);
    write_out(w);
}

static void on_empty(void *user)
{
    struct watch *w = user;
    w->is_empty = true;
    loop_stop(w->loop);
}

static void on_report(void *user, const char *sentence)
{
    struct watch *w = user;
    if (w->screen)
        watch_notice_add(&w->targets, sentence);
    else
        cli_say("%s", sentence);
}

static void watch_stop(struct watch *w, const char *by)
{
    w->ended_by = by;
    loop_stop(w->loop);
}

static void on_signal(void *user, const struct signalfd_siginfo *info)
{
    struct watch *w = user;
    if (w->attach.is_ending) {
        watch_attach_interrupt(&w->attach);
        return;
    }
    watch_stop(w, info->ssi_signo == SIGINT   ? "Ctrl-C"
                  : info->ssi_signo == SIGHUP ? "SIGHUP"
                                              : "SIGTERM");
}

static void on_resize(void *user, const struct signalfd_siginfo *info)
{
    struct watch *w = user;
    (void)info;
    if (w->screen)
        screen_resize(w->screen);
}

static void on_time(void *user, uint64_t now_ns)
{
    (void)now_ns;
    watch_stop(user, "--for");
}

static void on_attach_line(void *user, const char *line)
{
    struct watch *w = user;
    snprintf(w->targets.notice, sizeof w->targets.notice, "%s", line);
    if (!w->screen)
        return;
    w->frame.frame.notice = w->targets.notice;
    screen_show_notice(w->screen);
    screen_draw(w->screen, &w->frame.frame);
}

static void attach_selected(struct watch *w)
{
    int32_t pid;
    int r = screen_selected(w->screen, &pid)
                ? watch_attach_start(&w->attach, w->loop, pid, on_attach_line, w)
                : 0;
    if (r < 0)
        on_attach_line(w, "cannot start ebb attach");
}

static void on_keys(void *user, int fd, uint32_t events)
{
    struct watch *w = user;
    (void)fd;
    enum screen_action action = screen_keys(w->screen);
    if (action == SCREEN_QUIT)
        watch_stop(w, "q");
    else if (action == SCREEN_ATTACH)
        attach_selected(w);
    else if (events & (EPOLLHUP | EPOLLERR))
        watch_stop(w, "a closed terminal");
}

/* ---- starting and ending ---- */

static int listen_to_all(struct watch *w)
{
    const int ending[] = {SIGINT, SIGTERM, SIGHUP};
    int r = 0;
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof ending / sizeof *ending && r == 0; i++)
        r = loop_add_signal(w->loop, ending[i], on_signal, w);
    if (r == 0)
        r = loop_add_signal(w->loop, SIGWINCH, on_resize, w);
    if (r == 0 && w->options->for_ns)
        r = loop_add_timer(w->loop, clock_mono_ns() + w->options->for_ns, 0, on_time, w, NULL);
    return r;
}

static int begin_recording(struct watch *w, struct err *err)
{
    const struct watch_options *o = w->options;
    int r = 0;
    if (o->record || o->run_dir)
        r = rundir_create(o->run_dir, w->name, w->started_wall_ns, &w->dir, err);
    if (r < 0)
        w->dir.fd = -1;
    about_start(w);
    if (w->dir.fd < 0)
        return r;
    json_t *facts = facts_json(w);
    r = engine_record(w->engine, w->dir.fd, facts, err);
    if (r == 0) {
        r = rundir_write_json(&w->dir, facts);
        if (r < 0)
            err_set(err, r, "cannot write %s/run.json: %s", w->dir.path, strerror(-r));
    }
    json_decref(facts);
    return r;
}

static int begin_screen(struct watch *w, struct err *err)
{
    if (w->options->json || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
        return 0;
    int r = screen_new(&w->screen, err);
    if (r == 0)
        r = loop_add_fd(w->loop, STDIN_FILENO, EPOLLIN, on_keys, w, &w->keys);
    return r;
}

/* Prepares watching. Reports all errors in the command line. */
static int begin(struct watch *w, struct err *err)
{
    const struct watch_options *o = w->options;
    const struct engine_options options = {
        .interval_ns = o->interval_ns, .no_unique = o->no_unique, .pss = o->pss, .root = &w->root};
    const struct engine_callbacks callbacks = {
        .tick = watch_on_tick, .empty = on_empty, .report = on_report, .user = w};
    struct rlimit before;
    proc_raise_nofile(&before);
    int r = loop_new(&w->loop);
    if (r == 0)
        r = listen_to_all(w);
    if (r < 0)
        return err_set(err, r, "cannot start watching: %s", strerror(-r));
    r = engine_new(w->loop, &options, &callbacks, &w->engine, err);
    if (r == 0)
        r = add_targets(w, err);
    if (r < 0)
        return r;
    name_it(w);
    r = begin_recording(w, err);
    if (r == 0)
        r = begin_screen(w, err);
    if (r < 0)
        return r;
    engine_sample_now(w->engine);
    r = engine_start(w->engine);
    return r < 0 ? err_set(err, r, "cannot start watching: %s", strerror(-r)) : 0;
}

static void print_summary(struct watch *w, json_t *doc)
{
    if (w->write_error)
        return;
    if (w->options->json) {
        json_object_set_new(doc, "type", json_string("summary"));
        if (json_print(&w->line, doc, 0) < 0)
            w->line.failed = true;
    } else {
        struct verdicts verdicts = {0};
        const struct summary summary = {.outcome = &w->outcome, .verdicts = &verdicts};
        w->line.failed |= judge_verdicts(engine_verdict(w->engine), &verdicts) < 0;
        struct doc text = {0};
        summary_full(&text, &summary);
        doc_terminal(&w->line, &text, cli_colour(STDOUT_FILENO), cli_width(STDOUT_FILENO));
        doc_fini(&text);
        verdicts_fini(&verdicts);
    }
    write_out(w);
}

static int watch_end(struct watch *w, struct err *err)
{
    engine_sample_now(w->engine);
    json_t *footer = json_pack("{s:s}", "kind", w->is_empty ? "gone" : "watch_ended");
    int r = engine_stop(w->engine, footer);
    json_decref(footer);
    json_t *doc = ended_json(w);
    if (w->dir.fd >= 0 && rundir_write_json(&w->dir, doc) < 0 && r == 0)
        cli_say("cannot write %s/run.json", w->dir.path);
    loop_remove(w->keys);
    screen_free(w->screen);
    w->screen = NULL;
    print_summary(w, doc);
    json_decref(doc);
    if (w->write_error && w->write_error != -EPIPE)
        return err_set(err, w->write_error, "cannot write to standard output: %s",
                       strerror(-w->write_error));
    return 0;
}

static int watch_run(struct watch *w, struct err *err)
{
    int r = watch_targets_choose(&w->options->choice, &w->root, &w->targets, err);
    if (r == 0)
        r = begin(w, err);
    if (r)
        return r;
    if (w->targets.notice[0] && !w->screen)
        cli_say("%s", w->targets.notice);
    r = loop_run(w->loop);
    if (r < 0)
        err_set(err, r, "cannot continue watching: %s", strerror(-r));
    int status = watch_end(w, err);
    watch_attach_end(&w->attach);
    return r < 0 ? r : status;
}

static int watch_exec(const struct cli_call *call, struct err *err)
{
    struct watch w = {.options = call->options,
                      .root = {.proc_fd = -1, .cgroup_fd = -1},
                      .dir = {.fd = -1},
                      .started_wall_ns = clock_wall_ns()};
    if (call->argc > 0) {
        const struct watch_cluster_options several = {.interval_ns = w.options->interval_ns,
                                                      .for_ns = w.options->for_ns,
                                                      .json = w.options->json};
        if (cluster_is_folder(call->argv[0]))
            return watch_cluster(call->argv[0], &several, err);
        return err_set(err, -EINVAL,
                       "\"%.100s\" is not a job on several nodes; give a process with --pid PID",
                       call->argv[0]);
    }
    int r = proc_root_open("/proc", "/sys/fs/cgroup", &w.root, err);
    if (r < 0)
        return r;
    r = watch_run(&w, err);
    screen_free(w.screen);
    engine_free(w.engine);
    loop_free(w.loop);
    rundir_fini(&w.dir);
    outcome_fini(&w.outcome);
    watch_frame_fini(&w.frame);
    buf_fini(&w.line);
    proc_root_close(&w.root);
    return r;
}

const struct cli_command cmd_watch = {
    .name = "watch",
    .operands = "[JOB]",
    .summary = "watch a running job: a live view on a terminal, lines elsewhere",
    .description =
        "Watches running processes and their descendants. On a terminal, ebb shows the processes "
        "as a tree, with the memory and the growth rate of each, and the headroom; the key ? "
        "explains the columns, and A runs ebb attach for the selected process. If the output is "
        "not a terminal, ebb prints a line for each sample.\n"
        "\n"
        "The memory of the job counts each page once, even if several processes share it. If "
        "this sum cannot be measured exactly, a lower and an upper bound are printed.\n"
        "\n"
        "If --pid is a launcher (uv run, torchrun, accelerate, a shell), ebb prints a notice and "
        "watches the process that does the work.\n"
        "\n"
        "JOB is a job on several nodes: its id (of Slurm, or of torchrun), the id of a step such "
        "as 123.0, or its folder. For such a job, ebb shows the ranks, worst first, their median, "
        "and the nodes that stopped reporting; only --interval, --for and --json apply.\n"
        "\n"
        "ebb watch ends when the job ends, after --for, at the key q or at Ctrl-C; then it "
        "prints a summary. It loads nothing into the job until you press A.",
    .examples = "ebb watch --pid 4711\n"
                "ebb watch --find-training --record\n"
                "ebb watch --system --interval 5s\n"
                "ebb watch 123\n"
                "ebb watch --pid 4711 --for 5m --json > job.jsonl\n",
    .options = watch_table,
    .options_size = sizeof(struct watch_options),
    .exec = watch_exec,
};
