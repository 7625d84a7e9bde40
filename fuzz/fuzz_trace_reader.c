/* Fuzzes the reader of recordings. */
#include "trace/reader.h"
#include "trace_input.h"

/* Reads all data that an item points to. */
static uint64_t touch(const struct trace_item *item)
{
    uint64_t sum = item->t_ns;
    if (item->kind == TRACE_PROCESS)
        sum += item->process.info->comm_len + (uint64_t)item->process.info->role;
    for (size_t i = 0; item->kind == TRACE_TICK && i < item->tick.count; i++)
        sum += item->tick.rows[i].sample.v[0] + (uint64_t)item->tick.rows[i].name[0];
    for (size_t i = 0; item->kind == TRACE_MARK && i < item->mark.len; i++)
        sum += (uint64_t)item->mark.text[i];
    if (item->kind == TRACE_NOTE)
        sum += (uint64_t)item->note.kind[0] + (uint64_t)item->note.text[item->note.len];
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace_reader *r;
    struct trace_item item;
    struct trace_reader_damage damage = {0};
    if (size == 0 || trace_reader_open_fd(trace_input_fd(data, size), &r, NULL) < 0)
        return 0;
    while (trace_reader_next(r, &item) > 0)
        if (touch(&item) == 42)
            /* Keeps the compiler from removing the reads. */
            damage.bad_bytes = 0;
    trace_reader_damage(r, &damage);
    trace_reader_free(r);
    return 0;
}
