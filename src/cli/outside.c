/* What a command says of a process that ebb did not start. */
#include "cli/outside.h"

#include <jansson.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "cli/census.h"
#include "cli/cli.h"
#include "present/census.h"

enum { ROWS = 10 };

int outside_print(const struct proc_root *root, int32_t pid, const char *command,
                  const char *missing, bool as_json)
{
    struct err err = {""};
    struct buf line = {0}, out = {0};
    json_t *outside = census_process_json(root, pid, &err);
    if (!outside)
        return cli_failf(2, "%s: %s", command, err.text);
    json_t *doc = json_pack("{s:n,s:[],s:o,s:[s],s:n}", "run", "processes", "outside", outside,
                            "missing", missing, "start");
    if (census_start_line(root, pid, &line))
        json_object_set_new(doc, "start", json_text(buf_str(&line), line.len));
    if (!as_json)
        census_text(&out, doc, ROWS, cli_colour(STDOUT_FILENO), cli_width(STDOUT_FILENO));
    else if (json_print(&out, doc, 2) < 0)
        out.failed = true;
    int status = cli_print(&out);
    buf_fini(&line);
    buf_fini(&out);
    json_decref(doc);
    return status ? status : 2;
}
