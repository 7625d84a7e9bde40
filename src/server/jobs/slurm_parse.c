/* Parses what the commands of Slurm print. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "server/jobs/slurm_private.h"

/* Returns the phase for a state that squeue or sacct printed. "CANCELLED by 1000" is also a
 * state. */
static enum slurm_phase phase_of(const char *state)
{
    static const char *const pending[] = {"PENDING",      "REQUEUED",    "REQUEUE_HOLD",
                                          "SPECIAL_EXIT", "REQUEUE_FED", "RESV_DEL_HOLD"};
    static const char *const running[] = {"RUNNING",    "SUSPENDED", "CONFIGURING",
                                          "COMPLETING", "STAGE_OUT", "STOPPED",
                                          "SIGNALING",  "RESIZING",  "POWER_UP_NODE"};
    for (size_t i = 0; i < sizeof pending / sizeof *pending; i++)
        if (strcmp(state, pending[i]) == 0)
            return SLURM_PENDING;
    for (size_t i = 0; i < sizeof running / sizeof *running; i++)
        if (strcmp(state, running[i]) == 0)
            return SLURM_RUNNING;
    return SLURM_ENDED;
}

/* Copies the next field and returns the rest of the line after its "|", or NULL. */
static const char *take_field(const char *s, const char *end, char *ret, size_t size)
{
    const char *bar = s ? memchr(s, '|', (size_t)(end - s)) : NULL;
    if (!bar)
        return NULL;
    snprintf(ret, size, "%.*s", (int)(bar - s), s);
    for (char *c = ret; *c; c++)
        *c = isprint((unsigned char)*c) ? *c : '?';
    return bar + 1;
}

int slurm_parse_line(const char *line, size_t len, struct slurm_line *ret)
{
    struct slurm_line l = {0};
    char number[24];
    const char *end = line + len;
    const char *s = take_field(line, end, number, sizeof number);
    s = take_field(s, end, l.state, sizeof l.state);
    s = take_field(s, end, l.detail, sizeof l.detail);
    const size_t id_len = sizeof l.folder_id - 1;
    if (!s || number_parse_i64(number, strlen(number), &l.number) < 0 || l.number <= 0 ||
        (size_t)(end - s) < id_len + 2 || end[-(ptrdiff_t)id_len - 1] != '.')
        return -EBADMSG;
    memcpy(l.folder_id, end - id_len, id_len);
    if (strspn(l.folder_id, "0123456789abcdef") != id_len)
        return -EBADMSG;
    l.state[strcspn(l.state, " +")] = '\0';
    l.phase = phase_of(l.state);
    if (strcmp(l.detail, "None") == 0 || strcmp(l.detail, "(null)") == 0)
        l.detail[0] = '\0';
    *ret = l;
    return 0;
}

int slurm_parse_number(const char *text, size_t len, int64_t *ret)
{
    int64_t number;
    size_t digits = 0;
    while (digits < len && isdigit((unsigned char)text[digits]))
        digits++;
    if (digits == 0 || digits == len || !strchr(";\n", text[digits]) ||
        number_parse_i64(text, digits, &number) < 0 || number <= 0)
        return -EBADMSG;
    *ret = number;
    return 0;
}

bool slurm_is_temporary(const char *error)
{
    /* parts of error messages that Slurm's library prints for temporary problems */
    static const char *const parts[] = {
        "contact slurm controller",
        "Socket timed out",
        "Connection refused",
        "connection failure",
        "Zero Bytes",
        "standby mode",
        "temporarily",
        "Transport endpoint",
        "authentication credential",
        "authentication error",
        "Munge",
        "submit limit",
        "MaxSubmit",
        "MaxJobCount",
        "Timeout",
        "timed out",
        "Unexpected message",
        "try again",
        "Incompatible versions",
        "resolve",
        "Network",
        "DNS SRV lookup failed",
        "No route to host",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcasestr(error, parts[i]))
            return true;
    return false;
}
