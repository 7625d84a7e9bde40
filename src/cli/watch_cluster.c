/* Follows a job folder: reads the data that the nodes add, and shows the ranks. */
#include "cli/watch_cluster.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/run_end.h"
#include "judge/cluster.h"
#include "present/cluster.h"
#include "present/document.h"
#include "present/verdict.h"

enum {
    /* Time between updates of the verdicts: 2 s in the first two minutes, then 10 s, as in the
     * engine. */
    JUDGE_S = 10,
    JUDGE_EARLY_S = 2,
    EARLY_S = 120,
    LINES_BESIDE_RANKS = 12, /* number of screen lines that are not available for ranks */
};

struct follow {
    const struct watch_cluster_options *options;
    struct cluster *cluster;
    struct loop *loop;
    struct buf out;
    uint64_t begun_ns, judged_ns;
    bool is_screen, is_changed, has_judged;
    int write_error;
};

static void follow_write(struct follow *f)
{
    int r = f->out.failed ? -ENOMEM : io_write_all(STDOUT_FILENO, f->out.data, f->out.len);
    buf_clear(&f->out);
    if (r < 0 && !f->write_error) {
        f->write_error = r;
        loop_stop(f->loop);
    }
}

/* ---- output ---- */

static size_t ranks_that_fit(void)
{
    struct winsize size;
    bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
    size_t rows = is_known ? size.ws_row : 24;
    return rows > LINES_BESIDE_RANKS + 4 ? rows - LINES_BESIDE_RANKS : 4;
}

static void draw_screen(struct follow *f)
{
    const struct cluster *c = f->cluster;
    struct doc d = {0};
    doc_headline(&d, "ebb");
    doc_textf(&d, TONE_DIM, "job %s", c->job.job_id ? c->job.job_id : "");
    if (c->job.name) {
        doc_text(&d, TONE_DIM, " ");
        doc_name(&d, TONE_DIM, c->job.name, strlen(c->job.name), 40);
    }
    doc_textf(&d, TONE_DIM, ", %zu ranks on %zu nodes", c->n_ranks, c->n_nodes);
    cluster_lead(&d, c, NULL, "");
    doc_space(&d);
    cluster_tables(&d, c, ranks_that_fit());
    buf_add_str(&f->out, "\033[H\033[2J");
    doc_terminal(&f->out, &d, cli_colour(STDOUT_FILENO), cli_width(STDOUT_FILENO));
    doc_fini(&d);
    follow_write(f);
}

static int64_t newest_step(const struct cluster *c)
{
    int64_t step = -1;
    for (size_t i = 0; i < c->n_nodes; i++) {
        const struct run *run = c->nodes[i].follow.run;
        if (run && run->has_step && run->step > step)
            step = run->step;
    }
    return step;
}

static void print_line(struct follow *f)
{
    const struct cluster *c = f->cluster;
    const struct judged *worst = verdict_worst(&c->verdicts);
    struct buf text = {0};
    char time[TEXT_TIME_MAX];
    buf_printf(&f->out, "%s", text_duration(time, clock_mono_ns() - f->begun_ns));
    if (newest_step(c) >= 0)
        buf_printf(&f->out, "  step %lld", (long long)newest_step(c));
    for (int state = 0; state < NODE_STATES; state++) {
        size_t n = cluster_count(c, (enum cluster_state)state);
        if (n)
            buf_printf(&f->out, "  %zu %s", n, cluster_state_name((enum cluster_state)state));
    }
    if (worst)
        verdict_headline(&text, worst, &c->verdicts, true);
    buf_add_str(&f->out, "  ");
    text_escape(&f->out, buf_str(&text), text.len);
    buf_add_byte(&f->out, '\n');
    buf_fini(&text);
    follow_write(f);
}

static void follow_show(struct follow *f)
{
    if (f->options->json) {
        json_t *doc = cluster_json(f->cluster);
        if (!doc || json_print(&f->out, doc, 0) < 0)
            f->out.failed = true;
        json_decref(doc);
        follow_write(f);
    } else if (f->is_screen) {
        draw_screen(f);
    } else {
        print_line(f);
    }
}

/* ---- following ---- */

/* Returns true if the job has ended: at least one node has run, and none runs any more. */
static bool has_all_ended(const struct cluster *c)
{
    size_t over =
        cluster_count(c, NODE_ENDED) + cluster_count(c, NODE_LOST) + cluster_count(c, NODE_SILENT);
    return over > 0 && cluster_count(c, NODE_RUNNING) == 0;
}

static void follow_tick(void *user, uint64_t now_ns)
{
    struct follow *f = user;
    f->is_changed |= cluster_refresh(f->cluster, now_ns, clock_wall_ns(), true);
    bool is_over = has_all_ended(f->cluster);
    uint64_t pause_s = now_ns - f->begun_ns < EARLY_S * NS_PER_S ? JUDGE_EARLY_S : JUDGE_S;
    bool is_due = !f->has_judged || now_ns - f->judged_ns >= pause_s * NS_PER_S;
    if (!f->has_judged || is_over || (f->is_changed && is_due)) {
        if (!f->has_judged)
            /* releases the memory that was needed to read the whole recording */
            malloc_trim(0);
        f->has_judged = true;
        f->is_changed = false;
        f->judged_ns = now_ns;
        if (cluster_judge(f->cluster, false) == 0)
            follow_show(f);
    }
    if (is_over)
        loop_stop(f->loop);
}

static void follow_stop(void *user, const struct signalfd_siginfo *info)
{
    struct follow *f = user;
    (void)info;
    loop_stop(f->loop);
}

static void follow_time(void *user, uint64_t now_ns)
{
    struct follow *f = user;
    (void)now_ns;
    loop_stop(f->loop);
}

static int follow_begin(struct follow *f)
{
    const struct watch_cluster_options *o = f->options;
    const int ending[] = {SIGINT, SIGTERM, SIGHUP};
    signal(SIGPIPE, SIG_IGN);
    int r = loop_new(&f->loop);
    for (size_t i = 0; i < sizeof ending / sizeof *ending && r == 0; i++)
        r = loop_add_signal(f->loop, ending[i], follow_stop, f);
    if (r == 0)
        r = loop_add_timer(f->loop, f->begun_ns, o->interval_ns, follow_tick, f, NULL);
    if (r == 0 && o->for_ns)
        r = loop_add_timer(f->loop, f->begun_ns + o->for_ns, 0, follow_time, f, NULL);
    return r;
}

int watch_cluster(const char *path, const struct watch_cluster_options *options, struct err *err)
{
    struct follow f = {.options = options,
                       .begun_ns = clock_mono_ns(),
                       .is_screen = !options->json && isatty(STDOUT_FILENO)};
    int r = cluster_open(path, NULL, NULL, &f.cluster, err);
    if (r < 0)
        return r;
    r = follow_begin(&f);
    if (r == 0)
        r = loop_run(f.loop);
    if (r < 0)
        err_set(err, r, "cannot follow %s: %s", path, strerror(-r));
    else if (f.write_error && f.write_error != -EPIPE)
        r = err_set(err, f.write_error, "cannot write to standard output: %s",
                    strerror(-f.write_error));
    bool has_summary = !f.write_error && !options->json && has_all_ended(f.cluster);
    loop_free(f.loop);
    cluster_free(f.cluster);
    buf_fini(&f.out);
    if (has_summary && r == 0)
        (void)cluster_print_end(STDOUT_FILENO, path, false);
    return r;
}
