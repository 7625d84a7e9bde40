/* What is kept of ended jobs: by age, number and bytes; the rest goes, oldest first, folder and
 * row, a little at a time. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "jobs/jobs_private.h"
#include "jobs/jobs_trash.h"

enum {
    SLICE = 64,        /* entries removed, or looked at, in one go */
    DEPTH_MAX = 16,    /* of what is measured; below it nothing is counted */
    NAP_S = 60,        /* between two looks without an occasion */
    OCCASION_MS = 500, /* after one */
    MEASURE_S = 10,    /* between two measurements at least */
    ROWS = 32,         /* looked at for their age */
    STUCK_S = 3600,    /* between two tries of what could not be removed */
};

/* Walks all run folders to learn how much there is. */
struct measure {
    DIR *at[DEPTH_MAX];
    size_t depth; /* 0: not under way */
    uint64_t bytes;
};

struct jobs_keeper {
    struct jobs *j;
    struct trash trash;
    struct loop_source *timer;
    struct measure measure;
    uint64_t bytes; /* of all run folders when last measured, less what went since */
    uint64_t measured_ns, due_ns, stuck_ns;
    uint64_t wall_ns, mono_ns; /* when it began */
    bool is_measured;
    bool is_changed; /* since then */
};

/* ---- measuring ---- */

static void measure_push(struct measure *m, int dir, const char *name)
{
    if (m->depth == DEPTH_MAX)
        return;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d)
        m->at[m->depth++] = d;
    else if (fd >= 0)
        close(fd);
}

static void measure_pop(struct measure *m)
{
    closedir(m->at[--m->depth]);
}

static void measure_entry(struct measure *m, const struct dirent *e)
{
    struct stat st;
    int dir = dirfd(m->at[m->depth - 1]);
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
        (m->depth == 1 && e->d_name[0] == '.') ||
        fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    m->bytes += (uint64_t)st.st_blocks * 512;
    if (S_ISDIR(st.st_mode))
        measure_push(m, dir, e->d_name);
}

static void measure_some(struct jobs_keeper *k)
{
    struct measure *m = &k->measure;
    for (int i = 0; m->depth > 0 && i < SLICE; i++) {
        const struct dirent *e = readdir(m->at[m->depth - 1]);
        if (e)
            measure_entry(m, e);
        else
            measure_pop(m);
    }
    if (m->depth > 0)
        return;
    k->bytes = m->bytes;
    k->is_measured = true;
}

static bool is_measure_due(const struct jobs_keeper *k, uint64_t now_ns)
{
    return k->j->options.keep.bytes && k->is_changed &&
           (!k->is_measured || now_ns - k->measured_ns >= MEASURE_S * NS_PER_S);
}

static void measure_begin(struct jobs_keeper *k, uint64_t now_ns)
{
    k->is_changed = false;
    k->measured_ns = now_ns;
    k->measure.bytes = 0;
    measure_push(&k->measure, k->j->runs_fd, ".");
}

/* ---- choosing ---- */

struct choice {
    uint64_t ended_before_ns; /* 0: any */
    int64_t id;               /* 0: none */
    char folder[JOB_FOLDER_MAX];
    const struct jobs *j;
};

static int choose(void *user, const struct store_job *row)
{
    struct choice *c = user;
    if (c->ended_before_ns && row->ended_ns >= c->ended_before_ns)
        return 0;
    if (jobs_find(c->j, row->id)) /* its end is not told yet */
        return 0;
    c->id = row->id;
    snprintf(c->folder, sizeof c->folder, "%s", row->run_dir ? row->run_dir : "");
    return 1;
}

static unsigned final_states(void)
{
    unsigned states = 0;
    for (unsigned i = 0; i < JOB_STATES; i++)
        states |= job_state_is_final((enum job_state)i) ? 1u << i : 0;
    return states;
}

static void oldest(struct jobs *j, uint64_t ended_before_ns, struct choice *ret)
{
    const struct store_filter filter = {
        .states = final_states(), .oldest_first = true, .limit = ROWS};
    *ret = (struct choice){.ended_before_ns = ended_before_ns, .j = j};
    store_list(j->store, &filter, choose, ret, NULL);
}

static bool is_too_many(const struct jobs *j)
{
    uint64_t count[JOB_STATES], ended = 0;
    store_count(j->store, count, NULL);
    for (unsigned i = 0; i < JOB_STATES; i++)
        ended += job_state_is_final((enum job_state)i) ? count[i] : 0;
    return j->options.keep.count && ended > j->options.keep.count;
}

/* The job that is to go next; id 0: none. */
static void choose_next(struct jobs_keeper *k, struct choice *ret)
{
    struct jobs *j = k->j;
    /* a clock that jumps a year ahead must not make everything old */
    uint64_t now_ns = k->wall_ns + (clock_mono_ns() - k->mono_ns);
    uint64_t age_ns = j->options.keep.age_ns;
    *ret = (struct choice){0};
    if (is_too_many(j) || (j->options.keep.bytes && k->is_measured &&
                           k->bytes > j->options.keep.bytes && !k->trash.is_full))
        oldest(j, 0, ret);
    if (!ret->id && age_ns && now_ns > age_ns)
        oldest(j, now_ns - age_ns, ret);
}

/* ---- removing ---- */

static bool is_a_name(const char *folder)
{
    return folder[0] && folder[0] != '.' && !strchr(folder, '/');
}

/* The folder first: a row without one is removed after the next start, a folder without a row
 * never would be. */
static int remove_job(struct jobs_keeper *k, const struct choice *c, struct err *err)
{
    if (is_a_name(c->folder)) {
        int r = trash_put(&k->trash, k->j->runs_fd, c->folder);
        if (r < 0 && r != -ENOENT)
            return err_set(err, r, "%s cannot be moved: %s", c->folder, strerror(-r));
    }
    int r = store_remove(k->j->store, c->id, err);
    if (r < 0)
        return r;
    jobs_tell_removed(k->j, c->id);
    return 0;
}

static int empty_trash(struct jobs_keeper *k, struct err *err)
{
    uint64_t removed = k->trash.removed, freed = k->trash.freed_bytes;
    int r = trash_empty_some(&k->trash, SLICE);
    freed = k->trash.freed_bytes - freed;
    k->bytes = k->bytes > freed ? k->bytes - freed : 0;
    if (r < 0 && k->trash.removed == removed && !k->trash.has_stuck)
        return err_set(err, r, "something of a removed job stays in %s/.trash: %s", k->j->runs_path,
                       strerror(-r));
    return 0;
}

/* ---- in turn ---- */

/* 1 what could not be removed is tried again, 0 not now. */
static int try_stuck(struct jobs_keeper *k, uint64_t now_ns)
{
    if (!k->trash.has_stuck || now_ns - k->stuck_ns < STUCK_S * NS_PER_S)
        return 0;
    k->stuck_ns = now_ns;
    trash_try_stuck(&k->trash);
    return 1;
}

static void tell_stuck(struct jobs_keeper *k)
{
    if (k->trash.has_stuck)
        jobs_trouble_set(k->j, TROUBLE_KEEP,
                         "something of removed jobs cannot be removed: see %s/.trash/stuck-*",
                         k->j->runs_path);
    else
        jobs_trouble_clear(k->j, TROUBLE_KEEP);
}

/* 1 there is more to do, 0 not now, -errno. */
static int work_some(struct jobs_keeper *k, uint64_t now_ns, struct err *err)
{
    struct choice choice;
    if (k->trash.is_full) {
        int r = empty_trash(k, err);
        return r < 0 ? r : 1;
    }
    if (k->measure.depth > 0) {
        measure_some(k);
        return 1;
    }
    if (is_measure_due(k, now_ns)) {
        measure_begin(k, now_ns);
        return 1;
    }
    choose_next(k, &choice);
    if (!choice.id)
        return try_stuck(k, now_ns);
    int r = remove_job(k, &choice, err);
    return r < 0 ? r : 1;
}

static void sleep_until(struct jobs_keeper *k, uint64_t at_ns)
{
    k->due_ns = at_ns;
    loop_set_timer(k->timer, at_ns, 0);
}

static void on_timer(void *user, uint64_t now_ns, uint64_t missed)
{
    struct jobs_keeper *k = user;
    struct err err;
    (void)missed;
    int r = work_some(k, now_ns, &err);
    if (r < 0)
        jobs_trouble_set(k->j, TROUBLE_KEEP, "ended jobs cannot be removed now: %s", err.text);
    else if (r == 0)
        tell_stuck(k);
    /* a moment for the others of the loop, even when there is much to do */
    uint64_t nap_ns = r > 0 ? NS_PER_MS : NAP_S * NS_PER_S;
    if (r == 0 && k->j->options.keep.bytes && k->is_changed)
        nap_ns = MEASURE_S * NS_PER_S;
    sleep_until(k, now_ns + nap_ns);
}

int jobs_keeper_new(struct jobs *j, struct jobs_keeper **ret, struct err *err)
{
    struct jobs_keeper *k = calloc(1, sizeof *k);
    if (!k)
        return err_set(err, -ENOMEM, "out of memory");
    k->j = j;
    k->trash.fd = -1;
    k->is_changed = true;
    k->due_ns = UINT64_MAX / 2;
    k->wall_ns = clock_wall_ns();
    k->mono_ns = k->stuck_ns = clock_mono_ns();
    int r = trash_open(j->runs_fd, &k->trash);
    if (r == 0)
        r = loop_add_timer(j->loop, k->due_ns, 0, on_timer, k, &k->timer);
    if (r < 0) {
        jobs_keeper_free(k);
        return err_set(err, r, "%s cannot be used: %s", j->runs_path, strerror(-r));
    }
    *ret = k;
    return 0;
}

void jobs_keeper_free(struct jobs_keeper *k)
{
    if (!k)
        return;
    while (k->measure.depth > 0)
        measure_pop(&k->measure);
    loop_remove(k->timer);
    trash_close(&k->trash);
    free(k);
}

void jobs_keeper_wake(struct jobs_keeper *k)
{
    uint64_t at_ns = clock_mono_ns() + OCCASION_MS * NS_PER_MS;
    k->is_changed = true;
    if (at_ns < k->due_ns)
        sleep_until(k, at_ns);
}
