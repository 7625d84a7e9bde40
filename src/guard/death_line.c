/* One line of a job's output, read by itself. */
#include "guard/death_line.h"

#include <string.h>

static bool begins_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80);
}

static bool continues_name(char c)
{
    return begins_name(c) || death_line_is_digit(c) || c == '.' || c == '<' || c == '>';
}

size_t death_line_number(struct span s, int *ret)
{
    size_t n = 0;
    int v = 0;
    while (n < s.len && n < 6 && death_line_is_digit(s.p[n]))
        v = v * 10 + (s.p[n++] - '0');
    *ret = v;
    return n;
}

size_t death_line_exception(struct span s)
{
    if (s.len == 0 || !begins_name(*s.p))
        return 0;
    size_t n = 1;
    while (n < s.len && continues_name(s.p[n]))
        n++;
    bool is_whole = n == s.len || (s.p[n] == ':' && (n + 1 == s.len || span_is_blank(s.p[n + 1])));
    return is_whole ? n : 0;
}

bool death_line_has_usual_name(struct span name)
{
    static const char *const usual[] = {"Error",   "Exception", "Interrupt", "Exit",
                                        "Warning", "Stop",      NULL};
    return span_holds_any(name, usual);
}

bool death_line_is_exited_worker(struct span line)
{
    return span_find(line, "DataLoader worker (pid") && span_find(line, "exited unexpectedly");
}

size_t death_line_rank(struct span s, int *ret_rank)
{
    size_t word = span_begins(s, "[rank") ? 5 : span_begins(s, "[default") ? 8 : 0;
    if (word == 0)
        return 0;
    int rank;
    size_t digits = death_line_number(span_from(s, word), &rank);
    size_t n = word + digits;
    if (digits == 0 || !span_begins(span_from(s, n), "]:"))
        return 0;
    n += 2;
    *ret_rank = rank;
    return n + (n < s.len && s.p[n] == ' ');
}

static bool is_shm(struct span s)
{
    static const char *const places[] = {"/torch_", "/dev/shm", "/psm_", "shared memory", NULL};
    static const char *const words[] = {"killed by signal: Bus error", "out of shared memory",
                                        "insufficient shared memory", NULL};
    return span_holds_any(s, words) ||
           (span_find(s, "No space left on device") && span_holds_any(s, places));
}

static bool is_gpu_memory(struct span s)
{
    static const char *const words[] = {"CUDA out of memory",
                                        "HIP out of memory",
                                        "XPU out of memory",
                                        "MPS backend out of memory",
                                        "CUDA error: out of memory",
                                        "HIP error: out of memory",
                                        "Cuda failure 2 'out of memory'",
                                        "CUDA_ERROR_OUT_OF_MEMORY",
                                        "cudaErrorMemoryAllocation",
                                        "hipErrorOutOfMemory",
                                        "CUBLAS_STATUS_ALLOC_FAILED",
                                        "RESOURCE_EXHAUSTED: Out of memory",
                                        NULL};
    struct span name = {s.p, death_line_exception(s)};
    return span_holds_any(s, words) || span_ends(name, "OutOfMemoryError");
}

static bool is_memory(struct span s)
{
    static const char *const words[] = {"std::bad_alloc", "Cannot allocate memory",
                                        "can't allocate memory",
                                        "not enough memory: you tried to allocate", NULL};
    struct span name = {s.p, death_line_exception(s)};
    return span_holds_any(s, words) || span_ends(name, "MemoryError");
}

enum death_sign death_line_sign(struct span s)
{
    if (is_shm(s))
        return DEATH_SHM;
    if (span_find(s, "DataLoader worker (pid"))
        return DEATH_WORKER;
    if (is_gpu_memory(s))
        return DEATH_CUDA_OOM;
    return is_memory(s) ? DEATH_MEMORY : DEATH_PYTHON;
}

bool death_line_is_farewell(struct span line)
{
    static const char *const words[] = {"ProcessGroupNCCL.cpp", "torch/distributed/elastic",
                                        "torch.distributed.elastic", NULL};
    return span_begins(line, "wandb:") || span_begins(line, "frame #") ||
           span_holds_any(line, words);
}

bool death_line_tells_of_kill(struct span s)
{
    static const char *const words[] = {"SIGKILL", "killed by signal: Killed", "exitcode -9",
                                        "terminated abruptly", NULL};
    return span_holds_any(s, words);
}
