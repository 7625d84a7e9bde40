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

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "base/number.h"
#include "server/jobs/jobs_kept.h"
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"
#include "server/jobs/jobs_state.h"
#include "server/jobs/jobs_trash.h"

enum {
    SLICE = 64,        /* entries removed, or looked at, in one go */
    DEPTH_MAX = 16,    /* of what is measured; below it nothing is counted */
    NAP_S = 60,        /* between two looks without an occasion */
    OCCASION_MS = 500, /* after one */
    MEASURE_S = 10,    /* between two measurements at least */
    ROWS = 32,         /* looked at for their age */
    STUCK_S = 3600,    /* between two tries of what could not be removed */
    AGE_S = 600,       /* between two times that the store's age is stored */
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
    bool is_measured;
    bool is_changed; /* since then */
};

static const char age_key[] = "age_s"; /* among the counters of the store */

/* ---- how old the store is ---- */

uint64_t jobs_age_ns(const struct jobs *j)
{
    return j->age_ns + (clock_boot_ns() - j->age_boot_ns);
}

static int read_age(struct jobs *j, struct err *err)
{
    double age_s = 0;
    int r = store_counter(j->store, age_key, &age_s, err);
    j->age_ns = j->age_kept_ns = age_s > 0 ? (uint64_t)(age_s * 1e9) : 0;
    j->age_boot_ns = clock_boot_ns();
    return r;
}

static void write_age(struct jobs *j)
{
    uint64_t age_ns = jobs_age_ns(j);
    double more_s = (double)(age_ns - j->age_kept_ns) / 1e9;
    if (store_count_up(j->store, age_key, more_s, NULL) == 0)
        j->age_kept_ns = age_ns;
}

/* ---- whose a folder is ---- */

/* One that is closed even to us is opened up: it has the name of a job's. */
static int open_closed(const struct jobs *j, const char *folder, const char *folder_id)
{
    int fd = jobs_open_folder(j, folder, folder_id);
    if (fd == -EACCES) {
        trash_open_up(j->runs_fd, folder);
        fd = jobs_open_folder(j, folder, folder_id);
    }
    return fd;
}

/* FOLDER is that of the job whose id it begins with. */
static bool is_folder_of_job(const struct jobs *j, const char *folder)
{
    struct store_job row;
    int64_t id;
    if (number_parse_i64(folder, strspn(folder, "0123456789"), &id) < 0 ||
        store_get(j->store, id, &row, NULL) < 0 || !row.run_dir || strcmp(row.run_dir, folder) != 0)
        return false;
    int fd = jobs_open_folder(j, folder, row.folder_id ? row.folder_id : "");
    if (fd >= 0)
        close(fd);
    return fd != -ENOENT;
}

/* ---- measuring ---- */

static void measure_push(struct measure *m, int dir, const char *name)
{
    if (m->depth == DEPTH_MAX)
        return;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d)
        m->at[m->depth++] = d;
    else
        cleanup_close(&fd);
}

static void measure_pop(struct measure *m)
{
    closedir(m->at[--m->depth]);
}

/* What is in runs/ and no job's cannot be removed, so it does not count either. */
static void measure_entry(const struct jobs *j, struct measure *m, const struct dirent *e)
{
    struct stat st;
    int dir = dirfd(m->at[m->depth - 1]);
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
        (m->depth == 1 && !is_folder_of_job(j, e->d_name)) ||
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
            measure_entry(k->j, m, e);
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
    uint64_t aged_ns; /* by so much at least */
    int64_t id;       /* 0: none */
    char folder[JOB_FOLDER_MAX], folder_id[JOB_FOLDER_ID_SIZE];
    const struct jobs *j;
};

static int choose(void *user, const struct store_job *row)
{
    struct choice *c = user;
    if (c->aged_ns && jobs_age_ns(c->j) < row->ended_age_ns + c->aged_ns)
        return 0;
    if (jobs_find(c->j, row->id)) /* its end is not published yet */
        return 0;
    c->id = row->id;
    snprintf(c->folder, sizeof c->folder, "%s", row->run_dir ? row->run_dir : "");
    snprintf(c->folder_id, sizeof c->folder_id, "%s", row->folder_id ? row->folder_id : "");
    return 1;
}

static void oldest(struct jobs *j, uint64_t aged_ns, struct choice *ret)
{
    const struct store_filter filter = {.states = JOB_FINAL, .oldest_first = true, .limit = ROWS};
    *ret = (struct choice){.aged_ns = aged_ns, .j = j};
    store_list(j->store, &filter, choose, ret, NULL);
}

static bool is_too_many(const struct jobs *j)
{
    uint64_t count[JOB_STATES], ended = 0;
    store_count(j->store, count);
    for (unsigned i = 0; i < JOB_STATES; i++)
        ended += job_state_is_final((enum job_state)i) ? count[i] : 0;
    return j->options.keep.count && ended > j->options.keep.count;
}

/* The job that is to go next; id 0: none. */
static void choose_next(struct jobs_keeper *k, struct choice *ret)
{
    struct jobs *j = k->j;
    *ret = (struct choice){0};
    if (is_too_many(j) || (j->options.keep.bytes && k->is_measured &&
                           k->bytes > j->options.keep.bytes && !k->trash.is_full))
        oldest(j, 0, ret);
    if (!ret->id && j->options.keep.age_ns)
        oldest(j, j->options.keep.age_ns, ret);
}

/* ---- removing ---- */

/* 1 it is the job's to remove, 0 there is none or it is another's, -errno. Of a folder that was
 * never signed the name alone is not enough. */
static int is_removable(const struct jobs *j, const struct choice *c)
{
    struct stat st;
    int fd = open_closed(j, c->folder, c->folder_id);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    bool is_run = c->folder_id[0] || fstatat(fd, "run.json", &st, AT_SYMLINK_NOFOLLOW) == 0;
    close(fd);
    return is_run;
}

/* The folder first: a row without one is removed after the next start, a folder without a row
 * never would be. */
static int remove_job(struct jobs_keeper *k, const struct choice *c, struct err *err)
{
    int r = is_removable(k->j, c);
    if (r > 0)
        r = trash_put(&k->trash, k->j->runs_fd, c->folder);
    if (r < 0 && r != -ENOENT)
        return err_set(err, r, "%s cannot be moved: %s", c->folder, strerror(-r));
    r = store_remove(k->j->store, c->id, err);
    if (r < 0)
        return r;
    jobs_publish_removed(k->j, c->id);
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

static void report_stuck(struct jobs_keeper *k)
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

static void on_keep_timer(void *user, uint64_t now_ns, uint64_t missed)
{
    struct jobs_keeper *k = user;
    struct err err;
    (void)missed;
    int r = work_some(k, now_ns, &err);
    if (r < 0)
        jobs_trouble_set(k->j, TROUBLE_KEEP, "ended jobs cannot be removed now: %s", err.text);
    else if (r == 0)
        report_stuck(k);
    if (jobs_age_ns(k->j) - k->j->age_kept_ns >= AGE_S * NS_PER_S)
        write_age(k->j);
    if (r == 0 && k->j->trouble[TROUBLE_STRAYS][0])
        jobs_sweep_locks(k->j);
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
    k->stuck_ns = clock_mono_ns();
    int r = read_age(j, err);
    if (r < 0) {
        jobs_keeper_free(k);
        return r;
    }
    r = trash_open(j->runs_fd, &k->trash);
    if (r == 0)
        r = loop_add_timer(j->loop, k->due_ns, 0, on_keep_timer, k, &k->timer);
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
    write_age(k->j);
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
