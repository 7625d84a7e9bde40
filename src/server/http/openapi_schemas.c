/* The documents of the API, key by key, and the parameters of its queries. */
#include "server/http/openapi.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "server/jobs/state.h"

/* A type is "integer", "number", "string", "boolean", "object", "any", or a document's name; "[…]"
 * is a list of it, "{…}" an object with values of it; a "?" behind it: or null. A key that begins
 * with "+" must be there. */
struct field {
    const char *schema, *key, *type, *what;
};

static const struct field fields[] = {
    {"Error", "+error", "ErrorBody", NULL},
    {"ErrorBody", "+status", "integer", "the status of the answer"},
    {"ErrorBody", "+message", "string", "one sentence"},
    {"Nothing", NULL, NULL, NULL},
    {"Anything", NULL, NULL, NULL},
    {"Login", "+token", "string", NULL},
    {"Session", "+write", "boolean", "whether it may change something"},
    {"Session", "key", "string", "of a new session: sent as X-Ebb-Key beside the cookie"},
    {"Session", "view", "string",
     "of a new session: the parameter view of a report's address, beside the cookie"},
    {"Health", "+status", "string", "ok or degraded"},
    {"Health", "+version", "string", NULL},
    {"Health", "+now_s", "number", NULL},
    {"Health", "+trouble", "[string]", "sentences, for who has a token"},

    {"Machine", "+host", "string", NULL},
    {"Machine", "+version", "string", NULL},
    {"Machine", "+kernel", "string", NULL},
    {"Machine", "+now_s", "number", NULL},
    {"Machine", "+cpus", "integer", NULL},
    {"Machine", "+load", "[number]", "of 1, 5 and 15 minutes"},
    {"Machine", "+memory", "MachineMemory", NULL},
    {"Machine", "+swap", "MachineSwap", NULL},
    {"Machine", "+limit", "MachineLimit?", "the one that binds this server"},
    {"Machine", "+pressure", "MachinePressure", "shares of the last 10 s in which tasks stalled"},
    {"Machine", "+gpus", "[MachineGpu]", NULL},
    {"Machine", "+room", "Room", "for jobs"},
    {"Machine", "+server", "Server", NULL},
    {"MachineMemory", "+total_bytes", "integer?", NULL},
    {"MachineMemory", "+available_bytes", "integer?", NULL},
    {"MachineMemory", "+used_bytes", "integer?", NULL},
    {"MachineMemory", "+anon_bytes", "integer?", NULL},
    {"MachineMemory", "+shm_bytes", "integer?", NULL},
    {"MachineSwap", "+total_bytes", "integer?", NULL},
    {"MachineSwap", "+free_bytes", "integer?", NULL},
    {"MachineLimit", "+kind", "string", NULL},
    {"MachineLimit", "+where", "string", NULL},
    {"MachineLimit", "+limit_bytes", "integer", NULL},
    {"MachineLimit", "+used_bytes", "integer?", NULL},
    {"MachinePressure", "+some_avg10", "number?", NULL},
    {"MachinePressure", "+full_avg10", "number?", NULL},
    {"MachineGpu", "+index", "integer", NULL},
    {"MachineGpu", "+name", "string", NULL},
    {"MachineGpu", "+total_bytes", "integer?", NULL},
    {"MachineGpu", "+used_bytes", "integer?", NULL},
    {"Room", "+slots", "RoomCount", NULL},
    {"Room", "+memory", "RoomMemory", "all_bytes null: not limited"},
    {"Room", "+gpus", "RoomGpus", NULL},
    {"Room", "+queued", "integer", "jobs that wait"},
    {"RoomCount", "+all", "integer", NULL},
    {"RoomCount", "+used", "integer", NULL},
    {"RoomMemory", "+all_bytes", "integer?", NULL},
    {"RoomMemory", "+used_bytes", "integer", NULL},
    {"RoomGpus", "+all", "integer", NULL},
    {"RoomGpus", "+used", "integer", NULL},
    {"RoomGpus", "+in_use", "[integer]", "their numbers"},
    {"Server", "+pid", "integer", NULL},
    {"Server", "+started_s", "number", NULL},
    {"Server", "+rss_bytes", "integer?", NULL},
    {"Server", "+connections", "integer", NULL},
    {"Server", "+viewers", "integer", "of the live stream"},

    {"Jobs", "+jobs", "[Job]", "newest first"},
    {"Jobs", "+more", "boolean", "there are older ones"},
    {"Job", "+id", "integer", "counts from 1"},
    {"Job", "+name", "string", NULL},
    {"Job", "+command", "[string]", NULL},
    {"Job", "+cwd", "string?", NULL},
    {"Job", "+env", "[string]", "names of its variables"},
    {"Job", "+options", "object", "of ebb run, by name"},
    {"Job", "+priority", "integer", NULL},
    {"Job", "+after", "[integer]", NULL},
    {"Job", "+limit", "string?", NULL},
    {"Job", "+state", "State", NULL},
    {"Job", "+reason", "string?", NULL},
    {"Job", "waits_for", "string?", "while queued: why it has not started yet"},
    {"Job", "memory_bytes", "integer?", "set aside for it"},
    {"Job", "memory_from", "string?", "declared, limit or learned"},
    {"Job", "gpus_wanted", "integer?", NULL},
    {"Job", "gpus", "[integer]?", "which it has"},
    {"Job", "+submitted_s", "number", NULL},
    {"Job", "started_s", "number?", NULL},
    {"Job", "ended_s", "number?", NULL},
    {"Job", "run_dir", "string?", NULL},
    {"Job", "pid", "integer?", NULL},
    {"Job", "segment", "integer?", NULL},
    {"Job", "status", "integer?", "its exit status"},
    {"Job", "cause", "string?", "why it ended"},
    {"Job", "cause_kind", "string?", NULL},
    {"Job", "progress", "Progress?", NULL},
    {"Job", "memory", "Memory?", "of an ended job the last and the peak"},
    {"Job", "verdict", "Verdict?", "of the tree"},
    {"Job", "spark", "[integer?]?", "memory over the whole run, evenly in time"},
    {"Job", "given_back", "GivenBack?", "after the end"},
    {"Job", "log_bytes", "integer?", "output so far"},
    {"Job", "rerun_of", "integer?", NULL},
    {"Job", "changes", "[Change]", "of one job alone; oldest first"},
    {"Progress", "step", "integer?", NULL},
    {"Progress", "max_steps", "integer?", NULL},
    {"Progress", "epoch", "number?", NULL},
    {"Progress", "steps_per_s", "number?", NULL},
    {"Progress", "eta_s", "number?", NULL},
    {"Memory", "job_bytes", "integer?", NULL},
    {"Memory", "peak_bytes", "integer?", NULL},
    {"Memory", "unique_bytes", "integer?", NULL},
    {"Memory", "limit_bytes", "integer?", NULL},
    {"Memory", "headroom_bytes", "integer?", NULL},
    {"Memory", "gpu_bytes", "integer?", NULL},
    {"Verdict", "+verdict", "string", NULL},
    {"Verdict", "leak", "boolean?", NULL},
    {"Verdict", "confidence", "number?", NULL},
    {"Verdict", "rate_bytes_per_min", "any", NULL},
    {"Verdict", "rate_bytes_per_step", "any", NULL},
    {"Verdict", "oom_eta_s", "Interval?", NULL},
    {"Verdict", "sentence", "string?", NULL},
    {"Interval", "low", "number?", NULL},
    {"Interval", "high", "number?", NULL},
    {"GivenBack", "host_bytes", "integer?", NULL},
    {"GivenBack", "shm_bytes", "integer?", NULL},
    {"GivenBack", "gpu_bytes", "integer?", NULL},
    {"GivenBack", "clean", "boolean?", NULL},
    {"Change", "+t_s", "number", NULL},
    {"Change", "+state", "State", NULL},
    {"Change", "+reason", "string?", NULL},

    {"Request", "+command", "[string]", "the program and its arguments"},
    {"Request", "name", "string", "runs of one name learn from each other"},
    {"Request", "cwd", "string", NULL},
    {"Request", "env", "{string}", NULL},
    {"Request", "gpus", "integer", "how many"},
    {"Request", "memory", "string", "what it is expected to need, like 24G"},
    {"Request", "limit", "string", "what the guard defends, like 24G or 80%"},
    {"Request", "priority", "integer", "-100 to 100"},
    {"Request", "after", "[integer]", "jobs that must have succeeded"},
    {"Request", "options", "object", "of ebb run, by name; true for those without a value"},
    {"Cancel", "reason", "string?", NULL},
    {"Cancel", "grace_s", "number?", "between asking and killing"},

    {"Samples", "+id", "integer", NULL},
    {"Samples", "t0_s", "number?", "the job's start, from which times count"},
    {"Samples", "until_s", "number?", NULL},
    {"Samples", "limit_bytes", "integer?", NULL},
    {"Samples", "+series", "SamplesSeries", NULL},
    {"Samples", "+processes", "[SamplesProcess]", NULL},
    {"Samples", "+gpus", "[SamplesGpu]", NULL},
    {"Samples", "+marks", "[Mark]", NULL},
    {"SamplesSeries", "+t_s", "[number]", NULL},
    {"SamplesSeries", "+job_low_bytes", "[integer?]", NULL},
    {"SamplesSeries", "+job_high_bytes", "[integer?]", NULL},
    {"SamplesSeries", "+unique_bytes", "[integer?]", NULL},
    {"SamplesSeries", "+rss_sum_bytes", "[integer?]", NULL},
    {"SamplesProcess", "+pid", "integer", NULL},
    {"SamplesProcess", "name", "string?", NULL},
    {"SamplesProcess", "role", "string?", NULL},
    {"SamplesProcess", "+t_s", "[number]", NULL},
    {"SamplesProcess", "+rss_bytes", "[integer?]", NULL},
    {"SamplesGpu", "+index", "integer", NULL},
    {"SamplesGpu", "name", "string?", NULL},
    {"SamplesGpu", "+t_s", "[number]", NULL},
    {"SamplesGpu", "+job_bytes", "[integer?]", NULL},
    {"SamplesGpu", "+used_bytes", "[integer?]", NULL},
    {"Mark", "+t_s", "number", NULL},
    {"Mark", "+kind", "string", NULL},
    {"Mark", "step", "integer?", NULL},
    {"Mark", "epoch", "number?", NULL},
    {"Events", "+events", "[Event]", NULL},
    {"Event", "+kind", "string", "guard, segment or state; the other keys are as in run.json"},
};

/* TYPE of LEN bytes, as above. */
static json_t *type_schema(const char *type, size_t len)
{
    static const char *const simple[] = {"integer", "number", "string", "boolean", "object"};
    char name[64];
    if (len > 1 && type[len - 1] == '?')
        return json_pack("{s:[o, {s:s}]}", "anyOf", type_schema(type, len - 1), "type", "null");
    if (type[0] == '[')
        return json_pack("{s:s, s:o}", "type", "array", "items", type_schema(type + 1, len - 2));
    if (type[0] == '{')
        return json_pack("{s:s, s:o}", "type", "object", "additionalProperties",
                         type_schema(type + 1, len - 2));
    snprintf(name, sizeof(name), "%.*s", (int)len, type);
    if (strcmp(name, "any") == 0)
        return json_object();
    for (size_t i = 0; i < sizeof(simple) / sizeof(simple[0]); i++) {
        if (strcmp(name, simple[i]) == 0)
            return json_pack("{s:s}", "type", name);
    }
    char path[96];
    snprintf(path, sizeof(path), "#/components/schemas/%s", name);
    return json_pack("{s:s}", "$ref", path);
}

static void add_field(json_t *schema, const struct field *f)
{
    bool is_required = f->key[0] == '+';
    const char *key = f->key + is_required;
    json_t *type = type_schema(f->type, strlen(f->type));
    if (f->what)
        json_object_set_new(type, "description", json_string(f->what));
    json_object_set_new(json_object_get(schema, "properties"), key, type);
    if (is_required)
        json_array_append_new(json_object_get(schema, "required"), json_string(key));
}

json_t *openapi_schemas(void)
{
    json_t *schemas = json_object(), *states = json_array();
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        json_t *schema = json_object_get(schemas, fields[i].schema);
        if (!schema) {
            schema = json_pack("{s:s, s:{}, s:[]}", "type", "object", "properties", "required");
            json_object_set_new(schemas, fields[i].schema, schema);
        }
        if (fields[i].key)
            add_field(schema, &fields[i]);
    }
    for (unsigned s = 0; s < JOB_STATES; s++)
        json_array_append_new(states, json_string(job_state_word((enum job_state)s)));
    json_object_set_new(schemas, "State",
                        json_pack("{s:s, s:o}", "type", "string", "enum", states));
    return schemas;
}

static const struct {
    const char *name, *type, *what;
    double min, max; /* both 0: no bounds */
} parameters[] = {
    {"id", "integer", "the job's number", 1, 0},
    {"state", "string", "states with commas between; active and ended stand for several", 0, 0},
    {"name", "string", "of the jobs", 0, 0},
    {"before", "integer", "jobs with a smaller number", 1, 1e15},
    {"limit", "integer", "how many at most", 1, 500},
    {"until", "string", "states as of state: answers when it is one of them, or has ended", 0, 0},
    {"timeout_s", "number", "how long to wait for it", 0, 60},
    {"from_s", "number", "from the job's start", 0, 1e9},
    {"to_s", "number", "from the job's start", 0, 1e9},
    {"points", "integer", "at most this many", 16, 4000},
    {"tail", "integer", "the last so many bytes", 1, 1 << 20},
    {"offset", "integer", "from this byte on; an answer may end before the log does", 0, 9e15},
    {"wait_s", "number", "wait so long for more", 0, 60},
    {"view", "string", "of the session, where no header can be sent", 0, 0},
};

json_t *openapi_parameter(const char *name, const char *in)
{
    for (size_t i = 0; i < sizeof(parameters) / sizeof(parameters[0]); i++) {
        if (strcmp(parameters[i].name, name) != 0)
            continue;
        json_t *schema = json_pack("{s:s}", "type", parameters[i].type);
        if (parameters[i].max > 0) {
            json_object_set_new(schema, "minimum", json_real(parameters[i].min));
            json_object_set_new(schema, "maximum", json_real(parameters[i].max));
        }
        return json_pack("{s:s, s:s, s:b, s:s, s:o}", "name", name, "in", in, "required",
                         strcmp(in, "path") == 0, "description", parameters[i].what, "schema",
                         schema);
    }
    return NULL;
}
