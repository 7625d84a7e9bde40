/* The wire format of marks: parses a datagram, finds a key in a mark, and sends a mark. */
#include "mark/mark.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/number.h"
#include "base/text.h"

#define X(sym, num, word) [MARK_##sym] = (word),
static const char *const kind_names[MARK_KIND_COUNT] = {MARK_KINDS(X)};
#undef X

const char *mark_kind_name(enum mark_kind kind)
{
    return kind_names[kind < MARK_KIND_COUNT ? kind : MARK_OTHER];
}

static bool equals(const char *s, size_t len, const char *word)
{
    return strlen(word) == len && memcmp(s, word, len) == 0;
}

enum mark_kind mark_kind_parse(const char *word, size_t len)
{
    for (int kind = 0; kind < MARK_KIND_COUNT; kind++)
        if (equals(word, len, kind_names[kind]))
            return (enum mark_kind)kind;
    return MARK_OTHER;
}

static bool is_text(const char *s, size_t len)
{
    uint32_t c;
    for (size_t i = 0, n; i < len; i += n) {
        n = text_utf8(s + i, len - i, &c);
        if (n == 0 || c == 0)
            return false;
    }
    return true;
}

static bool is_mark_key(const char *s, size_t len)
{
    if (len == 0 || s[0] < 'A' || s[0] > 'Z')
        return false;
    for (size_t i = 1; i < len; i++)
        if (!((s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= '0' && s[i] <= '9') || s[i] == '_'))
            return false;
    return true;
}

/* Takes the line at offset *AT. Returns 1 and sets *ret; 0 at the end; -EBADMSG if the line is not
 * KEY=VALUE. */
static int next_mark_line(const char *s, size_t len, size_t *at, struct mark_line *ret)
{
    const char *begin = s + *at, *end, *equal;
    if (*at >= len)
        return 0;
    end = memchr(begin, '\n', len - *at);
    if (!end)
        end = s + len;
    equal = memchr(begin, '=', (size_t)(end - begin));
    if (!equal || !is_mark_key(begin, (size_t)(equal - begin)))
        return -EBADMSG;
    *ret = (struct mark_line){.key = begin,
                              .value = equal + 1,
                              .key_len = (size_t)(equal - begin),
                              .value_len = (size_t)(end - equal - 1)};
    *at = (size_t)(end - s) + 1;
    return 1;
}

/* The keys whose values are whole numbers, and the minimum of each. */
static const struct {
    const char *key;
    uint32_t has;
    size_t offset;
    int64_t min;
} whole_keys[] = {
    {"STEP", MARK_HAS_STEP, offsetof(struct mark, step), 0},
    {"STEPS_PER_EPOCH", MARK_HAS_STEPS_PER_EPOCH, offsetof(struct mark, steps_per_epoch), 1},
    {"MAX_STEPS", MARK_HAS_MAX_STEPS, offsetof(struct mark, max_steps), 0},
    {"RANK", MARK_HAS_RANK, offsetof(struct mark, rank), 0},
    {"EXAMPLES", MARK_HAS_EXAMPLES, offsetof(struct mark, examples), 0},
    {"EFFECTIVE_BATCH", MARK_HAS_EFFECTIVE_BATCH, offsetof(struct mark, effective_batch), 1},
};

static int decode_epoch(const struct mark_line *line, struct mark *m)
{
    double v;
    if (number_parse_double(line->value, line->value_len, &v) < 0 || v < 0)
        return -EBADMSG;
    if (!(m->has & MARK_HAS_EPOCH))
        m->epoch = v;
    m->has |= MARK_HAS_EPOCH;
    return 0;
}

static int decode_number(const struct mark_line *line, struct mark *m)
{
    if (equals(line->key, line->key_len, "EPOCH"))
        return decode_epoch(line, m);
    for (size_t i = 0; i < sizeof whole_keys / sizeof whole_keys[0]; i++) {
        int64_t v;

        if (!equals(line->key, line->key_len, whole_keys[i].key))
            continue;
        if (number_parse_i64(line->value, line->value_len, &v) < 0 || v < whole_keys[i].min)
            return -EBADMSG;
        if (!(m->has & whole_keys[i].has)) /* if a key is repeated, its first value is used */
            memcpy((char *)m + whole_keys[i].offset, &v, sizeof v);
        m->has |= whole_keys[i].has;
        return 0;
    }
    return 0;
}

int mark_parse(const char *s, size_t len, struct mark *ret)
{
    struct mark m = {.text = s, .len = len};
    bool has_kind = false;
    struct mark_line line;
    size_t at = 0;
    int r;
    if (len > MARK_TEXT_MAX || !is_text(s, len))
        return -EBADMSG;
    while ((r = next_mark_line(s, len, &at, &line)) > 0) {
        r = decode_number(&line, &m);
        if (r < 0)
            return r;
        if (has_kind || !equals(line.key, line.key_len, "KIND"))
            continue;
        if (line.value_len == 0)
            return -EBADMSG;
        m.kind = mark_kind_parse(line.value, line.value_len);
        has_kind = true;
    }
    if (r < 0 || !has_kind)
        return -EBADMSG;
    *ret = m;
    return 0;
}

bool mark_line_is(const struct mark_line *line, const char *key)
{
    return equals(line->key, line->key_len, key);
}

bool mark_line_number(const struct mark *m, const struct mark_line *line, int64_t *ret)
{
    for (size_t i = 0; i < sizeof whole_keys / sizeof whole_keys[0]; i++) {
        if (!(m->has & whole_keys[i].has) || !mark_line_is(line, whole_keys[i].key))
            continue;
        memcpy(ret, (const char *)m + whole_keys[i].offset, sizeof *ret);
        return true;
    }
    return false;
}

double mark_get_number(const struct mark *m, const char *key)
{
    size_t len;
    double v;
    const char *text = mark_get(m, key, &len);
    return text && number_parse_double(text, len, &v) == 0 ? v : (double)NAN;
}

bool mark_next(const struct mark *m, size_t *at, struct mark_line *ret)
{
    return m->text && next_mark_line(m->text, m->len, at, ret) > 0;
}

const char *mark_get(const struct mark *m, const char *key, size_t *ret_len)
{
    struct mark_line line;
    size_t at = 0;
    while (mark_next(m, &at, &line)) {
        if (!equals(line.key, line.key_len, key))
            continue;
        *ret_len = line.value_len;
        return line.value;
    }
    return NULL;
}

bool mark_is(const struct mark *m, const char *key, const char *word)
{
    size_t len;
    const char *value = mark_get(m, key, &len);
    return value && len == strlen(word) && strncasecmp(value, word, len) == 0;
}

int mark_send(const char *path, const char *text, size_t len, unsigned wait_ms)
{
    const struct timeval wait = {(time_t)(wait_ms / 1000), (suseconds_t)(wait_ms % 1000) * 1000};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t path_len = strlen(path);
    AUTO_CLOSE int fd = -1;
    if (path_len == 0)
        return -EINVAL;
    if (path_len >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, path_len);
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (wait_ms > 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) < 0)
        return -errno;
    if (sendto(fd, text, len, MSG_NOSIGNAL | (wait_ms > 0 ? 0 : MSG_DONTWAIT),
               (const struct sockaddr *)&address, sizeof address) < 0)
        return -errno;
    return 0;
}

bool mark_figure_parse(const char *full, char *ret_name, size_t name_size, int32_t *ret_pid)
{
    const char *at = strrchr(full, '@');
    size_t len = at ? (size_t)(at - full) : strlen(full);
    int64_t pid = 0;
    if (len == 0 || len >= name_size)
        return false;
    if (at && (number_parse_i64(at + 1, strlen(at + 1), &pid) < 0 || pid < 0 || pid > INT32_MAX))
        return false;
    memcpy(ret_name, full, len);
    ret_name[len] = '\0';
    *ret_pid = (int32_t)pid;
    return true;
}
