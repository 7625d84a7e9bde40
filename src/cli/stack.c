/* `ebb stack`: Python stacks of a running process, read without stopping it. */
#include "cli/cli.h"

#include <jansson.h>
#include <string.h>

#include "attach/interpreter.h"
#include "attach/stack.h"
#include "attach/target.h"
#include "base/buf.h"
#include "base/json.h"

static const struct option_desc stack_table[] = {
    CLI_JSON_OPTION("print the stacks as JSON"),
    {0},
};

struct stack_output {
    struct buf text;
    json_t *threads; /* with --json; else NULL */
};

static json_t *stack_json(const struct stack_thread *t)
{
    json_t *frames = json_array();
    for (size_t i = 0; i < t->frame_count; i++) {
        const struct stack_frame *f = &t->frames[i];
        json_array_append_new(frames,
                              json_pack("{s:o,s:i,s:o}", "file", json_text0(f->file), "line",
                                        (int)f->line, "function", json_text0(f->function)));
    }
    return json_pack("{s:o?,s:b,s:o,s:o,s:b}", "tid", t->tid ? json_integer(t->tid) : NULL,
                     "is_main", t->is_main, "name", json_text0(t->name), "frames", frames, "is_cut",
                     t->is_cut);
}

static void on_stack_thread(void *user, const struct stack_thread *t)
{
    struct stack_output *o = user;
    if (o->threads) {
        json_array_append_new(o->threads, stack_json(t));
        return;
    }
    buf_printf(&o->text, "%sthread", o->text.len ? "\n" : "");
    if (t->tid)
        buf_printf(&o->text, " %d", (int)t->tid);
    if (t->name[0])
        buf_printf(&o->text, " (%s)", t->name);
    buf_printf(&o->text, "%s\n", t->is_main ? ", main" : "");
    for (size_t i = 0; i < t->frame_count; i++)
        buf_printf(&o->text, "  %s:%u in %s\n", t->frames[i].file, t->frames[i].line,
                   t->frames[i].function);
    if (t->is_cut)
        buf_add_str(&o->text, "  … further frames could not be read\n");
    else if (t->frame_count == 0)
        buf_add_str(&o->text, "  no Python frame\n");
}

static int stack_of(const struct proc_root *root, int32_t pid, struct stack_output *o,
                    struct err *err)
{
    struct attach_target t;
    struct interpreter i;
    int r = attach_target_open(root, pid, ATTACH_READ, &t, err);
    if (r < 0)
        return r;
    r = interpreter_find_patiently(&t, &i, err);
    if (r == 0)
        r = stack_read(&t, &i, on_stack_thread, o, err);
    attach_target_close(&t);
    return r;
}

static int stack_exec(const struct cli_call *call, struct err *err)
{
    const struct cli_json_options *options = call->options;
    struct stack_output o = {.threads = options->json ? json_array() : NULL};
    struct proc_root root;
    int32_t pid;
    int r = cli_open_pid(call, &root, &pid, err);
    if (r == 0) {
        r = stack_of(&root, pid, &o, err);
        proc_root_close(&root);
    }
    if (r == 0)
        r = options->json ? cli_print_json(json_pack("{s:O}", "threads", o.threads))
                          : cli_print(&o.text);
    json_decref(o.threads);
    buf_fini(&o.text);
    return r;
}

const struct cli_command cmd_stack = {
    .name = "stack",
    .operands = "PID",
    .summary = "print the Python stacks of a running process, without stopping it",
    .description =
        "Prints what every thread of the Python process PID is doing, innermost function first. "
        "The stacks are read from the memory of the running process, which is neither stopped "
        "nor changed. A stack that changes meanwhile may be incomplete.\n"
        "\n"
        "This requires the right to trace the process: the same user and "
        "kernel.yama.ptrace_scope=0, or root.",
    .examples = "ebb stack 4711\n",
    .options = stack_table,
    .options_size = sizeof(struct cli_json_options),
    .exec = stack_exec,
};
