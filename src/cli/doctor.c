/* `ebb doctor`: what this machine allows, really tried, and what to change. */
#include "cli/doctor.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli.h"

static doctor_look *const looks[] = {
    doctor_look_kernel,     doctor_look_children,   doctor_look_processes,
    doctor_look_pagemap,    doctor_look_pressure,   doctor_look_cgroup,
    doctor_look_limit,      doctor_look_memory,     doctor_look_address_space,
    doctor_look_overcommit, doctor_look_huge_pages, doctor_look_shm,
    doctor_look_ptrace,     doctor_look_pidfd,      doctor_look_mrelease,
    doctor_look_subreaper,  doctor_look_files,      doctor_look_locked,
    doctor_look_gpu,        doctor_look_malloc,     doctor_look_python,
    doctor_look_torch,      doctor_look_parts,
};

enum { LOOKS = sizeof(looks) / sizeof(looks[0]), LEVELS = DOCTOR_PROBLEM + 1 };

static const struct {
    const char *word;
    const char *colour;
} levels[LEVELS] = {
    [DOCTOR_OK] = {"ok", "\033[32m"},
    [DOCTOR_NOTE] = {"note", "\033[33m"},
    [DOCTOR_PROBLEM] = {"problem", "\033[31m"},
};

void doctor_add(struct doctor *d, enum doctor_level level, const char *name, json_t *data,
                const char *advice, const char *fact, ...)
{
    struct buf text = {0};
    va_list ap;
    va_start(ap, fact);
    buf_vprintf(&text, fact, ap);
    va_end(ap);
    json_array_append_new(
        d->findings, json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", name, "level",
                               levels[level].word, "fact", json_text(buf_str(&text), text.len),
                               "advice", json_text0(advice), "data", data ? data : json_null()));
    buf_fini(&text);
}

static enum doctor_level level_of(const json_t *finding)
{
    const char *word = json_string_value(json_object_get(finding, "level"));
    for (int i = 0; word && i < LEVELS; i++) {
        if (strcmp(word, levels[i].word) == 0)
            return (enum doctor_level)i;
    }
    return DOCTOR_PROBLEM;
}

static void count_levels(const json_t *findings, size_t ret[LEVELS])
{
    size_t i;
    json_t *finding;
    json_array_foreach(findings, i, finding) ret[level_of(finding)]++;
}

enum { NAME_COLUMN = 9, TEXT_COLUMN = 26 };

static void add_finding(struct buf *out, const json_t *finding, bool colour, size_t width)
{
    enum doctor_level level = level_of(finding);
    const char *advice = json_string_value(json_object_get(finding, "advice"));
    const json_t *fact = json_object_get(finding, "fact");
    struct buf text = {0};
    buf_printf(out, "%s%-*s%s%-*s", colour ? levels[level].colour : "", NAME_COLUMN,
               levels[level].word, colour ? "\033[0m" : "", TEXT_COLUMN - NAME_COLUMN,
               json_string_value(json_object_get(finding, "name")));
    text_escape(&text, json_string_value(fact), json_string_length(fact));
    cli_wrap(out, buf_str(&text), text.len, TEXT_COLUMN, TEXT_COLUMN, width);
    if (advice) {
        buf_printf(out, "%*s", TEXT_COLUMN, "");
        cli_wrap(out, advice, strlen(advice), TEXT_COLUMN, TEXT_COLUMN, width);
    }
    buf_fini(&text);
}

static void doctor_put_text(struct buf *out, const json_t *findings)
{
    size_t i, count[LEVELS] = {0};
    json_t *finding;
    bool colour = cli_colour(STDOUT_FILENO);
    json_array_foreach(findings, i, finding)
        add_finding(out, finding, colour, cli_width(STDOUT_FILENO));
    count_levels(findings, count);
    buf_printf(out, "\n%zu ok, %zu note%s, %zu problem%s\n", count[DOCTOR_OK], count[DOCTOR_NOTE],
               count[DOCTOR_NOTE] == 1 ? "" : "s", count[DOCTOR_PROBLEM],
               count[DOCTOR_PROBLEM] == 1 ? "" : "s");
}

static json_t *doctor_json(json_t *findings)
{
    size_t count[LEVELS] = {0};
    count_levels(findings, count);
    return json_pack("{s:{s:I, s:I, s:I}, s:O}", "count", "ok", (json_int_t)count[DOCTOR_OK],
                     "note", (json_int_t)count[DOCTOR_NOTE], "problem",
                     (json_int_t)count[DOCTOR_PROBLEM], "checks", findings);
}

struct doctor_options {
    bool json;
};

static int doctor_exec(const struct cli_call *call)
{
    const struct doctor_options *options = call->options;
    struct doctor d = {.root = {-1, -1, 0}};
    struct err err = {{0}};
    struct buf out = {0};
    if (proc_root_open("/proc", "/sys/fs/cgroup", &d.root, &err) < 0)
        return cli_failf(2, "doctor: %s", err.text);
    d.findings = json_array();
    for (size_t i = 0; i < LOOKS && d.findings; i++)
        looks[i](&d);
    if (!options->json)
        doctor_put_text(&out, d.findings);
    int status = options->json ? cli_print_json(doctor_json(d.findings)) : cli_print(&out);
    json_decref(d.findings);
    proc_root_close(&d.root);
    return status;
}

static const struct option_desc options_table[] = {
    OPTION_ROW(0, "json", FLAG, NULL, offsetof(struct doctor_options, json),
               .help = "print one JSON object"),
    {0},
};

const struct cli_command cmd_doctor = {
    .name = "doctor",
    .operands = "",
    .summary = "what this machine allows, and what to change",
    .description =
        "Tries what ebb needs, with your rights, and prints for each whether it works. What does "
        "not "
        "comes with its meaning and the command that changes it. Nothing is changed: a cgroup made "
        "to see whether one can be made is removed at once.\n\n"
        "note: ebb works, with less or slower. problem: a part of ebb will not work. The status is "
        "0 whatever is found.",
    .examples = "ebb doctor\n"
                "ebb doctor --json | jq '.checks[] | select(.level != \"ok\")'\n",
    .options = options_table,
    .options_size = sizeof(struct doctor_options),
    .usage_status = 2,
    .exec = doctor_exec,
};
