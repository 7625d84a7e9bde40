/* Retention: removes ended jobs and their run folders, oldest first, while they exceed the age,
 * number or size set with --keep. A thread removes and measures the folders, because both can be
 * slow, and can block for ever if the file system hangs. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "base/text.h"
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"
#include "server/jobs/jobs_state.h"
#include "server/jobs/runs_folder.h"
#include "server/jobs/workers.h"

enum {
    IDLE_S = 60,    /* time between checks while no job ends */
    WAKE_MS = 500,  /* delay from the end of a job to the next check */
    MEASURE_S = 10, /* minimum time between two measurements of the run folders */
    RETRY_S = 3600, /* time between attempts to remove the rest of the trash */
    AGE_S = 600,    /* interval at which the store's age is saved in the store */
    DEPTH_MAX = 16, /* maximum depth of folders that are measured */
};

struct kept_folder {
    int64_t id; /* id of the job; 0: none */
    struct job_folder folder;
    uint64_t bytes; /* measured size */
};

struct jobs_keeper {
    struct jobs *j;
    struct loop_source *timer;
    struct task *task; /* NULL: none */
    bool is_closed;
    uint64_t bytes; /* size of all run folders when last measured, minus those removed since */
    uint64_t measured_ns, due_ns, cleaned_ns;
    /* is_changed: a job has ended since the last measurement */
    bool is_measured, is_changed;
    size_t folder_cap;
    atomic_bool is_stopped;
    /* Used by the thread while it runs: */
    struct runs_folder *runs;
    int trash_fd; /* fd of RUNS/.trash, or -1 */
    /* number of folders moved to the trash so far; the names in the trash contain this number,
     * so that they are unique */
    unsigned moved;
    struct kept_folder removal; /* the job whose folder is moved into the trash */
    int removal_result;         /* 0, or -errno if the folder could not be moved */
    bool has_left;              /* something in the trash could not be removed */
    bool is_measuring;          /* the task also measures the run folders */
    struct kept_folder *folders;
    size_t folder_count;
};

/* ---- in the thread ---- */

static const char trash_name[] = ".trash";

static int open_trash(struct jobs_keeper *k)
{
    int runs_fd = runs_folder_fd(k->runs);
    if (runs_fd < 0)
        return runs_fd;
    if (mkdirat(runs_fd, trash_name, 0700) < 0 && errno != EEXIST)
        return -errno;
    int fd = openat(runs_fd, trash_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    close_fd(&k->trash_fd);
    k->trash_fd = fd;
    return 0;
}

/* Makes a folder accessible to its owner if its mode denies access. */
static void open_up(int dir, const char *name)
{
    char path[40];
    struct stat st;
    AUTO_CLOSE int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        (void)!chmod(path, 0700);
}

static int move_to_trash(struct jobs_keeper *k, int dir, const char *name)
{
    char to[64];
    for (int attempt = 0; attempt < 2; attempt++) {
        snprintf(to, sizeof to, "%llx.%u", (unsigned long long)clock_mono_ns(), k->moved++);
        if (renameat(dir, name, k->trash_fd, to) == 0)
            return 0;
        if (errno != EACCES && errno != EPERM)
            break;
        open_up(dir, name);
    }
    return -errno;
}

/* Moves the run folder of k->removal into the trash. Leaves the folder alone if it lacks the job's
 * signature. An old ebb wrote no signature; the folder of such a job is left alone if it lacks
 * run.json. Returns 0 or -errno. */
static int put_folder(struct jobs_keeper *k)
{
    const struct job_folder folder = k->removal.folder;
    struct stat st;
    int fd = executor_open_folder(k->runs, &folder);
    if (fd == -EACCES) {
        open_up(runs_folder_fd(k->runs), folder.name);
        fd = executor_open_folder(k->runs, &folder);
    }
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    bool is_run = folder.id[0] || fstatat(fd, "run.json", &st, AT_SYMLINK_NOFOLLOW) == 0;
    close(fd);
    if (!is_run)
        return 0;
    /* creates the trash folder again if a user has removed it */
    int r = fstat(k->trash_fd, &st) == 0 && st.st_nlink > 0 ? 0 : open_trash(k);
    if (r == 0)
        r = move_to_trash(k, runs_folder_fd(k->runs), folder.name);
    return r == -ENOENT ? 0 : r;
}

static DIR *open_dir(int dir, const char *name)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(dir, name, flags);
    if (fd < 0 && errno == EACCES) {
        open_up(dir, name);
        fd = openat(dir, name, flags);
    }
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        close_fd(&fd);
    return d;
}

static const char *next_name(struct jobs_keeper *k, DIR *dir)
{
    const struct dirent *e = NULL;
    while (!atomic_load(&k->is_stopped) && (e = readdir(dir)) &&
           (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0))
        ;
    return e && !atomic_load(&k->is_stopped) ? e->d_name : NULL;
}

/* Empties the folder NAME in the trash. Returns how many of its entries were removed, or moved up
 * into the trash. */
static unsigned empty_folder(struct jobs_keeper *k, const char *name)
{
    const char *entry;
    unsigned count = 0;
    DIR *dir = open_dir(k->trash_fd, name);
    while (dir && (entry = next_name(k, dir)))
        count += unlinkat(dirfd(dir), entry, 0) == 0 || move_to_trash(k, dirfd(dir), entry) == 0;
    if (dir)
        closedir(dir);
    return count + (unlinkat(k->trash_fd, name, AT_REMOVEDIR) == 0);
}

/* Repeats passes over the trash until nothing more can be removed. */
static void empty_trash(struct jobs_keeper *k)
{
    unsigned removed;
    do {
        const char *name;
        DIR *dir = open_dir(k->trash_fd, ".");
        removed = 0;
        k->has_left = !dir;
        while (dir && (name = next_name(k, dir))) {
            k->has_left = true;
            removed += unlinkat(k->trash_fd, name, 0) == 0 || empty_folder(k, name) > 0;
        }
        if (dir)
            closedir(dir);
    } while (removed > 0);
}

static uint64_t folder_bytes(struct jobs_keeper *k, int dir, const char *name, int depth)
{
    struct stat st;
    const char *entry;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    uint64_t bytes = d && fstat(fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
    while (d && (entry = next_name(k, d))) {
        if (fstatat(fd, entry, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (!S_ISDIR(st.st_mode))
            bytes += (uint64_t)st.st_blocks * 512;
        else if (depth < DEPTH_MAX)
            bytes += folder_bytes(k, fd, entry, depth + 1);
    }
    if (d)
        closedir(d);
    else
        close_fd(&fd);
    return bytes;
}

static void keeper_run(void *user)
{
    struct jobs_keeper *k = user;
    k->removal_result = k->removal.id ? put_folder(k) : 0;
    if (k->trash_fd < 0)
        (void)open_trash(k);
    empty_trash(k);
    for (size_t i = 0; k->is_measuring && i < k->folder_count; i++) {
        struct kept_folder *f = &k->folders[i];
        AUTO_CLOSE int fd = executor_open_folder(k->runs, &f->folder);
        f->bytes = fd < 0 ? 0 : folder_bytes(k, fd, ".", 0);
    }
}

/* ---- the store's age ---- */

static const char age_key[] = "age_s"; /* name of the counter that stores the age of the store */

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

/* ---- choosing ---- */

static void take_row(struct kept_folder *ret, const struct store_job *row)
{
    *ret = (struct kept_folder){.id = row->id};
    jobs_row_folder(row, &ret->folder);
}

static int add_folder(void *user, const struct store_job *row)
{
    struct jobs_keeper *k = user;
    if (!row->run_dir)
        return 0;
    if (!ARRAY_ROOM(k->folders, k->folder_count, k->folder_cap))
        return 1;
    take_row(&k->folders[k->folder_count++], row);
    return 0;
}

static bool is_measure_due(const struct jobs_keeper *k, uint64_t now_ns)
{
    return k->j->options.keep.bytes && k->is_changed &&
           (!k->is_measured || now_ns - k->measured_ns >= MEASURE_S * NS_PER_S);
}

static int choose(void *user, const struct store_job *row)
{
    struct jobs_keeper *k = user;
    /* the job is still in memory, because its end was not published yet */
    if (jobs_find(k->j, row->id))
        return 0;
    take_row(&k->removal, row);
    return 1;
}

/* Chooses the oldest of the jobs that ended at least AGED_NS ago; 0 means any ended job. */
static void choose_oldest(struct jobs_keeper *k, uint64_t aged_ns)
{
    const uint64_t age_ns = jobs_age_ns(k->j);
    const struct store_filter filter = {.states = JOB_FINAL,
                                        .oldest_first = true,
                                        .ended_by_age_ns = aged_ns ? age_ns - aged_ns : 0};
    if (age_ns > aged_ns)
        store_list(k->j->store, &filter, choose, k, NULL);
}

/* Sets k->removal to the job to remove next, if there is one. */
static void choose_next(struct jobs_keeper *k)
{
    const struct jobs_keep *keep = &k->j->options.keep;
    uint64_t count[JOB_STATES], ended = 0;
    store_count(k->j->store, count);
    for (unsigned i = 0; i < JOB_STATES; i++)
        ended += job_state_is_final((enum job_state)i) ? count[i] : 0;
    if ((keep->count && ended > keep->count) ||
        (keep->bytes && k->is_measured && k->bytes > keep->bytes))
        choose_oldest(k, 0);
    if (!k->removal.id && keep->age_ns)
        choose_oldest(k, keep->age_ns);
}

/* ---- removing ---- */

/* Removes the row of a job whose folder is already in the trash. This order is safe: if the server
 * exits in between, the next server removes the row. A folder without a row would stay for ever. */
static int remove_job(struct jobs_keeper *k, struct err *err)
{
    const int64_t id = k->removal.id;
    k->removal.id = 0;
    if (k->removal_result < 0)
        return err_set(err, k->removal_result, "cannot move %s: %s", k->removal.folder.name,
                       strerror(-k->removal_result));
    int r = store_remove(k->j->store, id, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < k->folder_count; i++) {
        if (k->folders[i].id == id)
            k->bytes -= k->folders[i].bytes;
    }
    jobs_publish_removed(k->j, id);
    return 0;
}

static void keeper_done(void *user);
static void keeper_free(void *user);

/* Handles the results of the last task, and starts the next task if there is more to do. Returns 1
 * if a task runs, 0 if not, or -errno. */
static int keep_some(struct jobs_keeper *k, uint64_t now_ns, struct err *err)
{
    static const struct task_kind kind = {keeper_run, keeper_done, keeper_free};
    if (k->task)
        return 1;
    if (k->is_measuring) {
        k->is_measuring = false;
        k->is_measured = true;
        k->bytes = 0;
        for (size_t i = 0; i < k->folder_count; i++)
            k->bytes += k->folders[i].bytes;
    }
    int r = k->removal.id ? remove_job(k, err) : 0;
    if (r < 0)
        return r;
    choose_next(k);
    bool is_clean_due = k->cleaned_ns == 0 /* an earlier server may have left trash behind */ ||
                        (k->has_left && now_ns - k->cleaned_ns >= RETRY_S * NS_PER_S);
    if (!k->removal.id && is_measure_due(k, now_ns)) {
        k->is_changed = false;
        k->is_measuring = true;
        k->measured_ns = now_ns;
        k->folder_count = 0;
        store_list(k->j->store, &(struct store_filter){0}, add_folder, k, NULL);
    }
    if (k->removal.id || k->is_measuring || is_clean_due) {
        k->cleaned_ns = now_ns;
        r = workers_start(k->j->workers, &kind, 0, k, &k->task);
        if (r == 0)
            return 1;
        k->removal.id = 0;
        k->is_measuring = false;
        return err_set(err, r, "cannot start a thread: %s", strerror(-r));
    }
    if (k->has_left)
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

static void keeper_done(void *user)
{
    struct jobs_keeper *k = user;
    k->task = NULL;
    sleep_until(k, clock_mono_ns());
}

/* Called at the end of each task. Frees the keeper if it was closed during the task. */
static void keeper_free(void *user)
{
    struct jobs_keeper *k = user;
    if (!k->is_closed)
        return;
    free(k->folders);
    close_fd(&k->trash_fd);
    free(k);
}

int jobs_keeper_new(struct jobs *j, struct jobs_keeper **ret, struct err *err)
{
    struct jobs_keeper *k = calloc(1, sizeof *k);
    if (!k)
        return err_set(err, -ENOMEM, "out of memory");
    *k = (struct jobs_keeper){.j = j, .runs = j->runs, .trash_fd = -1, .is_changed = true};
    k->due_ns = UINT64_MAX / 2;
    int r = read_age(j, err);
    if (r == 0) {
        r = runs_folder_is_open(j->runs) ? open_trash(k) : 0;
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
    atomic_store(&k->is_stopped, true);
    k->is_closed = true;
    if (k->task)
        task_cancel(k->task);
    else
        keeper_free(k);
}

void jobs_keeper_wake(struct jobs_keeper *k)
{
    uint64_t at_ns = clock_mono_ns() + WAKE_MS * NS_PER_MS;
    k->is_changed = true;
    if (at_ns < k->due_ns)
        sleep_until(k, at_ns);
}
