/* A mark (step, epoch, evaluation, …) as the verdict uses it. src/mark creates marks from messages
 * sent by the job. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum verdict_mark_kind {
    VERDICT_MARK_BEGIN = 0, /* training starts; samples before this mark are start-up */
    VERDICT_MARK_STEP,      /* the end of an optimizer step */
    VERDICT_MARK_SUBSTEP,   /* a micro-batch, which is counted but not judged */
    VERDICT_MARK_EVAL,      /* the end of an evaluation */
    VERDICT_MARK_SAVE,      /* a checkpoint was written */
    VERDICT_MARK_EPOCH,     /* the end of an epoch */
    VERDICT_MARK_END,       /* training is over; later samples are not judged */
    VERDICT_MARK_KINDS
};
const char *verdict_mark_name(enum verdict_mark_kind kind);

struct verdict_mark {
    enum verdict_mark_kind kind;
    bool has_step;
    uint64_t step;            /* number of steps completed when the mark was sent */
    uint64_t steps_per_epoch; /* 0 if unknown */
    uint64_t examples;        /* number of examples in one epoch, or 0 if unknown */
    /* examples per step over all ranks and accumulation steps, or 0 if unknown */
    uint64_t batch;
    uint64_t max_steps; /* 0 if unknown */
};
