/* A mark as verdicts are made of it. The step clock (src/mark) makes them from messages. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum verdict_mark_kind {
    VERDICT_MARK_BEGIN = 0, /* training starts: what came before is start-up */
    VERDICT_MARK_STEP,      /* the end of an optimizer step */
    VERDICT_MARK_SUBSTEP,   /* a micro-batch: counted, not judged */
    VERDICT_MARK_EVAL,      /* the end of an evaluation */
    VERDICT_MARK_SAVE,      /* a checkpoint was written */
    VERDICT_MARK_EPOCH,     /* the end of a pass over the data */
    VERDICT_MARK_END,       /* training is over: later samples are not judged */
    VERDICT_MARK_KINDS
};
const char *verdict_mark_name(enum verdict_mark_kind kind);
/* The kind named by the LEN bytes at NAME; -EINVAL if there is none. */
int verdict_mark_parse(const char *name, size_t len, enum verdict_mark_kind *ret);

struct verdict_mark {
    enum verdict_mark_kind kind;
    bool has_step;
    uint64_t step;            /* steps done when it was sent */
    uint64_t steps_per_epoch; /* 0: unknown */
    uint64_t examples;        /* in one pass; 0: unknown */
    uint64_t batch;           /* examples a step, accumulation and ranks counted; 0: unknown */
    uint64_t max_steps;       /* 0: unknown */
};
