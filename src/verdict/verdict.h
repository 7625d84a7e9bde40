/* Turns one series of memory readings into one verdict, such as leaking, filling or plateaued. Does
 * no I/O, reads no clock and allocates nothing. The same code judges a live process, a recording, a
 * table by step, a process tree, a GPU and a call site. docs/internals/verdict.md has the
 * mathematics. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "verdict/envelope.h"
#include "verdict/mark.h"
#include "verdict/model.h"

enum verdict_word {
    VERDICT_UNDECIDED = 0,
    VERDICT_STABLE,
    VERDICT_SPIKING,
    VERDICT_PLATEAUED,
    VERDICT_FILLING,
    VERDICT_STEPPING,
    VERDICT_LEAKING,
    VERDICT_WORDS
};
const char *verdict_word_name(enum verdict_word word);

/* Returns the severity of a word; larger is worse. */
int verdict_word_severity(enum verdict_word word);

enum verdict_leak { VERDICT_LEAK_UNKNOWN = 0, VERDICT_LEAK_NO, VERDICT_LEAK_YES };
/* Returns yes for leaking and stepping, no for stable, spiking and plateaued, and unknown for
 * the other words. */
enum verdict_leak verdict_word_leak(enum verdict_word word);

/* Options of a series. Zero selects the default in brackets. */
struct verdict_options {
    double alpha; /* probability of a false alarm over a whole run, at most 0.5 [0.01] */
    /* Growth since the start is judged after this many seconds if no epoch end is known; after
     * twice as many if steps are known. [840] */
    double warmup_s;
    /* Replaces warmup_s for a table without times, in steps. [200] */
    uint64_t warmup_steps;
    double material_fraction; /* growth below this fraction of the baseline is noise [0.025] */
    /* If a late rise is larger than this fraction of the baseline, it can be judged early.
     * Otherwise it is judged after it has lasted half as long as the time before it. [0.2] */
    double late_rise;
    uint64_t steps_per_epoch; /* number of steps per epoch set by the user; marks may replace it */
    /* True if a reading of 0 is valid; if false, 0 means that the process has exited. */
    bool zero_is_memory;
};

/* An evaluation, a checkpoint or an epoch end, with the memory before and after it. */
struct verdict_event {
    double step;
    float t_s; /* running time of the series in seconds */
    /* Bytes at step ends. Before the event: the lowest of the last three, and the last one.
     * After the event, until the next one of its kind: the first, the lowest of the second to
     * fourth, and the lowest of the second to eighth (the first as long as there is no second).
     * Several are stored because the event may still be in progress at the first step end, and
     * some of its memory is freed soon after. */
    float before_low, before_last;
    float after_first, after_low, after_lowest;
    uint32_t reading; /* number of readings at step ends before the event */
    uint8_t kind;
    uint8_t after_n; /* number of readings at step ends after the event, at most eight */
    uint8_t sampled; /* sample count of the series at the event, modulo 256 */
    bool has_before;
};

enum { VERDICT_EVENTS = 40, VERDICT_RECENT = 3 };

struct verdict_clock {
    int64_t first_ns, last_ns; /* first and last sample on the caller's clock */
    double gap_s;              /* total length of gaps in seconds, excluded from the running time */
    double typical_dt_s;       /* running median of the sampling interval */
    uint64_t dropped_back, gaps;
    uint64_t back_run; /* number of consecutive samples older than their predecessor */
};

/* The caller allocates this struct, which contains no pointers and may be copied. All fields are
 * private. */
struct verdict_series {
    struct verdict_options options;
    struct envelope by_time; /* x is the running time in seconds since the first sample */
    struct envelope by_step; /* x is the step number, y the reading at the end of the step */
    struct verdict_event events[VERDICT_EVENTS];
    uint32_t n_events;
    /* number of events of each kind, including those no longer in events[] */
    uint32_t events_seen[VERDICT_MARK_KINDS];
    struct verdict_clock clock;
    double last_bytes;
    /* Lowest, highest and mean reading over all judged samples. */
    double min_bytes, peak_bytes, mean_bytes;
    double recent[VERDICT_RECENT]; /* the newest readings at step ends */
    uint64_t samples;
    double begin_s, begin_step;
    double worked_s; /* running time in seconds at which work ended, or 0 if unknown */
    double first_epoch_step, first_epoch_s;
    double last_step, last_step_s, first_step, first_step_s;
    double step_sampled; /* number of samples at the time of the last recorded step */
    uint64_t steps_per_epoch, examples, batch, max_steps;
    uint32_t n_recent, steps_taken;
    bool has_begin, has_end, has_first_epoch, has_step, step_only, is_over;
};
_Static_assert(sizeof(struct verdict_series) <= 8192, "a series must fit in 8 KB");

/* Starts an empty series. OPTIONS may be NULL. Returns 0, or -EINVAL for an option out of range. */
int verdict_init(struct verdict_series *v, const struct verdict_options *options);

/* Adds a reading at T_NS, on any clock that moves forward. A reading older than the last one is
 * counted and dropped. After eight older readings in a row, the clock is assumed to have been set
 * back, and the series continues from the new time. A gap much longer than the sampling interval is
 * excluded from the running time. Never fails. */
void verdict_update(struct verdict_series *v, int64_t t_ns, uint64_t bytes);

/* Adds a reading of a table that has steps but no times. Do not mix with verdict_update. */
void verdict_update_step(struct verdict_series *v, uint64_t step, uint64_t bytes);

/* Adds a mark at T_NS, on the clock of verdict_update, in time order with the samples. T_NS is
 * ignored for a table by step. */
void verdict_mark(struct verdict_series *v, int64_t t_ns, const struct verdict_mark *mark);

/* Records that the job ended by itself. Undecided growth since the start is then decided if it was
 * steady and lasted to the end, because no more evidence will come. Do not call this for a job that
 * was stopped, killed or cut off: its growth may have been about to end. */
void verdict_job_over(struct verdict_series *v);

/* For a job that ended by itself: records that its process was still working at T_NS, on the clock
 * of verdict_update, and exited soon after. Later samples are part of the exit and are ignored. */
void verdict_work_ended(struct verdict_series *v, int64_t t_ns);

/* The limit that the series is compared with. If it is unknown, the time to the limit is not
 * forecast. */
struct verdict_limit {
    bool known;
    uint64_t limit_bytes; /* effective limit in bytes */
    uint64_t other_bytes; /* memory of other processes under the same limit, in bytes */
};

struct verdict_interval {
    bool known;
    double value, low, high; /* an estimate and its interval; high may be INFINITY */
};

enum verdict_boundary {
    VERDICT_AT_NONE = 0, /* growth did not end near a known boundary */
    VERDICT_AT_STEP,
    VERDICT_AT_FIRST_EPOCH,
    VERDICT_AT_EPOCH,
    VERDICT_AT_EVAL,
    VERDICT_AT_SAVE,
    VERDICT_AT_BEGIN,
    VERDICT_BOUNDARIES
};
/* Returns the boundary's name: "step", "the end of the first epoch", "an evaluation", … */
const char *verdict_boundary_name(enum verdict_boundary at);

/* Evidence is stored as a code with values; verdict_evidence_text writes the sentence. The comment
 * at each code lists value[0], value[1] and so on, in this order. */
enum verdict_evidence_code {
    VERDICT_EVIDENCE_NONE = 0,
    VERDICT_SAID_EMPTY, /* value[] is unused */
    VERDICT_SAID_FEW,   /* value[]: number of samples, number required */
    /* value[]: baseline at the start and now in bytes, growth as a fraction of the baseline */
    VERDICT_SAID_BASELINE,
    VERDICT_SAID_FLAT,  /* value[]: residual growth in bytes, length of the flat stretch, by_step */
    VERDICT_SAID_ENDED, /* value[]: x at which growth ended, by_step, boundary, growth in bytes */
    /* value[]: residual slope per minute or step, by_step, growth since then in bytes */
    VERDICT_SAID_RESIDUAL,
    VERDICT_SAID_GROWS, /* value[]: duration of the growth, by_step, growth in bytes */
    /* value[] is unused; growth that ends and growth that continues fit the samples equally well */
    VERDICT_SAID_SATURATING,
    VERDICT_SAID_SLOWING, /* value[]: slope of the last third relative to the mean slope */
    /* value[]: step, step at which the epoch ends, bytes per step, bytes per example or 0 */
    VERDICT_SAID_FIRST_EPOCH,
    /* value[]: highest level expected in bytes, limit in bytes or 0, 1 if it fits */
    VERDICT_SAID_CEILING,
    VERDICT_SAID_EPOCH_UNKNOWN, /* value[]: current step, bytes per step */
    /* value[]: end of the first epoch, x at which the verdict will be known, by_step */
    VERDICT_SAID_EPOCH_JUST_ENDED,
    /* value[]: step at which the epoch ended, growth since then in bytes, slope ratio */
    VERDICT_SAID_AFTER_EPOCH,
    /* value[]: growth since the epoch relative to the growth expected at the epoch's rate */
    VERDICT_SAID_TAIL,
    /* value[]: duration of the growth and required duration (seconds or steps), by_step */
    VERDICT_SAID_EARLY,
    VERDICT_SAID_LATE, /* value[]: x at which growth began, duration, growth fraction, by_step */
    /* value[]: kind of mark, number of events, bytes per jump, share of growth */
    VERDICT_SAID_EVENT_STEPS,
    VERDICT_SAID_SPIKES,     /* value[]: height of the spikes in bytes, number of spikes */
    VERDICT_SAID_NOISE,      /* value[]: growth and noise in bytes */
    VERDICT_SAID_MARTINGALE, /* value[]: log wealth, alarm threshold */
    VERDICT_SAID_NO_MARKS,   /* value[] is unused */
    VERDICT_SAID_NO_EPOCH,   /* value[] is unused */
    VERDICT_SAID_GAPS,       /* value[]: number of gaps, seconds in total */
    VERDICT_SAID_BACKWARDS,  /* value[]: number of excluded samples */
    VERDICT_SAID_OVER,       /* value[0] is 1 if steps are known, else 0 */
    /* value[]: growth rate of the live heap per step or minute, by_step, ratio to the rate of RSS,
     * confidence */
    VERDICT_SAID_LIVE_GROWS,
    /* value[]: growth rate of the live heap per step or minute, by_step, growth in bytes,
     * confidence */
    VERDICT_SAID_LIVE_HIDDEN,
    /* value[]: growth of resident memory, of the live heap and of the free heap, in bytes */
    VERDICT_SAID_SPARE,
    /* value[]: segment number, its word, rate per step or minute or 0, by_step */
    VERDICT_SAID_SEGMENT,
    VERDICT_SAID_DETECTABLE, /* value[]: smallest detectable rate per step or minute, by_step */
    /* value[]: probability of a leak, indexes of the two strongest features or -1, 1 if the verdict
     * is not a leak */
    VERDICT_SAID_WEIGHED,
    /* value[]: growth from one epoch to the next in bytes, number of epochs, bytes released within
     * each epoch, spread */
    VERDICT_SAID_EPOCHS_RISE,
    VERDICT_SAID_EPOCHS_EQUAL, /* value[]: number of epochs, bytes released within each epoch */
    /* value[]: headroom in bytes, low and high estimate of the time to the limit (s or steps),
     * by_step */
    VERDICT_SAID_PEAK_OOM,
    /* value[]: growth rate of a rank, by_step, median of all ranks, number of ranks */
    VERDICT_SAID_PEERS,
    /* value[]: number of entries of a container, maximum number of entries, share of the growth
       that the container explains, further growth in bytes until the container is full (0 if the
       container has stopped growing). For an array, the entries are the bytes written so far */
    VERDICT_SAID_LIMITED,
    VERDICT_EVIDENCE_CODES
};
enum { VERDICT_EVIDENCE = 10, VERDICT_TEXT_MAX = 240 };
struct verdict_evidence {
    enum verdict_evidence_code code;
    double value[4];
};

struct verdict_result {
    enum verdict_word word;
    enum verdict_leak leak;
    /* Probability, 0 to 1, that LEAK is right; if LEAK is unknown, that the word is right. */
    double confidence;
    /* True if the shape of resident memory shows a leak of a running job. The word may then still
     * be undecided, because other evidence does not confirm the leak. */
    bool shape_leaks;
    bool has_probability;              /* true if the model has computed PROBABILITY */
    double probability;                /* probability that the series leaks */
    double contributions[MODEL_COUNT]; /* contribution of each feature to the log-odds of a leak */
    /* True if the series leaks and the anytime-valid test agrees, at the false-alarm probability
     * ALPHA. */
    bool alarm;
    double log_wealth; /* natural logarithm of the wealth of the anytime-valid test */
    struct verdict_interval rate_bytes_per_min;
    struct verdict_interval rate_bytes_per_step;
    bool has_floor;
    double floor_first_bytes, floor_last_bytes;
    double highest_floor_bytes;    /* highest block minimum in bytes */
    double peak_bytes, mean_bytes; /* highest and mean reading since training began */
    struct {
        bool known, has_t, has_step;
        double t_s; /* seconds after the first sample on the caller's clock */
        uint64_t step;
        enum verdict_boundary at;
    } growth_ended;
    struct {
        bool known, has_ceiling, has_step, has_t;
        double ceiling_bytes;
        uint64_t decided_at_step;
        double decided_at_s; /* time of the decision in seconds after the first sample */
        /* FITS is true if the highest expected level is below the limit. */
        bool has_fits, fits;
        /* True if growth ends when a container with a maximum number of entries is full. */
        bool is_limited;
        double bytes_per_example; /* 0 if unknown */
    } forecast;
    struct {
        bool known, has_t, has_step;
        double limit_bytes;
        /* Seconds from the last sample to the limit; high may be INFINITY. */
        double eta_s_low, eta_s_high;
        double eta_step_low, eta_step_high; /* steps from the last step to the limit */
    } oom;
    /* The smallest growth rate in bytes that would have been detected; 0 if there is a leak or that
     * rate is unknown. */
    double detectable_per_min, detectable_per_step;
    /* If leaking, the start of the growth in seconds after the first sample. */
    double onset_s;
    enum verdict_mark_kind event; /* if stepping, the kind of event at which memory grows */
    uint64_t samples;
    uint32_t n_evidence;
    struct verdict_evidence evidence[VERDICT_EVIDENCE];
};

/* Judges the samples so far. V is not changed and may receive more samples. LIMIT may be NULL. */
void verdict_judge(const struct verdict_series *v, const struct verdict_limit *limit,
                   struct verdict_result *ret);

void verdict_put_evidence_first(struct verdict_result *r, const struct verdict_evidence *e);
/* Writes the sentence for E, NUL-terminated, truncated to SIZE. Returns OUT. */
char *verdict_evidence_text(char *out, size_t size, const struct verdict_evidence *e);

/* Revises RESIDENT, the verdict on the resident memory of a process, using LIVE, the verdict on its
 * live heap. Undecided growth becomes a leak if the live heap leaks and explains most of it. Level
 * memory becomes a leak if the live heap grew by a large fraction of the resident memory, reusing
 * memory that was already resident. Otherwise RESIDENT stays as it is, because memory outside the
 * live heap (small Python objects, mappings) may leak as well. */
void verdict_apply_live(struct verdict_result *resident, const struct verdict_result *live);

/* If R is the verdict that V leaks: changes the word from leaking to stepping if most of the growth
 * occurred at evaluations, checkpoints or epoch ends. verdict_judge already does this. It must be
 * called separately only if R was copied from another series. */
void verdict_name_leak(struct verdict_result *r, const struct verdict_series *v);

/* Revises R, the verdict on the growing series RESIDENT, if malloc's statistics explain the growth.
 * This is so if LIVE, the verdict on malloc's live memory (IN_USE), is level, and IN_USE and
 * malloc's retained memory (SPARE) together account for most of the growth. An undecided R becomes
 * plateaued; a leak becomes undecided. */
void verdict_apply_free(struct verdict_result *r, const struct verdict_series *resident,
                        const struct verdict_result *live, const struct verdict_series *in_use,
                        const struct verdict_series *spare);

/* Returns the fraction of the growth of RESIDENT, 0 to 1, that is neither in use (IN_USE) nor
 * retained (SPARE) by malloc, for example in mappings. Returns 0 if unknown. */
double verdict_outside_heap(const struct verdict_series *resident,
                            const struct verdict_series *in_use,
                            const struct verdict_series *spare);

/* A container of the job that holds at most MOST entries, for example a deque with maxlen. For an
 * array, MOST is its size in bytes and ENTRIES is the number of bytes written so far. */
struct verdict_container {
    const struct verdict_series *bytes; /* estimated size of the container */
    double entries, most;
    bool is_array;
};
/* A container that explains most of the growth of memory. */
struct verdict_limited {
    double entries, most;
    double share;      /* fraction of the growth that the container explains */
    double left_bytes; /* estimated further growth until the container is full */
    double left_x;     /* estimated time until the container is full: steps if BY_STEP, else s */
    bool by_step;
    bool is_growing; /* false if the container is full or has stopped growing */
};
/* Returns true and sets RET if container C explains most of the growth of memory since C's first
 * reading, and little other memory has grown lately. The growth is that of the live heap LIVE or,
 * if LIVE is NULL, of RESIDENT, which also contains memory that the allocator retains. */
bool verdict_find_limited(const struct verdict_series *resident, const struct verdict_series *live,
                          const struct verdict_container *c, struct verdict_limited *ret);
/* Returns true if the container OTHER grew considerably in the last third of the time for which C
 * has readings. */
bool verdict_grows_beside(const struct verdict_container *c, const struct verdict_container *other);
/* Returns true if the memory judged by R will fit into LIMIT when the container is full. */
bool verdict_limited_fits(const struct verdict_result *r, const struct verdict_limit *limit,
                          const struct verdict_limited *l);
/* Revises R, a verdict on V that does not rule out a leak: R becomes filling, because growth ends
 * when the container of L is full. If the container has already stopped growing, R becomes
 * undecided until all growth has clearly ended. */
void verdict_set_limited(struct verdict_result *r, const struct verdict_series *v,
                         const struct verdict_limit *limit, const struct verdict_limited *l);

/* Sets word, leak and confidence of R, the verdict on V, from the probability in R. LEAK is what
 * this probability implies. In a running job, nothing changes unless LEAK is yes. BYTES_PER_S is
 * the rate of a leak that resident memory does not show, or 0 if unknown. IS_OUTSIDE means that the
 * growth is outside the heap: a low probability may then be due to missing evidence, and does not
 * rule out a leak. */
void verdict_settle(struct verdict_result *r, const struct verdict_series *v,
                    const struct verdict_limit *limit, enum verdict_leak leak, double bytes_per_s,
                    bool is_outside);
/* Makes R undecided if it is a leak, and stores in R that the shape of memory shows a leak. Call
 * this for a running job as long as the other evidence does not confirm a leak. */
void verdict_leave_open(struct verdict_result *r);
enum verdict_leak verdict_leak_of(double probability, bool is_over);
/* Returns true if the job ended so early that its growth may be that of a cache that fills in the
 * first epoch. */
bool verdict_may_be_first_epoch(const struct trend *resident);

/* Checks R, the verdict that WHOLE leaks, against SUMMED. WHOLE is the memory of a process tree
 * with every page counted once, SUMMED the sum over its processes. Writing to a shared page makes
 * the page private; only WHOLE grows then, until all shared pages are copied. If SUMMED does not
 * grow as well, R therefore becomes undecided. */
void verdict_check_unshared(struct verdict_result *r, const struct verdict_series *whole,
                            const struct verdict_series *summed);

/* One process of a tree, for verdict_tree_judge. */
struct verdict_member {
    const struct verdict_result *result;
    int role; /* any number; processes with the same role are reported together */
    double rss_bytes;
    bool has_unique, alive;
    /* True for a worker that will be replaced. Such workers are excluded from the verdict. */
    bool is_replacement;
    double unique_bytes;
};

/* Total memory of the flat processes of one role. */
struct verdict_cost {
    int role;
    size_t count;
    /* unique_bytes covers only processes whose unique memory is known. */
    double rss_bytes, unique_bytes;
    size_t unique_known;
};

enum { VERDICT_TREE_ROLES = 8 };
struct verdict_tree_result {
    enum verdict_word word;
    enum verdict_leak leak;
    double confidence;
    bool has_grower;
    size_t grower;  /* index of the fastest-growing process, if any grows */
    size_t growers; /* number of processes that leak or fill */
    /* Memory of flat processes by role, largest first. */
    struct verdict_cost flat[VERDICT_TREE_ROLES];
    size_t n_flat;
};

/* Judges a process tree from its N members, and from WHOLE, the verdict on the memory of the whole
 * tree, if it is not NULL. If two members are equal, the first one is reported; otherwise their
 * order does not matter. */
void verdict_tree_judge(const struct verdict_member *members, size_t n,
                        const struct verdict_result *whole, struct verdict_tree_result *ret);

/* For a tree that leaks because of the member with index GROWER, whose verdict is R. Adds the rates
 * of the other leaking members to R's rates, if their growth is unshared, and shortens the time to
 * the limit accordingly. */
void verdict_tree_sum(const struct verdict_member *members, size_t n, size_t grower,
                      struct verdict_result *r);
