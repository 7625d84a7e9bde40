/* `ebb explain`: prints the page of a diagnosis. The pages come from docs/troubleshooting.md, which
 * is embedded in the program. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "diagnose/hypothesis.h"

__asm__(".pushsection .rodata\nexplain_pages:\n.incbin \"" EBB_EXPLAIN_PAGES
        "\"\n.byte 0\n.popsection\n");
#pragma GCC visibility push(hidden)
extern const char explain_pages[];
#pragma GCC visibility pop

/* Returns the section "### CODE" up to the next heading, or NULL if there is no such section. */
static const char *explain_find(const char *code, size_t *ret_len)
{
    char heading[64];
    snprintf(heading, sizeof heading, "\n### %s\n", code);
    const char *from = strstr(explain_pages, heading);
    if (!from)
        return NULL;
    from += strlen(heading);
    from += strspn(from, "\n");
    const char *end = strstr(from, "\n#");
    *ret_len = end ? (size_t)(end - from) : strlen(from);
    return from;
}

/* Converts Markdown to the format of cli_block_next, with each paragraph on one line, code
 * indented, and no asterisks. */
static void explain_flatten(struct buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        bool is_code = i + 1 < len && (text[i + 1] == '\n' || text[i + 1] == ' ');
        bool was_break = out->len && out->data[out->len - 1] == '\n';
        if (text[i] == '*' && i + 1 < len && text[i + 1] == '*')
            i++;
        else if (text[i] == '\n' && !is_code && !was_break && i + 1 < len)
            buf_add_byte(out, ' ');
        else
            buf_add_byte(out, (uint8_t)text[i]);
    }
}

static void explain_page(struct buf *out, enum hypothesis_id id, const char *text, size_t len)
{
    struct buf flat = {0};
    explain_flatten(&flat, text, len);
    buf_printf(out, "%s: %s\n", hypothesis_code(id), hypothesis_title(id));
    cli_put_blocks(out, buf_str(&flat), "", cli_width(STDOUT_FILENO));
    out->failed = out->failed || flat.failed;
    buf_fini(&flat);
}

/* ---- JSON ---- */

/* The parts of a page: the bold title with which each part begins, and its key in JSON. */
static const char *const explain_parts[][2] = {{"**What it means.**", "meaning"},
                                               {"**How ebb knows.**", "evidence"},
                                               {"**What to do.**", "fix"},
                                               {"**How to check.**", "check"}};
enum { EXPLAIN_PARTS = sizeof explain_parts / sizeof *explain_parts };

static json_t *explain_part_json(const char *from, const char *end)
{
    while (from < end && (*from == ' ' || *from == '\n'))
        from++;
    while (end > from && end[-1] == '\n')
        end--;
    return json_stringn(from, (size_t)(end - from));
}

/* Converts a page to JSON, with one Markdown text for each part. TEXT has LEN bytes. If TEXT is
 * NULL, the result contains only the code and the title. */
static json_t *explain_json(enum hypothesis_id id, const char *text, size_t len)
{
    json_t *doc =
        json_pack("{s:s, s:s}", "code", hypothesis_code(id), "title", hypothesis_title(id));
    const char *at[EXPLAIN_PARTS + 1] = {[EXPLAIN_PARTS] = text ? text + len : NULL};
    for (size_t i = EXPLAIN_PARTS; text && i-- > 0;) {
        at[i] = memmem(text, len, explain_parts[i][0], strlen(explain_parts[i][0]));
        if (!at[i])
            return doc; /* a test checks that every page has all parts */
    }
    for (size_t i = 0; text && i < EXPLAIN_PARTS; i++)
        json_object_set_new(doc, explain_parts[i][1],
                            explain_part_json(at[i] + strlen(explain_parts[i][0]), at[i + 1]));
    return doc;
}

static const struct option_desc options_table[] = {
    CLI_JSON_OPTION("print the explanation, or the list of codes, as JSON"),
    {0},
};

static int explain_list(bool as_json)
{
    json_t *list = json_array();
    struct buf out = {0};
    for (int i = 0; i < HYPOTHESIS_COUNT; i++) {
        enum hypothesis_id id = (enum hypothesis_id)i;
        json_array_append_new(list, explain_json(id, NULL, 0));
        buf_printf(&out, "%-20s %s\n", hypothesis_code(id), hypothesis_title(id));
    }
    if (!as_json) {
        json_decref(list);
        return cli_print(&out);
    }
    buf_fini(&out);
    return cli_print_json(list);
}

static int explain_exec(const struct cli_call *call, struct err *err)
{
    const struct cli_json_options *o = call->options;
    const char *codes[HYPOTHESIS_COUNT], *wanted = call->argc ? call->argv[0] : NULL;
    struct buf out = {0};
    size_t len = 0;
    int found = -1;
    if (!wanted)
        return explain_list(o->json);
    for (int i = 0; i < HYPOTHESIS_COUNT; i++) {
        codes[i] = hypothesis_code((enum hypothesis_id)i);
        found = strcmp(codes[i], wanted) == 0 ? i : found;
    }
    const char *text = found >= 0 ? explain_find(wanted, &len) : NULL;
    const char *nearest = text ? NULL : option_nearest(wanted, codes, HYPOTHESIS_COUNT);
    if (nearest)
        return err_set(err, -ENOENT, "unknown code \"%.64s\"; did you mean %s?", wanted, nearest);
    if (!text)
        return err_set(err, -ENOENT, "unknown code \"%.64s\"; `ebb explain` lists all codes",
                       wanted);
    if (o->json)
        return cli_print_json(explain_json((enum hypothesis_id)found, text, len));
    explain_page(&out, (enum hypothesis_id)found, text, len);
    return cli_print(&out);
}

const struct cli_command cmd_explain = {
    .name = "explain",
    .operands = "[CODE]",
    .summary = "explain a diagnosis, or list all of them",
    .description = "`ebb run`, `ebb diagnose` and `ebb report` print the code of a diagnosis in "
                   "brackets, such as [graph-kept]. This command explains the code: its "
                   "meaning, the evidence, the fix, and how to verify it. Codes do not change "
                   "between versions.",
    .examples = "ebb explain\n"
                "ebb explain graph-kept\n"
                "ebb explain graph-kept --json | jq -r .fix\n",
    .options = options_table,
    .options_size = sizeof(struct cli_json_options),
    .exec = explain_exec,
};
