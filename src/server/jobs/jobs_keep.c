/* Retention: ended jobs beyond --keep's age, number or bytes are removed, oldest first, with their
 * run folders. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "server/jobs/cleaner.h"
#include "server/jobs/jobs_kept.h"
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"
#include "server/jobs/jobs_state.h"

enum {
    IDLE_S = 60,    /* time between checks while no job ends */
    WAKE_MS = 500,  /* delay from the end of a job to the next check */
    MEASURE_S = 10, /* minimum time between two measurements */
    ROWS = 32,      /* number of rows that are compared by age at a time */
    RETRY_S = 3600, /* time between attempts to remove the rest of the trash */
    AGE_S = 600,    /* how often the store's age is written to the store */
};

struct choice {
    uint64_t aged_ns; /* remove only jobs that ended at least this long ago; 0 means any job */
    int64_t id;       /* id of the job to remove; 0 if there is none */
    char folder[JOB_FOLDER_MAX], folder_id[JOB_FOLDER_ID_SIZE];
    const struct jobs *j;
};

struct jobs_keeper {
    struct jobs *j;
    struct cleaner *cleaner;
    struct choice removal; /* the job whose folder the cleaner moves into the trash */
    bool is_cleaning;      /* the cleaner empties the trash and measures */
    struct loop_source *timer;
    uint64_t bytes; /* size of all run folders when last measured, minus those removed since */
    uint64_t measured_ns, due_ns, cleaned_ns;
    bool has_trash;
    /* is_changed: a job has ended since the last measurement */
    bool is_measured, is_changed;
    size_t folder_cap;
};

static const char age_key[] = "age_s"; /* name of the counter that stores the age of the store */

/* ---- the store's age ---- */

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

/* ---- measuring ---- */

static int add_folder(void *user, const struct store_job *row)
{
    struct jobs_keeper *k = user;
    struct cleaner *c = k->cleaner;
    if (!row->run_dir)
        return 0;
    if (!ARRAY_ROOM(c->folders, c->folder_count, k->folder_cap))
        return 1;
    struct cleaner_folder *f = &c->folders[c->folder_count++];
    *f = (struct cleaner_folder){.id = row->id};
    snprintf(f->name, sizeof f->name, "%s", row->run_dir);
    snprintf(f->folder_id, sizeof f->folder_id, "%s", row->folder_id ? row->folder_id : "");
    return 0;
}

static bool is_measure_due(const struct jobs_keeper *k, uint64_t now_ns)
{
    return k->j->options.keep.bytes && k->is_changed &&
           (!k->is_measured || now_ns - k->measured_ns >= MEASURE_S * NS_PER_S);
}

/* Empties the trash and, if that is due, measures all run folders. */
static int start_cleaning(struct jobs_keeper *k, uint64_t now_ns, struct err *err)
{
    k->cleaner->folder_count = 0;
    if (is_measure_due(k, now_ns)) {
        k->is_changed = false;
        k->measured_ns = now_ns;
        store_list(k->j->store, &(struct store_filter){0}, add_folder, k, NULL);
    }
    k->has_trash = false;
    k->cleaned_ns = now_ns;
    int r = cleaner_clean(k->cleaner);
    k->is_cleaning = r == 0;
    return r < 0 ? err_set(err, r, "cannot start a thread: %s", strerror(-r)) : 0;
}

static void take_measurement(struct jobs_keeper *k)
{
    if (!k->is_cleaning)
        return;
    k->is_cleaning = false;
    if (k->cleaner->folder_count == 0)
        return;
    k->bytes = 0;
    k->is_measured = true;
    for (size_t i = 0; i < k->cleaner->folder_count; i++)
        k->bytes += k->cleaner->folders[i].bytes;
}

/* ---- choosing the next job to remove ---- */

static int choose(void *user, const struct store_job *row)
{
    struct choice *c = user;
    if (c->aged_ns && jobs_age_ns(c->j) < row->ended_age_ns + c->aged_ns)
        return 0;
    /* the job is still in memory, because its end was not published yet */
    if (jobs_find(c->j, row->id))
        return 0;
    c->id = row->id;
    snprintf(c->folder, sizeof c->folder, "%s", row->run_dir ? row->run_dir : "");
    snprintf(c->folder_id, sizeof c->folder_id, "%s", row->folder_id ? row->folder_id : "");
    return 1;
}

static void choose_oldest(struct jobs *j, uint64_t aged_ns, struct choice *ret)
{
    const struct store_filter filter = {.states = JOB_FINAL, .oldest_first = true, .limit = ROWS};
    *ret = (struct choice){.aged_ns = aged_ns, .j = j};
    store_list(j->store, &filter, choose, ret, NULL);
}

/* Finds the job to remove next. Its id is 0 if there is none. */
static void choose_next(struct jobs_keeper *k, struct choice *ret)
{
    struct jobs *j = k->j;
    const struct jobs_keep *keep = &j->options.keep;
    uint64_t count[JOB_STATES], ended = 0;
    store_count(j->store, count);
    for (unsigned i = 0; i < JOB_STATES; i++)
        ended += job_state_is_final((enum job_state)i) ? count[i] : 0;
    *ret = (struct choice){0};
    if ((keep->count && ended > keep->count) ||
        (keep->bytes && k->is_measured && k->bytes > keep->bytes))
        choose_oldest(j, 0, ret);
    if (!ret->id && keep->age_ns)
        choose_oldest(j, keep->age_ns, ret);
}

/* ---- removing ---- */

/* Removes the row of a job whose folder is already in the trash. This order is safe: if the server
 * stops in between, the next one removes the row. A folder without a row would stay for ever. */
static int remove_job(struct jobs_keeper *k, struct err *err)
{
    const int64_t id = k->removal.id;
    int r = k->cleaner->put_result;
    k->removal.id = 0;
    if (r < 0)
        return err_set(err, r, "cannot move %s: %s", k->removal.folder, strerror(-r));
    k->has_trash = true;
    r = store_remove(k->j->store, id, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < k->cleaner->folder_count; i++) {
        if (k->cleaner->folders[i].id == id)
            k->bytes -= k->cleaner->folders[i].bytes;
    }
    jobs_publish_removed(k->j, id);
    return 0;
}

static int start_removal(struct jobs_keeper *k, const struct choice *choice, struct err *err)
{
    int r = cleaner_put(k->cleaner, choice->folder, choice->folder_id);
    if (r < 0)
        return err_set(err, r, "cannot start a thread: %s", strerror(-r));
    k->removal = *choice;
    return 0;
}

/* Removes some jobs. Returns 1 if there is more to do, 0 if not, or -errno. */
static int keep_some(struct jobs_keeper *k, uint64_t now_ns, struct err *err)
{
    struct choice choice;
    if (k->cleaner->task)
        return 1;
    take_measurement(k);
    int r = k->removal.id ? remove_job(k, err) : 0;
    if (r < 0)
        return r;
    choose_next(k, &choice);
    r = choice.id ? start_removal(k, &choice, err) : 0;
    if (r < 0 || choice.id)
        return r < 0 ? r : 1;
    bool is_retry = k->cleaner->has_left && now_ns - k->cleaned_ns >= RETRY_S * NS_PER_S;
    if (k->has_trash || is_retry || is_measure_due(k, now_ns)) {
        r = start_cleaning(k, now_ns, err);
        return r < 0 ? r : 1;
    }
    if (k->cleaner->has_left)
        jobs_trouble_set(
            k->j, TROUBLE_KEEP,
            "some folders of removed jobs could not be deleted; they remain in %s/.trash",
            k->j->runs_path);
    else
        jobs_trouble_clear(k->j, TROUBLE_KEEP);
    return 0;
}

/* ---- timer ---- */

static void sleep_until(struct jobs_keeper *k, uint64_t at_ns)
{
    k->due_ns = at_ns;
    loop_set_timer(k->timer, at_ns, 0);
}

static void on_keep_timer(void *user, uint64_t now_ns)
{
    struct jobs_keeper *k = user;
    struct err err;
    int r = keep_some(k, now_ns, &err);
    if (r < 0)
        jobs_trouble_set(k->j, TROUBLE_KEEP, "cannot remove ended jobs: %s", err.text);
    if (jobs_age_ns(k->j) - k->j->age_kept_ns >= AGE_S * NS_PER_S)
        write_age(k->j);
    if (r == 0 && k->j->trouble[TROUBLE_STRAYS][0])
        jobs_sweep_locks(k->j);
    uint64_t nap_ns = IDLE_S * NS_PER_S;
    if (r == 0 && k->j->options.keep.bytes && k->is_changed)
        nap_ns = MEASURE_S * NS_PER_S;
    sleep_until(k, now_ns + nap_ns);
}

static void on_cleaned(void *user)
{
    sleep_until(user, clock_mono_ns());
}

int jobs_keeper_new(struct jobs *j, struct jobs_keeper **ret, struct err *err)
{
    struct jobs_keeper *k = calloc(1, sizeof *k);
    if (!k)
        return err_set(err, -ENOMEM, "out of memory");
    k->j = j;
    k->has_trash = k->is_changed = true; /* an earlier server may have left trash behind */
    k->due_ns = UINT64_MAX / 2;
    int r = read_age(j, err);
    if (r == 0) {
        r = cleaner_new(j->workers, j->runs, on_cleaned, k, &k->cleaner);
        if (r == 0)
            r = loop_add_timer(j->loop, k->due_ns, 0, on_keep_timer, k, &k->timer);
        if (r < 0)
            err_set(err, r, "cannot use %s: %s", j->runs_path, strerror(-r));
    }
    if (r < 0)
        jobs_keeper_free(k);
    else
        *ret = k;
    return r;
}

void jobs_keeper_free(struct jobs_keeper *k)
{
    if (!k)
        return;
    loop_remove(k->timer);
    write_age(k->j);
    cleaner_close(k->cleaner);
    free(k);
}

void jobs_keeper_wake(struct jobs_keeper *k)
{
    uint64_t at_ns = clock_mono_ns() + WAKE_MS * NS_PER_MS;
    k->is_changed = true;
    if (at_ns < k->due_ns)
        sleep_until(k, at_ns);
}
