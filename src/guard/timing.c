/* Measures the durations of steps and checkpoints. */
#include "guard/timing.h"

#include "base/clock.h"

void timing_step(struct timing *t, uint64_t now_ns, int64_t step)
{
    step_times_mark(&t->steps, now_ns, step);
    t->steps.is_interrupted |= t->save_begun_ns != 0;
}

void timing_save_begin(struct timing *t, uint64_t now_ns, uint64_t bytes)
{
    if (t->save_begun_ns != 0)
        return;
    t->save_begun_ns = now_ns;
    t->save_start_bytes = t->save_peak_bytes = bytes;
    t->steps.is_interrupted = true;
}

void timing_memory(struct timing *t, uint64_t bytes)
{
    if (t->save_begun_ns != 0 && bytes > t->save_peak_bytes)
        t->save_peak_bytes = bytes;
}

void timing_save_end(struct timing *t, uint64_t now_ns)
{
    if (t->save_begun_ns == 0)
        return;
    double took_s =
        now_ns > t->save_begun_ns ? (double)(now_ns - t->save_begun_ns) / (double)NS_PER_S : 0;
    uint64_t rise = t->save_peak_bytes - t->save_start_bytes;
    t->save_s = took_s > t->save_s ? took_s : t->save_s;
    t->save_rise_bytes = rise > t->save_rise_bytes ? rise : t->save_rise_bytes;
    t->saves++;
    t->save_begun_ns = 0;
}

void timing_save_failed(struct timing *t)
{
    t->save_begun_ns = 0;
}

void timing_segment(struct timing *t)
{
    t->steps.has_step = t->steps.is_interrupted = false;
    t->save_begun_ns = 0;
}
