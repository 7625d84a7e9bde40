/* `ebb doctor`: tests which features this machine allows, and prints what to change. */
#include "cli/doctor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
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

enum { LOOKS = sizeof looks / sizeof looks[0], LEVELS = DOCTOR_PROBLEM + 1 };

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
    struct doctor_finding f = {.level = level, .name = name, .advice = advice, .data = data};
    va_list ap;
    va_start(ap, fact);
    buf_vprintf(&f.fact, fact, ap);
    va_end(ap);
    if (ARRAY_ROOM(d->findings, d->count, d->cap))
        d->findings[d->count++] = f;
}

static size_t count_level(const struct doctor *d, enum doctor_level level)
{
    size_t n = 0;
    for (size_t i = 0; i < d->count; i++)
        n += d->findings[i].level == level;
    return n;
}

enum { NAME_COLUMN = 9, TEXT_COLUMN = 26 };

static void put_finding(struct buf *out, struct doctor_finding *f, bool colour, size_t width)
{
    struct buf text = {0};
    buf_printf(out, "%s%-*s%s%-*s", colour ? levels[f->level].colour : "", NAME_COLUMN,
               levels[f->level].word, colour ? "\033[0m" : "", TEXT_COLUMN - NAME_COLUMN, f->name);
    text_escape(&text, buf_str(&f->fact), f->fact.len);
    cli_wrap(out, buf_str(&text), text.len, TEXT_COLUMN, TEXT_COLUMN, width);
    if (f->advice) {
        buf_printf(out, "%*s", TEXT_COLUMN, "");
        cli_wrap(out, f->advice, strlen(f->advice), TEXT_COLUMN, TEXT_COLUMN, width);
    }
    buf_fini(&text);
}

static int doctor_print_text(const struct doctor *d)
{
    struct buf out = {0};
    size_t notes = count_level(d, DOCTOR_NOTE), problems = count_level(d, DOCTOR_PROBLEM);
    for (size_t i = 0; i < d->count; i++)
        put_finding(&out, &d->findings[i], cli_colour(STDOUT_FILENO), cli_width(STDOUT_FILENO));
    buf_printf(&out, "\n%zu ok, %zu note%s, %zu problem%s\n", count_level(d, DOCTOR_OK), notes,
               notes == 1 ? "" : "s", problems, problems == 1 ? "" : "s");
    return cli_print(&out);
}

static json_t *doctor_json(const struct doctor *d)
{
    json_t *count = json_object(), *checks = json_array();
    for (int i = 0; i < LEVELS; i++)
        json_object_set_new(count, levels[i].word,
                            json_integer((json_int_t)count_level(d, (enum doctor_level)i)));
    for (size_t i = 0; i < d->count; i++) {
        struct doctor_finding *f = &d->findings[i];
        json_array_append_new(checks, json_pack("{s:s, s:s, s:o, s:o, s:O?}", "name", f->name,
                                                "level", levels[f->level].word, "fact",
                                                json_text(buf_str(&f->fact), f->fact.len), "advice",
                                                json_text0(f->advice), "data", f->data));
    }
    return json_pack("{s:o, s:o}", "count", count, "checks", checks);
}

struct doctor_options {
    bool json;
};

static int doctor_exec(const struct cli_call *call)
{
    const struct doctor_options *options = call->options;
    struct doctor d = {.root = {-1, -1, 0}};
    struct err err = {""};
    if (proc_root_open("/proc", "/sys/fs/cgroup", &d.root, &err) < 0)
        return cli_failf(2, "doctor: %s", err.text);
    for (size_t i = 0; i < LOOKS; i++)
        looks[i](&d);
    int status = options->json ? cli_print_json(doctor_json(&d)) : doctor_print_text(&d);
    for (size_t i = 0; i < d.count; i++) {
        buf_fini(&d.findings[i].fact);
        json_decref(d.findings[i].data);
    }
    free(d.findings);
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
    .summary = "which features of ebb work on this machine, and what to change",
    .description =
        "Tests each feature of the system that ebb uses, with your permissions. For a feature that "
        "does not work, prints the consequence and the command that changes it. Nothing is "
        "changed: a cgroup that is created for a test is removed at once.\n"
        "\n"
        "note: ebb works, but with less information or more slowly.\n"
        "problem: a part of ebb does not work.\n"
        "The exit status is 0 whatever is found.",
    .examples = "ebb doctor\n"
                "ebb doctor --json | jq '.checks[] | select(.level != \"ok\")'\n",
    .options = options_table,
    .options_size = sizeof(struct doctor_options),
    .exec = doctor_exec,
};
