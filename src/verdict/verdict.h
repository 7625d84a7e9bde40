/* One series of memory readings in, one verdict out: is it leaking, filling, warmed up, or not yet
 * known? Pure: no I/O, no clock, no allocation. The same code judges a live process, a recording,
 * a table by step, a tree, a GPU and a call site. The mathematics is in docs/verdict.md. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "verdict/envelope.h"
#include "verdict/mark.h"

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

enum verdict_leak { VERDICT_LEAK_UNKNOWN = 0, VERDICT_LEAK_NO, VERDICT_LEAK_YES };
/* Yes for leaking and stepping, unknown for filling and undecided, no for the rest. */
enum verdict_leak verdict_word_leak(enum verdict_word word);

/* Zero means the default in brackets. */
struct verdict_options {
    double alpha;             /* false alarms of a whole run, (0, 1) [0.01] */
    double warmup_s;          /* growth from the start without an epoch's end is not judged before
                               * it has lasted this long [840] */
    uint64_t warmup_steps;    /* the same for a table by step alone [200] */
    double material_fraction; /* growth below this part of the floor is noise [0.025] */
    double late_rise;         /* a late rise is judged at once when it is this part of the floor;
                               * smaller ones when they have lasted half as long as what came
                               * before [0.2] */
    uint64_t steps_per_epoch; /* if the user gave it; marks may still report it */
    bool zero_is_memory;      /* else a reading of 0 means the process is gone and is left out */
    bool is_held;             /* readings are what a program holds, not what the kernel has given
                               * it: nothing in them is an allocator's */
};

/* An evaluation, a checkpoint or an epoch's end, with the floor on either side of it. */
struct verdict_event {
    double step;
    float t_s; /* on the series' own running clock */
    /* Bytes. Before it: the lowest of the three last step ends, and the last one. After it, up to
     * the next event of its kind: the first one, the lowest from the second to the fourth one, and
     * to the eighth. What comes with an event may still be under way at the first, and some of it
     * be gone soon. */
    float before_low, before_last;
    float after_first, after_low, after_lowest;
    uint32_t reading; /* how many step ends had been read before it */
    uint8_t kind;
    uint8_t after_n; /* step ends read after it, up to eight */
    uint8_t sampled; /* the series' samples when it came, the low byte */
    bool has_before;
};

enum { VERDICT_EVENTS = 40, VERDICT_RECENT = 3 };

struct verdict_clock {
    int64_t first_ns, last_ns; /* as given */
    double gap_s;              /* taken out of the running clock */
    double typical_dt_s;       /* running median of the sampling interval */
    uint64_t dropped_back, gaps;
    uint64_t back_run; /* samples in a row that were older than the one before */
};

/* Caller-allocated; copy it freely, it holds no pointers. All fields are private. */
struct verdict_series {
    struct verdict_options options;
    struct envelope by_time; /* x: seconds of running time since the first sample */
    struct envelope by_step; /* x: steps; y: the reading at the end of a step */
    struct verdict_event events[VERDICT_EVENTS];
    uint32_t n_events;
    uint32_t events_seen[VERDICT_MARK_KINDS]; /* all, also those no longer in events[] */
    struct verdict_clock clock;
    double last_bytes;
    double min_bytes, peak_bytes, mean_bytes; /* of judged samples */
    double recent[VERDICT_RECENT];            /* the last values at step ends */
    uint64_t samples, zeros;
    uint64_t marks_no_step; /* marks that needed a step and had none */
    double first_bytes;
    double begin_s, begin_step, end_s;
    double worked_s; /* 0: unknown */
    double first_epoch_step, first_epoch_s;
    double last_step, last_step_s, first_step, first_step_s;
    double step_sampled; /* the series' sample count at the last step taken */
    uint64_t steps_per_epoch, examples, batch, max_steps;
    uint32_t n_recent, steps_taken;
    bool has_begin, has_end, has_first_epoch, has_step, step_only, is_over;
};
_Static_assert(sizeof(struct verdict_series) <= 8192, "a series must fit in 8 KB");

/* Starts an empty series. OPTIONS may be NULL. Returns 0, or -EINVAL for an option out of range. */
int verdict_init(struct verdict_series *v, const struct verdict_options *options);

/* One reading at T_NS on any clock that goes forward. A reading older than the last is counted and
 * dropped (eight in a row: the clock was set back, and the series goes on from there); a gap much
 * longer than the sampling interval is taken out of the running time. Never fails. */
void verdict_update(struct verdict_series *v, int64_t t_ns, uint64_t bytes);

/* One reading of a table that has steps and no time. Do not mix with verdict_update. */
void verdict_update_step(struct verdict_series *v, uint64_t step, uint64_t bytes);

/* One mark at T_NS, on the clock of verdict_update; call it in time order with the samples. For a
 * table by step alone T_NS is not looked at. */
void verdict_mark(struct verdict_series *v, int64_t t_ns, const struct verdict_mark *mark);

/* The job is over and ended by itself: no more evidence will ever come. Growth from the
 * start, which would be waited for, is then called where it lasted, even, to the end. Not for a job
 * that was stopped, killed or cut off: its growth may have been about to end. */
void verdict_job_over(struct verdict_series *v);

/* Of such a job it is known that the process was still at work at T_NS, on the clock of
 * verdict_update, and was not for much longer: what was read later was its exit, and is not looked
 * at. */
void verdict_work_ended(struct verdict_series *v, int64_t t_ns);

/* What the series is judged against; known false: no time to the limit is given. */
struct verdict_limit {
    bool known;
    uint64_t limit_bytes; /* the effective limit */
    uint64_t other_bytes; /* already used by others under the same limit */
};

struct verdict_interval {
    bool known;
    double value, low, high; /* high may be INFINITY */
};

enum verdict_boundary {
    VERDICT_AT_NONE = 0, /* no boundary is known near it */
    VERDICT_AT_STEP,
    VERDICT_AT_FIRST_EPOCH,
    VERDICT_AT_EPOCH,
    VERDICT_AT_EVAL,
    VERDICT_AT_SAVE,
    VERDICT_AT_BEGIN,
    VERDICT_BOUNDARIES
};
/* "step", "the end of the first epoch", "an evaluation", … */
const char *verdict_boundary_name(enum verdict_boundary at);

/* Coded evidence: the numbers, and verdict_evidence_text writes the sentence.
 * X(symbol): the comment lists the contents of value[]. */
enum verdict_evidence_code {
    VERDICT_EVIDENCE_NONE = 0,
    VERDICT_SAID_EMPTY,      /* - */
    VERDICT_SAID_FEW,        /* samples, needed */
    VERDICT_SAID_FLOOR,      /* first, last bytes, growth fraction */
    VERDICT_SAID_FLAT,       /* residual growth bytes, seconds or steps it was flat for, by_step */
    VERDICT_SAID_ENDED,      /* x at which growth ended, by_step, boundary, growth bytes */
    VERDICT_SAID_RESIDUAL,   /* residual slope per minute or step, by_step, growth since bytes */
    VERDICT_SAID_GROWS,      /* duration, by_step, growth bytes */
    VERDICT_SAID_SATURATING, /* -  a curve that ends fits as well as one that does not */
    VERDICT_SAID_SLOWING,    /* slope of the last third over the mean slope */
    VERDICT_SAID_FIRST_PASS, /* step, pass end step, bytes per step, bytes per example or 0 */
    VERDICT_SAID_CEILING,    /* ceiling bytes, limit bytes or 0, fits 0/1 */
    VERDICT_SAID_PASS_UNKNOWN,    /* step, bytes per step */
    VERDICT_SAID_PASS_JUST_ENDED, /* pass end step, step at which it is known */
    VERDICT_SAID_BEYOND_PASS,     /* pass end step, growth since bytes, slope ratio */
    VERDICT_SAID_TAIL,            /* growth since the pass over what its pace would have brought */
    VERDICT_SAID_EARLY,           /* grown for, must last: seconds or steps, by_step */
    VERDICT_SAID_LATE,            /* onset x, duration, growth fraction, by_step */
    VERDICT_SAID_GIVEN_BACK,      /* rise now, largest give-back seen */
    VERDICT_SAID_EVENT_STEPS,     /* mark kind, events, jump bytes each, share of growth */
    VERDICT_SAID_SPIKES,          /* spike height bytes, how often */
    VERDICT_SAID_NOISE,           /* growth, noise */
    VERDICT_SAID_MARTINGALE,      /* wealth, threshold */
    VERDICT_SAID_NO_MARKS,        /* - */
    VERDICT_SAID_NO_EPOCH,        /* - */
    VERDICT_SAID_GAPS,            /* count, seconds */
    VERDICT_SAID_BACKWARDS,       /* count */
    VERDICT_SAID_OVER,            /* steps are known 0/1 */
    VERDICT_SAID_LIVE_GROWS,  /* live rate per step or minute, by_step, over that of RSS, confidence
                               */
    VERDICT_SAID_LIVE_HIDDEN, /* live rate per step or minute, by_step, growth bytes, confidence */
    VERDICT_SAID_SPARE,       /* growth of resident memory, of what is in use, of what is spare */
    VERDICT_SAID_HELD_GROWS,  /* held rate per minute, growth bytes, that of resident memory */
    VERDICT_SAID_HELD_ALONE,  /* held growth bytes, that of resident memory */
    VERDICT_SAID_PASSES_RISE, /* bytes from one pass to the next, passes, given back within each
                               * pass, spread */
    VERDICT_SAID_PASSES_SAME, /* passes, bytes given back within each */
    VERDICT_SAID_PEAK_OOM,    /* headroom bytes, eta low, eta high (s or steps), by_step */
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
    double confidence; /* 0 to 1 that LEAK, or the word where leak is unknown, is right */
    bool alarm;        /* leak, and the anytime-valid test agrees at OPTIONS.alpha */
    double log_wealth; /* of that test, natural logarithm */
    struct verdict_interval rate_bytes_per_min;
    struct verdict_interval rate_bytes_per_step;
    bool has_floor;
    double floor_first_bytes, floor_last_bytes;
    double highest_floor_bytes;    /* that a slot of readings never fell below */
    double peak_bytes, mean_bytes; /* of the samples since training began */
    struct {
        bool known, has_t, has_step;
        double t_s; /* seconds after the first sample, as the caller's clock counts */
        uint64_t step;
        enum verdict_boundary at;
    } growth_ended;
    struct {
        bool known, has_ceiling, has_step, has_t;
        double ceiling_bytes;
        uint64_t decided_at_step;
        double decided_at_s;      /* seconds after the first sample */
        bool has_fits, fits;      /* the ceiling against the limit */
        double bytes_per_example; /* 0: not known */
    } forecast;
    struct {
        bool known, has_t, has_step;
        double limit_bytes;
        double eta_s_low, eta_s_high;       /* from the last sample; high may be INFINITY */
        double eta_step_low, eta_step_high; /* steps from the last one */
    } oom;
    double onset_s; /* leaking: when the growth began, seconds after the first sample */
    enum verdict_mark_kind event; /* stepping: what it is tied to */
    uint64_t samples;
    uint32_t n_evidence;
    struct verdict_evidence evidence[VERDICT_EVIDENCE];
};

/* Judges what is known so far; V is not changed and may go on. LIMIT may be NULL. */
void verdict_judge(const struct verdict_series *v, const struct verdict_limit *limit,
                   struct verdict_result *ret);

/* Writes the sentence for E, NUL-terminated, cut at SIZE. Returns OUT. */
char *verdict_evidence_text(char *out, size_t size, const struct verdict_evidence *e);

/* Where RESIDENT, the verdict on a process's memory, is open though it grows, and LIVE, that
 * on its live heap, is a leak that explains most of that growth: memory in use keeps growing, which
 * is what a leak is, and RESIDENT becomes one. So it does where it was decided to be none and
 * stands while LIVE has grown by much of it, into what the process held already. Nothing else is
 * changed: what is not in the live heap (small objects of Python, mappings) may still leak. */
void verdict_apply_live(struct verdict_result *resident, const struct verdict_result *live);

/* Of a leak of V, if most of its growth came at evaluations, checkpoints or epoch ends: R is
 * stepping instead of leaking. verdict_judge of V does this itself; not where R was taken from
 * another series. */
void verdict_name_leak(struct verdict_result *r, const struct verdict_series *v);

/* Where R, the verdict on RESIDENT, is undecided though it rises, and LIVE, that on IN_USE, says
 * that what malloc has handed out stands: if that and SPARE, what malloc has got back and keeps,
 * are most of the rise, nothing that is in use grows any more and R has plateaued. */
void verdict_apply_free(struct verdict_result *r, const struct verdict_series *resident,
                        const struct verdict_result *live, const struct verdict_series *in_use,
                        const struct verdict_series *spare);

/* What a program held, by the samples of the profiler, grew evenly to the end of its job. */
struct verdict_held {
    int64_t from_ns;     /* since when, on the clock of verdict_update */
    double growth_bytes; /* since then */
    double chance_bytes; /* one deviation of that: samples are drawn by chance */
    struct verdict_result result;
};

/* The same of a job that is over: R is the verdict on RESIDENT. Nothing changes where the job was
 * not much longer than a pass that is known.
 * Memory that was asked for and never touched is held without being resident: where resident memory
 * stands and has risen by a small part of HELD alone, it is not known which it is; nor where it
 * stands and HELD is not far beyond chance. */
void verdict_apply_held(struct verdict_result *r, const struct verdict_series *resident,
                        const struct verdict_held *held);

/* R, the verdict on WHOLE, the memory of a tree with every page counted once, is a leak, and SUMMED
 * is the same with each process counted in full. Pages that several share, and that each gets for
 * itself by writing to them, add to the whole alone, and come to an end when all are copied: R is
 * undecided where SUMMED does not grow along. */
void verdict_check_unshared(struct verdict_result *r, const struct verdict_series *whole,
                            const struct verdict_series *summed);

/* One process of a tree, for verdict_tree_judge. */
struct verdict_member {
    const struct verdict_result *result;
    int role; /* any number; equal numbers are summed up together in the costs */
    double rss_bytes;
    bool has_unique, alive;
    bool is_replacement; /* it replaces others, and will be replaced: it does not count */
    double unique_bytes;
};

/* What the flat processes of one role cost together. */
struct verdict_cost {
    int role;
    size_t count;
    double rss_bytes, unique_bytes; /* unique: of those where it is known */
    size_t unique_known;
};

enum { VERDICT_TREE_ROLES = 8 };
struct verdict_tree_result {
    enum verdict_word word;
    enum verdict_leak leak;
    double confidence;
    bool has_grower;
    size_t grower;  /* index of the member that grows fastest, where one does */
    size_t growers; /* how many leak or fill */
    struct verdict_cost flat[VERDICT_TREE_ROLES]; /* large but flat: overhead; costliest first */
    size_t n_flat;
};

/* The verdict on a tree from its N members and, where there is one, the result of the series of the
 * whole tree's memory (WHOLE, may be NULL). The order of the members does not matter; of equals the
 * first is named. */
void verdict_tree_judge(const struct verdict_member *members, size_t n,
                        const struct verdict_result *whole, struct verdict_tree_result *ret);

/* R is the verdict on member GROWER of N, which leaks: the rates of the others that leak too are
 * added to it, as far as what they hold is their own, and the limit is reached the sooner. */
void verdict_tree_sum(const struct verdict_member *members, size_t n, size_t grower,
                      struct verdict_result *r);
