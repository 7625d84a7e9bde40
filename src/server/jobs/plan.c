/* Plans the queue: determines the resources that each waiting job reserves, and prints the reason
 * for which it waits. */
#include "server/jobs/plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

/* Amounts of free resources, with or without those that jobs earlier in the queue have reserved. */
struct left {
    unsigned slots, gpus;
    uint64_t memory;
};

static uint64_t over(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t all_gpus(const struct plan_room *room)
{
    return room->gpus >= PLAN_GPUS_MAX ? UINT64_MAX : (UINT64_C(1) << room->gpus) - 1;
}

static struct left left_of(const struct plan_room *room)
{
    uint64_t free_gpus = all_gpus(room) & ~room->gpus_used;
    return (struct left){
        .slots = (unsigned)over(room->slots, room->slots_used),
        .gpus = (unsigned)__builtin_popcountll(free_gpus),
        .memory = room->memory_bytes ? over(room->memory_bytes, room->memory_used) : UINT64_MAX,
    };
}

static enum plan_why fits(const struct left *left, const struct plan_job *job)
{
    if (left->slots == 0)
        return PLAN_WAITS_SLOT;
    if (job->memory_bytes > left->memory)
        return PLAN_WAITS_MEMORY;
    return job->gpus > left->gpus ? PLAN_WAITS_GPU : PLAN_STARTS;
}

static void take_room(struct left *left, const struct plan_job *job, bool with_slot)
{
    left->slots = (unsigned)over(left->slots, with_slot);
    left->gpus = (unsigned)over(left->gpus, job->gpus);
    if (left->memory != UINT64_MAX)
        left->memory = over(left->memory, job->memory_bytes);
}

static bool fits_never(const struct plan_room *room, const struct plan_job *job)
{
    return job->gpus > (room->gpus > PLAN_GPUS_MAX ? PLAN_GPUS_MAX : room->gpus) ||
           (room->memory_bytes && job->memory_bytes > room->memory_bytes);
}

static uint64_t pick_gpus(const struct plan_room *room, unsigned count)
{
    uint64_t idle = all_gpus(room) & ~room->gpus_used, picked = 0;
    for (; count > 0 && idle; count--) {
        picked |= idle & -idle;
        idle &= idle - 1;
    }
    return picked;
}

void plan_next(const struct plan_room *room, const struct plan_job *jobs, size_t count,
               struct plan_verdict *ret)
{
    struct left truly = left_of(room), kept = truly;
    bool has_started = false, is_one_waiting = false;
    for (size_t i = 0; i < count; i++) {
        const struct plan_job *job = &jobs[i];
        struct plan_verdict *v = &ret[i];
        v->gpus = 0;
        v->why = job->waits ? PLAN_WAITS_AFTER : fits_never(room, job) ? PLAN_NEVER : PLAN_STARTS;
        if (v->why != PLAN_STARTS)
            continue;
        v->why = fits(&truly, job);
        if (v->why == PLAN_STARTS && (has_started || fits(&kept, job) != PLAN_STARTS))
            v->why = PLAN_WAITS_TURN;
        if (v->why == PLAN_STARTS) {
            has_started = true;
            v->gpus = pick_gpus(room, job->gpus);
            take_room(&truly, job, true);
            take_room(&kept, job, true);
            continue;
        }
        /* Reserves as much of each resource as the job needs, or all of it if less is left. The
         * first waiting job reserves no slot: it can start only after a running job has ended, and
         * then uses that job's slot. */
        take_room(&kept, job, is_one_waiting);
        is_one_waiting = true;
    }
}

static void memory_sentence(const struct plan_room *room, const struct plan_job *job, bool is_never,
                            char *ret, size_t size)
{
    char wanted[TEXT_SIZE_MAX], idle[TEXT_SIZE_MAX], all[TEXT_SIZE_MAX];
    text_size(wanted, job->memory_bytes);
    text_size(all, room->memory_bytes);
    text_size(idle, over(room->memory_bytes, room->memory_used));
    if (is_never)
        snprintf(ret, size,
                 "can never start: it needs %s of memory, and the server has %s for "
                 "jobs",
                 wanted, all);
    else
        snprintf(ret, size, "waits for memory: needs %s (free: %s of %s)", wanted, idle, all);
}

void plan_sentence(const struct plan_room *room, const struct plan_job *job,
                   const struct plan_verdict *verdict, char *ret, size_t size)
{
    switch (verdict->why) {
    case PLAN_STARTS:
        snprintf(ret, size, "starts now");
        return;
    case PLAN_WAITS_AFTER:
        snprintf(ret, size, "waits for other jobs to succeed");
        return;
    case PLAN_WAITS_SLOT:
        snprintf(ret, size, "waits for a slot: %u of %u in use", room->slots_used, room->slots);
        return;
    case PLAN_WAITS_MEMORY:
        memory_sentence(room, job, false, ret, size);
        return;
    case PLAN_WAITS_GPU:
        snprintf(ret, size, "waits for GPUs: needs %u (free: %u of %u)", job->gpus,
                 left_of(room).gpus, room->gpus);
        return;
    case PLAN_WAITS_TURN:
        snprintf(ret, size,
                 "waits for its turn: the resources it needs are reserved for an earlier job");
        return;
    case PLAN_NEVER:
        if (job->gpus > room->gpus)
            snprintf(ret, size, "can never start: it needs %u GPUs, and the server has %u",
                     job->gpus, room->gpus);
        else
            memory_sentence(room, job, true, ret, size);
        return;
    }
}

void plan_gpu_text(uint64_t gpus, char ret[PLAN_GPU_TEXT])
{
    size_t len = 0;
    ret[0] = '\0';
    for (unsigned i = 0; i < PLAN_GPUS_MAX; i++)
        if (gpus >> i & 1)
            len += (size_t)snprintf(ret + len, PLAN_GPU_TEXT - len, "%s%u", len ? "," : "", i);
}

uint64_t plan_gpu_bits(const char *text)
{
    uint64_t gpus = 0;
    while (text && *text) {
        char *end;
        unsigned long i = strtoul(text, &end, 10);
        if (end == text)
            break;
        if (i < PLAN_GPUS_MAX)
            gpus |= UINT64_C(1) << i;
        text = *end == ',' ? end + 1 : "";
    }
    return gpus;
}
