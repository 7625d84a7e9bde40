/* Reads the end of a job's output and decides which traceback or line shows why the job ended. */
#include <stdio.h>
#include <string.h>

#include "base/span.h"
#include "base/text.h"
#include "guard/death.h"

/* --- the ring buffer --- */

void death_tail_add(struct death_tail *t, const char *data, size_t len)
{
    /* only the last DEATH_TAIL bytes fit into the ring buffer */
    if (len > DEATH_TAIL) {
        t->written += len - DEATH_TAIL;
        data += len - DEATH_TAIL;
        len = DEATH_TAIL;
    }
    size_t at = (size_t)(t->written % DEATH_TAIL);
    size_t first = len < DEATH_TAIL - at ? len : DEATH_TAIL - at;
    if (len == 0)
        return;
    memcpy(t->text + at, data, first);
    memcpy(t->text, data + first, len - first);
    t->written += len;
}

/* Returns the end of the escape sequence whose ESC is just before P. */
static const char *escape_end(const char *p, const char *end)
{
    if (p == end)
        return p;
    char kind = *p++;
    if (kind == '[') {
        while (p < end && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x40)
            p++;
        return p < end ? p + 1 : p;
    }
    /* a terminal title or a link, which ends with BEL or ESC \ on the same line */
    if (kind == ']') {
        while (p < end && *p != '\a' && *p != '\n' && *p != 0x1B)
            p++;
        return p < end && *p == '\a' ? p + 1 : p;
    }
    if (strchr("()*+#%", kind) && p < end)
        p++;
    return p;
}

/* Removes escape sequences in place. Returns the new length. */
static size_t strip_escapes(char *text, size_t len)
{
    const char *p = text, *end = text + len;
    char *out = text;
    while (p < end) {
        if (*p == 0x1B)
            p = escape_end(p + 1, end);
        else
            *out++ = *p++;
    }
    return (size_t)(out - text);
}

static size_t flatten(const struct death_tail *t, char flat[DEATH_TAIL])
{
    if (t->written <= DEATH_TAIL) {
        memcpy(flat, t->text, (size_t)t->written);
        return (size_t)t->written;
    }
    size_t start = (size_t)(t->written % DEATH_TAIL);
    memcpy(flat, t->text + start, DEATH_TAIL - start);
    memcpy(flat + DEATH_TAIL - start, t->text, start);
    return DEATH_TAIL;
}

/* --- classifying single lines --- */

static bool is_digit_char(char c)
{
    return c >= '0' && c <= '9';
}

static bool begins_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80);
}

static bool continues_name(char c)
{
    return begins_name(c) || is_digit_char(c) || c == '.' || c == '<' || c == '>';
}

/* Parses the decimal number of up to 6 digits at the start of S. Returns its length, which may be
 * 0. */
static size_t death_line_number(struct span s, int *ret)
{
    size_t n = 0;
    int v = 0;
    while (n < s.len && n < 6 && is_digit_char(s.p[n]))
        v = v * 10 + (s.p[n++] - '0');
    *ret = v;
    return n;
}

/* Returns the length of a Python class name at the start of S if it is followed by ": " or the end
 * of S; else 0. */
static size_t death_line_exception(struct span s)
{
    if (s.len == 0 || !begins_name(*s.p))
        return 0;
    size_t n = 1;
    while (n < s.len && continues_name(s.p[n]))
        n++;
    bool is_whole = n == s.len || (s.p[n] == ':' && (n + 1 == s.len || span_is_blank(s.p[n + 1])));
    return is_whole ? n : 0;
}

/* True if a class name contains one of the usual words for exceptions. Once unrelated output has
 * appeared inside a traceback, only a line with such a name is treated as the exception. */
static bool death_line_has_usual_name(struct span name)
{
    static const char *const usual[] = {"Error",   "Exception", "Interrupt", "Exit",
                                        "Warning", "Stop",      NULL};
    return span_holds_any(name, usual);
}

/* Parses "[rank3]: " or "[default0]:", which launchers put before each line of a rank. Returns the
 * length of this prefix, or 0. */
static size_t death_line_rank(struct span s, int *ret_rank)
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

static bool is_shm_full(struct span s)
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

static bool is_allocation_failure(struct span s)
{
    static const char *const words[] = {"std::bad_alloc", "Cannot allocate memory",
                                        "can't allocate memory",
                                        "not enough memory: you tried to allocate", NULL};
    struct span name = {s.p, death_line_exception(s)};
    return span_holds_any(s, words) || span_ends(name, "MemoryError");
}

static enum death_sign death_line_sign(struct span s)
{
    if (is_shm_full(s))
        return DEATH_SHM;
    if (span_find(s, "DataLoader worker (pid"))
        return DEATH_WORKER;
    if (is_gpu_memory(s))
        return DEATH_CUDA_OOM;
    return is_allocation_failure(s) ? DEATH_MEMORY : DEATH_PYTHON;
}

/* True for lines that loggers or launchers print after a job has failed. */
static bool death_line_is_farewell(struct span line)
{
    static const char *const words[] = {"ProcessGroupNCCL.cpp", "torch/distributed/elastic",
                                        "torch.distributed.elastic", NULL};
    return span_begins(line, "wandb:") || span_begins(line, "frame #") ||
           span_holds_any(line, words);
}

static bool death_line_reports_kill(struct span s)
{
    static const char *const words[] = {"SIGKILL", "killed by signal: Killed", "exitcode -9",
                                        "terminated abruptly", NULL};
    return span_holds_any(s, words);
}

/* --- tracebacks and last lines --- */

enum {
    /* a traceback did not end the job if more bytes of other output than this follow it */
    FAR_BYTES = 4096,
    LABEL_MAX = 64,
    NO_RANK = -1,
};

/* Weights of causes. Of two causes near the end of the output, the one with the larger weight is
 * used. If the weights are equal, the later one is used. */
enum weight {
    WEIGHT_NONE,     /* not a cause: a message such as "Exception ignored in …" */
    WEIGHT_LAUNCHER, /* a launcher's report that a child failed */
    WEIGHT_WORDS,    /* a line outside any traceback that reports an error */
    /* a traceback in a thread or child process, which does not necessarily end the job */
    WEIGHT_ASIDE,
    WEIGHT_MAIN
};

struct found_cause {
    enum weight weight;
    char text[2 * DEATH_LINE];
    size_t len;
    int rank;
    size_t after_bytes; /* number of bytes of other output that followed this cause */
};

struct open_traceback {
    bool is_open;
    /* The line "Traceback (most recent call last)" was seen. A SyntaxError has no such line, and
     * the ring buffer may have dropped it. */
    bool has_head;
    bool is_noisy; /* unrelated output appeared between the lines of the traceback */
    enum weight weight;
    char label[LABEL_MAX]; /* text before each line of the traceback, such as "[rank0]: " */
    size_t label_len;
    bool label_sure;
    int rank;
};

/* The table in which torchrun reports which rank failed first. */
struct table {
    bool is_open, is_root;
    struct span rank, exitcode, traceback;
};

struct scan {
    int only_rank; /* read only the tracebacks of this rank; NO_RANK: read those of all ranks */
    struct found_cause cause;
    struct open_traceback open;
    struct table table;
    enum weight next;   /* weight of a traceback that begins on the next line */
    bool in_message;    /* the following lines may continue the exception's message */
    struct span thrown; /* the type in C++'s message "terminate called after throwing …" */
    bool bus_error, interrupted;
    int signalled;
};

/* --- candidates --- */

static void offer_cause(struct scan *s, enum weight weight, struct span text, int rank)
{
    struct found_cause *c = &s->cause;
    if (s->only_rank != NO_RANK && rank != NO_RANK && rank != s->only_rank)
        return;
    bool is_near = c->weight != WEIGHT_NONE && c->after_bytes <= FAR_BYTES;
    if (is_near && weight < c->weight)
        return;
    /* if several ranks failed, the first one is the cause, because its failure makes the others
     * fail */
    if (is_near && weight == c->weight && rank != NO_RANK && c->rank != NO_RANK && rank != c->rank)
        return;
    text = span_trimmed(text);
    if (text.len && text.p[text.len - 1] == ':')
        text.len--;
    *c = (struct found_cause){.weight = weight, .rank = rank};
    c->len = text.len < sizeof c->text ? text.len : sizeof c->text;
    memcpy(c->text, text.p, c->len);
}

static void note_exception(struct scan *s, struct span line, size_t name_len)
{
    struct span name = {line.p, name_len};
    enum weight weight = s->open.weight;
    if (span_ends(name, "SystemExit")) /* SystemExit is deliberate */
        return;
    const char *got = span_ends(name, "SignalException") ? span_find(line, "got signal: ") : NULL;
    if (got)
        (void)death_line_number(span_from(line, (size_t)(got - line.p) + strlen("got signal: ")),
                                &s->signalled);
    if (span_ends(name, "ChildFailedError"))
        s->table = (struct table){.is_open = true};
    if (weight > WEIGHT_LAUNCHER &&
        (s->table.is_open || span_ends(name, "CalledProcessError") ||
         (span_find(line, "DataLoader worker (pid") && span_find(line, "exited unexpectedly"))))
        weight = WEIGHT_LAUNCHER;
    if (weight != WEIGHT_NONE)
        offer_cause(s, weight, line, s->open.rank);
}

/* --- tracebacks --- */

/* Sets the label, which is the text before each line of the traceback. PREFIX is the text before
 * its first line. */
static void set_label(struct open_traceback *o, struct span prefix)
{
    size_t sure = death_line_rank(prefix, &o->rank);
    /* the traceback comes from a DataLoader worker, whose failure is the root cause */
    if (span_ends(prefix, "Original "))
        prefix.len -= strlen("Original ");
    /* the traceback is part of torchrun's table, which is indented */
    if (span_ends(prefix, "traceback : "))
        prefix = span_of("  ");
    if (prefix.len >= sizeof o->label)
        return;
    memcpy(o->label, prefix.p, prefix.len);
    o->label_len = prefix.len;
    o->label_sure = sure != 0 && sure == prefix.len;
}

/* Several ranks may print tracebacks at the same time, but only one of them is read. Returns true
 * if the traceback that begins with PREFIX must be skipped, because it comes from another rank. */
static bool is_of_another_rank(const struct scan *s, struct span prefix)
{
    int rank;
    if (death_line_rank(prefix, &rank) == 0)
        return false;
    if (s->only_rank != NO_RANK && rank != s->only_rank)
        return true;
    return s->open.is_open && s->open.rank != NO_RANK && rank != s->open.rank;
}

static void begin_traceback(struct scan *s, struct span line, const char *head)
{
    struct span prefix = {line.p, (size_t)(head - line.p)};
    if (is_of_another_rank(s, prefix))
        return;
    s->open = (struct open_traceback){
        .is_open = true, .has_head = true, .weight = s->next, .rank = NO_RANK};
    s->table.is_open = false;
    set_label(&s->open, prefix);
    s->next = WEIGHT_MAIN;
    s->in_message = false;
}

/* Begins a traceback at the line "File …", for tracebacks without a first line: the ring buffer may
 * have dropped it, and a SyntaxError has none. Returns false if LINE is not such a line. */
static bool begin_headless(struct scan *s, struct span line)
{
    int rank = NO_RANK;
    size_t label = death_line_rank(line, &rank);
    struct span rest = span_from(line, label);
    const char *number = span_begins(rest, "  File \"") ? span_find(rest, "\", line ") : NULL;
    if (!number)
        return false;
    rest = span_from(rest, (size_t)(number - rest.p) + strlen("\", line "));
    while (rest.len && is_digit_char(*rest.p))
        rest = span_from(rest, 1);
    /* faulthandler prints " in f" instead of ", in f" */
    if (rest.len && !span_begins(rest, ", in "))
        return false;
    s->open = (struct open_traceback){.is_open = true, .weight = s->next, .rank = rank};
    if (label < sizeof s->open.label) {
        memcpy(s->open.label, line.p, label);
        s->open.label_len = label;
        s->open.label_sure = label > 0;
    }
    s->next = WEIGHT_MAIN;
    s->in_message = false;
    return true;
}

/* True if the line is indented, or is inside a box drawn by the Python package `rich` (U+2500 to
 * U+257F). */
static bool is_body(struct span line)
{
    bool is_box = line.len >= 2 && (unsigned char)line.p[0] == 0xE2 &&
                  ((unsigned char)line.p[1] == 0x94 || (unsigned char)line.p[1] == 0x95);
    return span_is_blank(*line.p) || is_box;
}

/* Removes the label from LINE. Returns false if LINE does not belong to the open traceback. */
static bool take_label(struct open_traceback *o, struct span *line)
{
    if (o->label_len && line->len >= o->label_len && memcmp(line->p, o->label, o->label_len) == 0) {
        o->label_sure = true;
        *line = span_from(*line, o->label_len);
        return true;
    }
    if (o->label_sure)
        return false;
    /* the text before the first line was not a label but unrelated output, such as a progress
     * bar */
    o->label_len = 0;
    return true;
}

/* Adds LINE to the open traceback. Returns false if LINE does not belong to the traceback. */
static bool feed_traceback(struct scan *s, struct span line)
{
    struct open_traceback *o = &s->open;
    if (!take_label(o, &line))
        return false;
    if (span_trimmed(line).len == 0) {
        o->is_open = o->has_head;
        return true;
    }
    if (is_body(line))
        return true;
    size_t name = death_line_exception(line);
    if (name && (!o->is_noisy || death_line_has_usual_name((struct span){line.p, name}))) {
        note_exception(s, line, name);
        o->is_open = false;
        s->in_message = true;
        return true;
    }
    o->is_noisy = true;
    o->is_open = o->has_head;
    return false;
}

/* --- lines outside tracebacks --- */

/* The weight of a traceback that begins after LINE. */
static enum weight weight_after(struct span line, enum weight before)
{
    static const char *const ignored[] = {"Exception ignored ", "Error in atexit._run_exitfuncs",
                                          "--- Logging error ---", NULL};
    if (span_holds_any(line, ignored) || span_begins(line, "Call stack:"))
        return WEIGHT_NONE;
    if (span_find(line, "Exception in thread ") ||
        (span_begins(line, "Process ") && span_ends(line, ":")))
        return WEIGHT_ASIDE;
    return span_trimmed(line).len ? WEIGHT_MAIN : before;
}

/* Reads the C++ message "terminate called after throwing an instance of 'T'", and the line "what():
 * …" below it. */
static bool scan_thrown(struct scan *s, struct span line)
{
    static const char text[] = "terminate called after throwing an instance of '";
    const char *at = span_find(line, text);
    if (at) {
        struct span type = span_from(line, (size_t)(at - line.p) + strlen(text));
        type.len -= span_ends(type, "'");
        s->thrown = type;
        offer_cause(s, WEIGHT_WORDS, type, NO_RANK);
        return true;
    }
    at = s->thrown.len ? span_find(line, "what():") : NULL;
    if (!at)
        return false;
    struct span what = span_trimmed(span_from(line, (size_t)(at - line.p) + strlen("what():")));
    char both[2 * DEATH_LINE];
    int n = snprintf(both, sizeof both, "%.*s: %.*s", (int)s->thrown.len, s->thrown.p,
                     (int)what.len, what.p);
    bool is_same = what.len == s->thrown.len && memcmp(what.p, s->thrown.p, what.len) == 0;
    if (n > 0 && !is_same)
        offer_cause(s, WEIGHT_WORDS, span_of(both), NO_RANK);
    s->thrown = (struct span){0};
    return true;
}

static void scan_table(struct table *t, struct span line)
{
    if (span_begins(line, "Root Cause (first observed failure)"))
        t->is_root = true;
    const char *colon = t->is_root ? memchr(line.p, ':', line.len) : NULL;
    if (!colon)
        return;
    struct span key = span_trimmed((struct span){line.p, (size_t)(colon - line.p)});
    struct span value = span_trimmed(span_from(line, (size_t)(colon - line.p) + 1));
    if (key.len == 4 && span_begins(key, "rank"))
        t->rank = value;
    else if (key.len == 8 && span_begins(key, "exitcode"))
        t->exitcode = value;
    else if (key.len == 9 && span_begins(key, "traceback"))
        t->traceback = value;
}

static void scan_words(struct scan *s, struct span line)
{
    s->next = weight_after(line, s->next);
    if (s->table.is_open)
        scan_table(&s->table, line);
    if (span_find(line, "Unexpected bus error encountered in worker"))
        s->bus_error = true;
    if (s->in_message && line.len && span_is_blank(*line.p))
        return;
    s->in_message = false;
    if (scan_thrown(s, line))
        return;
    struct span words = span_trimmed(line);
    if (words.len && death_line_sign(words) != DEATH_PYTHON)
        offer_cause(s, WEIGHT_WORDS, words, NO_RANK);
    if (!death_line_is_farewell(line))
        s->cause.after_bytes += line.len + 1;
}

static void scan_line(struct scan *s, struct span line)
{
    if (span_find(line, "KeyboardInterrupt"))
        s->interrupted = true;
    const char *head = span_find(line, "Traceback (most recent call last)");
    if (head) {
        if (s->table.is_root)
            scan_table(&s->table, line);
        begin_traceback(s, line, head);
    } else if (!(s->open.is_open ? feed_traceback(s, line) : begin_headless(s, line))) {
        scan_words(s, line);
    }
}

static void scan_text(const char *text, size_t len, int only_rank, struct scan *ret)
{
    *ret = (struct scan){.only_rank = only_rank, .next = WEIGHT_MAIN};
    ret->cause.rank = NO_RANK;
    for (size_t from = 0, at = 0; at <= len; at++) {
        /* a progress bar returns to the start of the line and overwrites it */
        if (at < len && text[at] != '\n' && text[at] != '\r')
            continue;
        if (at > from)
            scan_line(ret, (struct span){text + from, at - from});
        else if (at < len && text[at] == '\n')
            scan_line(ret, (struct span){text + at, 0});
        from = at + 1;
    }
}

/* --- the result --- */

static int table_rank(const struct table *t)
{
    int rank;
    return death_line_number(t->rank, &rank) ? rank : NO_RANK;
}

/* Uses the error in torchrun's table as the cause. */
static void table_cause(const struct table *t, struct found_cause *c)
{
    struct span end = span_begins(t->traceback, "Signal ")
                          ? t->traceback
                          : span_of("its error message was not found near the end of the output");
    int n = snprintf(c->text, sizeof c->text, "torchrun: rank %d failed first, exitcode %.*s: %.*s",
                     table_rank(t), (int)t->exitcode.len, t->exitcode.p, (int)end.len, end.p);
    c->len = n < 0 ? 0 : (size_t)n < sizeof c->text ? (size_t)n : sizeof c->text - 1;
    c->weight = WEIGHT_LAUNCHER;
}

/* If torchrun reports which rank failed first, that rank's error is the cause. */
static void prefer_root(const char *text, size_t len, struct scan *s)
{
    int root = table_rank(&s->table);
    if (root == NO_RANK)
        return;
    bool was_killed = span_begins(s->table.exitcode, "-9");
    if (was_killed || s->cause.weight <= WEIGHT_LAUNCHER) {
        table_cause(&s->table, &s->cause);
    } else if (s->cause.rank != NO_RANK && s->cause.rank != root) {
        struct scan again;
        scan_text(text, len, root, &again);
        if (again.cause.weight > WEIGHT_LAUNCHER)
            *s = again;
    }
}

void death_reading_take(const struct death_tail *t, struct death_reading *ret)
{
    char flat[DEATH_TAIL];
    struct scan s;
    size_t len = strip_escapes(flat, flatten(t, flat));
    scan_text(flat, len, NO_RANK, &s);
    *ret = (struct death_reading){.interrupted = s.interrupted, .signalled = s.signalled};
    if (s.cause.weight == WEIGHT_NONE || s.cause.after_bytes > FAR_BYTES)
        return;
    prefer_root(flat, len, &s);
    struct span line = {s.cause.text, s.cause.len};
    ret->sign = death_line_sign(line);
    if (ret->sign == DEATH_WORKER && s.bus_error)
        ret->sign = DEATH_SHM;
    ret->child_killed = death_line_reports_kill(line);
    text_fit(ret->line, sizeof ret->line, sizeof ret->line - 1, line.p, line.len);
}
