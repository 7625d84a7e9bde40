/* Tests the summary of a run: complete, with missing facts, with hostile names, and narrow. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "present/cells.h"
#include "present/quoted_json.h"
#include "present/summary_json.h"

#define PROCESS(pid, role, peak, command)                                                          \
    "{'pid':" #pid ",'role':'" role "','name':'python3','command':" command                        \
    ",'start_bytes':104857600,'floor_bytes':{'first':104857600,'last':" #peak "}"                  \
    ",'mean_bytes':157286400,'peak_bytes':" #peak ",'end_bytes':" #peak                            \
    ",'growth_bytes':104857600,'rate_bytes_per_min':52428800,'unique_bytes':94371840}"

#define FIRST                                                                                      \
    PROCESS(4711, "main", 1717986918, "['/usr/bin/python3','/home/me/train.py','--epochs','3']")
#define SECOND PROCESS(4720, "compile worker", 417333248, "[]")

static const char whole[] =
    "{'end':{'kind':'exited','status':0,'left_behind':1},'duration_s':725.2,'cwd':'/x',"
    "'run_dir':'/r/ebb-runs/train-1','ask_bytes':2550136832,"
    "'limit':{'kind':'cgroup v2','where':'/user.slice','limit_bytes':25769803776,"
    "'headroom_bytes':12884901888},"
    "'tree':{'samples':725,'start_bytes':1095216660,'floor_bytes':{'first':1084479242,"
    "'last':2072321720},'mean_bytes':1621352416,'peak_bytes':2254857830,"
    "'peak_high_bytes':2126008811,'end_bytes':2093796556,'growth_bytes':987842478,"
    "'rate_bytes_per_min':81893785,'unique_bytes':1717986918,'shared_bytes':356515840},"
    "'processes_seen':24,'roles':[{'role':'main','count':1,'largest_bytes':1717986918,"
    "'unique_bytes':1},{'role':'compile worker','count':20,'largest_bytes':417333248,"
    "'unique_bytes':314572800},{'role':'other','count':3,'largest_bytes':null}],"
    "'largest':{'pid':4711,'name':'python3','role':'main','peak_bytes':1717986918},"
    "'processes':[" FIRST "," SECOND "],"
    "'gpus':[{'name':'NVIDIA H200','total_bytes':150323855360,'used_bytes':12884901888,"
    "'job_peak_bytes':8589934592}],"
    "'recording':{'file':'trace.ebb','bytes':1258291,'readings':12,'error':null,'blocks_lost':0},"
    "'marks':{'received':7,'last_step':1200},"
    "'cost':{'cpu_s':0.42,'cpu_permyriad':6,'rss_bytes':6396313,'longest_unique_call_ms':0.8}}";

static void text_is(const char *text, enum summary_form form, size_t width, const char *want)
{
    struct buf b = {0};
    json_t *doc = quoted_json(text);
    summary_text(&b, doc, form, false, width);
    assert_string_equal(buf_str(&b), want);
    json_decref(doc);
    buf_fini(&b);
}

static void full_text_is(const char *text, size_t width, const char *want)
{
    text_is(text, SUMMARY_FULL, width, want);
}

/* ---- the end of `ebb run`: tests/data/summaries/NAME.json, tests/expected/summary-NAME.txt ----
 */

static const struct {
    const char *name;
    size_t most_lines; /* at 80 columns */
} golden[] = {{"leak-with-line", 14}, {"leak-on-gpu", 14},
              {"healthy", 3},         {"filling", 14},
              {"undecided", 4},       {"stopped-and-restarted", 14},
              {"out-of-memory", 14},  {"crash-with-traceback", 8},
              {"no-python", 14}};
enum { GOLDEN = sizeof golden / sizeof *golden };

static char source_dir[PATH_MAX], run_dir[] = "/tmp/ebb-summary-XXXXXX";

static void read_file(const char *path, struct buf *ret)
{
    assert_int_equal(io_read_all(AT_FDCWD, path, 1 << 20, ret), 0);
}

/* Reads the fixture NAME; @SRC@ stands for the source tree and @DIR@ for the folder of ebb-runs. */
static json_t *golden_doc(const char *name)
{
    char path[PATH_MAX + 64];
    struct buf raw = {0}, text = {0};
    json_error_t error;
    snprintf(path, sizeof path, "%s/tests/data/summaries/%s.json", source_dir, name);
    read_file(path, &raw);
    for (const char *at = buf_str(&raw); *at; at++) {
        bool is_src = strncmp(at, "@SRC@", 5) == 0, is_dir = strncmp(at, "@DIR@", 5) == 0;
        if (is_src || is_dir)
            buf_add_str(&text, is_src ? source_dir : run_dir), at += 4;
        else
            buf_add_byte(&text, (uint8_t)*at);
    }
    json_t *doc = json_loads(buf_str(&text), 0, &error);
    if (!doc)
        fail_msg("%s: %s at %d", name, error.text, error.position);
    buf_fini(&raw);
    buf_fini(&text);
    return doc;
}

static size_t count_lines(const char *text, size_t width)
{
    size_t lines = 0;
    for (; *text; lines++) {
        char line[1024];
        size_t len = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)len, text);
        assert_in_range(cell_columns(line), 0, width);
        text += len + (text[len] == '\n');
    }
    return lines;
}

/* EBB_UPDATE_GOLDEN=1 rewrites the expected files. */
static void summary_matches_expected_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOLDEN; i++) {
        char path[PATH_MAX + 64];
        struct buf text = {0}, want = {0};
        json_t *doc = golden_doc(golden[i].name);
        summary_text(&text, doc, SUMMARY_BRIEF, false, 80);
        snprintf(path, sizeof path, "%s/tests/expected/summary-%s.txt", source_dir, golden[i].name);
        FILE *update = getenv("EBB_UPDATE_GOLDEN") ? fopen(path, "w") : NULL;
        if (update) {
            fputs(buf_str(&text), update);
            fclose(update);
        }
        read_file(path, &want);
        assert_string_equal(buf_str(&text), buf_str(&want));
        assert_in_range(count_lines(buf_str(&text), 80), 1, golden[i].most_lines);
        json_decref(doc);
        buf_fini(&text);
        buf_fini(&want);
    }
}

static void summary_without_a_growth_rate_names_no_source_line(void **state)
{
    (void)state;
    struct buf text = {0};
    json_t *doc = golden_doc("leak-with-line");
    json_t *tree = json_object_get(json_object_get(doc, "verdict"), "tree");
    json_object_set_new(tree, "verdict", json_string("undecided"));
    json_object_set_new(tree, "leak", json_null());
    summary_text(&text, doc, SUMMARY_BRIEF, false, 80);
    assert_non_null(strstr(buf_str(&text), " --> train.py"));
    buf_fini(&text);
    json_object_set_new(tree, "rate_bytes_per_step", json_null());
    json_object_set_new(tree, "rate_bytes_per_min", json_null());
    summary_text(&text, doc, SUMMARY_BRIEF, false, 80);
    assert_null(strstr(buf_str(&text), "train.py"));
    assert_null(strstr(buf_str(&text), "help:"));
    assert_null(strstr(buf_str(&text), "ebb explain"));
    json_decref(doc);
    buf_fini(&text);
}

static void summary_omits_cause_of_host_growth_if_gpu_memory_ran_out(void **state)
{
    (void)state;
    struct buf text = {0};
    json_t *doc = golden_doc("out-of-memory");
    json_t *tree = json_object_get(json_object_get(doc, "verdict"), "tree");
    json_object_set_new(tree, "verdict", json_string("undecided"));
    json_object_set_new(tree, "leak", json_null());
    json_object_set_new(tree, "rate_bytes_per_step", json_null());
    json_object_set_new(tree, "rate_bytes_per_min", json_null());
    summary_text(&text, doc, SUMMARY_BRIEF, false, 80);
    assert_non_null(strstr(buf_str(&text), "ebb explain graph-kept"));
    buf_fini(&text);
    json_object_set_new(json_object_get(doc, "end"), "cause_kind", json_string("GPU memory"));
    json_object_set_new(doc, "gpu_failure", json_true());
    summary_text(&text, doc, SUMMARY_BRIEF, false, 80);
    assert_non_null(strstr(buf_str(&text), "out of memory on gpu 0: a request of 1.0 GiB"));
    assert_null(strstr(buf_str(&text), "graph-kept"));
    json_decref(doc);
    buf_fini(&text);
}

static void summary_omits_container_if_allocator_retains_the_memory(void **state)
{
    (void)state;
    struct buf text = {0};
    json_t *doc = golden_doc("leak-with-line");
    summary_text(&text, doc, SUMMARY_BRIEF, false, 80);
    assert_non_null(strstr(buf_str(&text), "kept alive by"));
    buf_fini(&text);
    json_t *list = json_object_get(json_object_get(doc, "diagnosis"), "hypotheses");
    json_object_set_new(json_array_get(list, 0), "code", json_string("allocator-retention"));
    summary_text(&text, doc, SUMMARY_BRIEF, false, 80);
    assert_non_null(strstr(buf_str(&text), "[allocator-retention]"));
    assert_null(strstr(buf_str(&text), "kept alive by"));
    json_decref(doc);
    buf_fini(&text);
}

static bool begins_with_unit(const char *s)
{
    static const char *const units[] = {"B ",  "KiB", "MiB",  "GiB", "TiB", "%",
                                        "ms ", "s ",  "min ", "h ",  "d ",  "steps"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strncmp(s, units[i], strlen(units[i])) == 0)
            return true;
    return false;
}

/* Fails if a line is wider than WIDTH or ends between a number and its unit. */
static void assert_fits(const char *text, size_t width)
{
    count_lines(text, width);
    for (const char *at = text; (at = strchr(at, '\n')); at++) {
        const char *next = at + 1 + strspn(at + 1, " ");
        if (at > text && at[-1] >= '0' && at[-1] <= '9' && at[1] == ' ' && begins_with_unit(next))
            fail_msg("wrapped inside a number at %zu columns:\n%s", width, text);
    }
}

static void summary_and_full_text_fit_any_width_from_60_to_200(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOLDEN; i++) {
        json_t *doc = golden_doc(golden[i].name);
        for (size_t width = 60; width <= 200; width++) {
            struct buf brief = {0}, full = {0};
            summary_text(&brief, doc, SUMMARY_BRIEF, false, width);
            summary_text(&full, doc, SUMMARY_FULL, false, width);
            assert_fits(buf_str(&brief), width);
            assert_fits(buf_str(&full), width);
            buf_fini(&brief);
            buf_fini(&full);
        }
        json_decref(doc);
    }
}

static void summary_begins_with_the_worst_verdict_of_host_and_gpus(void **state)
{
    struct buf text = {0};
    json_t *doc = golden_doc("leak-on-gpu");
    (void)state;
    summary_text(&text, doc, SUMMARY_BRIEF, false, 80);
    assert_int_equal(strncmp(buf_str(&text), "ebb  leaking on gpu 0: ", 23), 0);
    json_decref(doc);
    buf_fini(&text);
}

/* ---- the full text ---- */

static void full_summary_text_has_every_fact(void **state)
{
    (void)state;
    full_text_is(
        whole, 100,
        "undecided: there are no samples\n"
        "\n"
        "recording  /r/ebb-runs/train-1, finished in 12 min, 1200 steps, 1 process left over and "
        "killed\n"
        "memory     start 1.02 GiB, mean 1.51 GiB, peak 2.10 GiB, end 1.95 GiB\n"
        "baseline   1.01 GiB → 1.93 GiB, growth +942 MiB, rate +78.1 MiB/min\n"
        "sharing    1.60 GiB unique to one process, 340 MiB shared, counted once\n"
        "processes  24 in all, 1 main (1.60 GiB), 20 compile workers (up to 398 MiB each, 300 MiB "
        "unique),\n"
        "           3 other\n"
        "largest    1.60 GiB in python3 4711 (main)\n"
        "\n"
        " PID  ROLE            START   BASE  MEAN   PEAK    END  GROWTH  RATE/min  UNIQUE  "
        "COMMAND\n"
        "4711  main             100M  1.60G  150M  1.60G  1.60G   +100M    +50.0M   90.0M  python3 "
        "train.py …\n"
        "4720  compile worker   100M   398M  150M   398M   398M   +100M    +50.0M   90.0M  "
        "python3\n"
        "and 22 more\n"
        "\n"
        "request    --mem=2450M, limit 24.0 GiB (/user.slice), headroom 12.0 GiB\n"
        "gpu 0      NVIDIA H200, this job at most 8.00 GiB, 12.0 GiB of 140 GiB used at the end\n"
        "ebb cost   420 ms CPU (0.06 %), 6.10 MiB, longest page scan 800 µs\n");
}

#define SEGMENT(number, from, to, saved, by)                                                       \
    "{'segment':" #number ",'duration_s':725.2,'first_step':" #from ",'last_step':" #to            \
    ",'checkpoint_step':" saved ",'peak_bytes':433061888,'verdict':'undecided','end':{" by "}}"
#define ACT(t, act, trigger) "{'t_s':" #t ",'act':'" act "','trigger':'" trigger "'}"

static void summary_counts_guard_actions_and_lists_the_newest(void **state)
{
    (void)state;
    full_text_is(
        "{'end':{'kind':'exited','status':0},'limit':{'limit_bytes':536870912,'where':'/a/long'},"
        "'segments':[" SEGMENT(0, 1, 88, "87", "'by':'a planned restart'") "," SEGMENT(1, 88, 173, "171", "'by':'the guard'") "," SEGMENT(
            2, 172, 300, "null",
            "'cause_kind':'finished'") "],"
                                       "'guard':{'limit_is_given':true,'limit_bytes':536870912,'"
                                       "kernel_limit':true,'events':[" ACT(1, "ask", "plan") "," ACT(2, "term", "plan") "," ACT(
                                           3, "warn",
                                           "pace") "," ACT(3, "ask",
                                                           "pace") "," ACT(4, "checkpoint",
                                                                           "pace") "," ACT(5.5,
                                                                                           "term",
                                                                                           "level") "," ACT(725.2,
                                                                                                            "kill",
                                                                                                            "level") "," ACT(726,
                                                                                                                             "stand down",
                                                                                                                             "nothing") "]},"
                                                                                                                                        "'given_back':{'host':{'before_bytes':595591168,'peak_bytes':1138166333,"
                                                                                                                                        "'after_bytes':891289600,'freed_bytes':246876733},'shm':{'before_bytes':13107200,"
                                                                                                                                        "'peak_bytes':13111296,'after_bytes':13107200,'freed_bytes':4096}}}",
        80,
        "undecided: there are no samples\n\n"
        "limit      512 MiB (--limit)\n"
        "segments   #  time         from  to   saved  peak  verdict    ended by\n"
        "           0  12 min 05 s  1     88   87     413M  undecided  planned restart\n"
        "           1  12 min 05 s  88    173  171    413M  undecided  guard\n"
        "           2  12 min 05 s  172   300  –      413M  undecided  finished\n"
        "guard      limit 512 MiB (enforced by the kernel), 2 checkpoints requested,\n"
        "           1 written, stopped the job 2 times, killed it once,\n"
        "           the last actions (all in run.json)\n"
        "           · 3.0 s: requested a checkpoint (pace)\n"
        "           · 4.0 s: checkpoint written\n"
        "           · 5.5 s: sent SIGTERM (level)\n"
        "           · 12 min 05 s: killed the job (level)\n"
        "           · 12 min 06 s: memory fell, no action needed\n"
        "not freed  host 568 MiB before, 1.06 GiB peak, 850 MiB after, 235 MiB freed\n");
}

static void summary_omits_leftovers_of_other_jobs(void **state)
{
    (void)state;
    full_text_is("{'left':{'shm':[{'name':'torch_7','bytes':3000000,'is_jobs':true,'in_use':false,"
                 "'removed':true},{'name':'x\\n','bytes':0,'is_jobs':false}]}}",
                 80,
                 "undecided: there are no samples\n\n"
                 "left over  /dev/shm/torch_7 (2.86 MiB, removed)\n");
}

static void summary_omits_shared_memory_that_was_freed(void **state)
{
    (void)state;
    full_text_is("{'given_back':{'host':{'before_bytes':13107200,'peak_bytes':117964800,"
                 "'after_bytes':14107200,'freed_bytes':103857600}}}",
                 100, "undecided: there are no samples\n\n");
}

static void only_full_summary_shows_shared_memory_of_the_machine(void **state)
{
    (void)state;
    static const char run_json[] = "{'given_back':{'shm':{'before_bytes':13107200,'peak_bytes':"
                                   "117964800,'after_bytes':117964800,'freed_bytes':0}}}";
    full_text_is(run_json, 100,
                 "undecided: there are no samples\n\n"
                 "not freed  shm 12.5 MiB before, 113 MiB peak, 113 MiB after, 0 B freed\n");
    text_is(run_json, SUMMARY_BRIEF, 100, "ebb  undecided: there are no samples\n");
}

static void summary_of_an_empty_run_json_is_one_line(void **state)
{
    (void)state;
    full_text_is("{}", 80, "undecided: there are no samples\n\n");
    full_text_is("{'end':null,'tree':null,'processes':null,'limit':{},'gpus':[{}],'cost':{}}", 80,
                 "undecided: there are no samples\n\n");
}

static void summary_describes_every_way_a_run_can_end(void **state)
{
    (void)state;
    full_text_is("{'end':{'kind':'signalled','signal':'KILL'},'duration_s':2}", 80,
                 "killed by SIGKILL, after 2 s\n\n");
    full_text_is("{'end':{'kind':'signalled','signal':'SIGTERM'}}", 80, "killed by SIGTERM\n\n");
    full_text_is("{'end':{'kind':'signalled','signal':null}}", 80, "killed by SIGNAL\n\n");
    full_text_is("{'end':{'kind':'not_started','status':127}}", 80, "could not be started\n\n");
    full_text_is("{'end':{'kind':'exited','status':3}}", 80, "failed: exited with status 3\n\n");
    full_text_is("{'tree':{},'end':{'kind':'gone'},'duration_s':2}", 80,
                 "undecided: there are no samples\n\n"
                 "run        the job ended; watched for 2 s\n");
    full_text_is("{'tree':{},'end':{'kind':'watch_ended','by':'Ctrl-C'},'duration_s':2}", 80,
                 "undecided: there are no samples\n\n"
                 "run        the job is still running; watched for 2 s, stopped by Ctrl-C\n");
    full_text_is("{'end':{'kind':'watch_ended'},'duration_s':2}", 80,
                 "undecided: there are no samples\n\nrun        watched for 2 s\n");
}

/* A run.json written by another program may contain all of these values. */
static void summary_accepts_run_json_values_of_wrong_type(void **state)
{
    static const char *const docs[] = {
        "{'end':'x','tree':[],'processes':{},'roles':'y','largest':7,'cost':[],'gpus':{}}",
        "{'tree':{'peak_bytes':-5,'floor_bytes':7,'growth_bytes':'x','rate_bytes_per_min':[]}}",
        "{'processes':[null,7,'x',{},{'command':[null,7],'role':null,'pid':'x'}]}",
        "{'roles':[null,{}],'processes_seen':-1,'duration_s':-1e300}",
        "{'run_dir':7,'recording':7,'marks':7,'ask_bytes':1.5,'limit':7}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof docs / sizeof *docs; i++) {
        struct buf b = {0};
        json_t *doc = quoted_json(docs[i]);
        summary_text(&b, doc, SUMMARY_FULL, true, 0);
        assert_false(b.failed);
        json_decref(doc);
        buf_fini(&b);
    }
}

static void hostile_names_in_the_summary_are_escaped(void **state)
{
    struct buf b = {0};
    json_t *doc = quoted_json(whole);
    json_t *p = json_array_get(json_object_get(doc, "processes"), 0);
    static const char name[] = "x\n) R 1 \033[2J\r";
    (void)state;
    json_object_set_new(p, "command", json_pack("[s]", name));
    json_object_set_new(json_object_get(doc, "largest"), "name", json_string(name));
    json_object_set_new(json_object_get(doc, "limit"), "where", json_string(name));
    json_object_set_new(json_array_get(json_object_get(doc, "gpus"), 0), "name", json_string(name));
    json_object_set_new(doc, "run_dir", json_string("/tmp/\033]0;x\a\n"));
    summary_text(&b, doc, SUMMARY_FULL, false, 100);
    for (size_t i = 0; i < b.len; i++)
        assert_true((unsigned char)b.data[i] >= ' ' || b.data[i] == '\n');
    assert_non_null(strstr(buf_str(&b), "x\\n) R 1 \\e[2J\\x0d"));
    json_decref(doc);
    buf_fini(&b);
}

static void full_summary_text_fits_narrow_terminals(void **state)
{
    const size_t widths[] = {40, 60, 80, 100, 200};
    (void)state;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct buf b = {0};
        json_t *doc = quoted_json(whole);
        json_t *processes = json_object_get(doc, "processes");
        for (int k = 0; k < 30; k++)
            json_array_append(processes, json_array_get(processes, 0));
        summary_text(&b, doc, SUMMARY_FULL, false, widths[i]);
        size_t lines = count_lines(buf_str(&b), widths[i]);
        if (widths[i] >= 80)
            assert_in_range(lines, 1, 26);
        json_decref(doc);
        buf_fini(&b);
    }
}

#define WIDE_SEGMENT(n)                                                                            \
    "{'segment':" #n ",'duration_s':3599,'first_step':100000,'last_step':200000,"                  \
    "'checkpoint_step':200000,'peak_bytes':1717986918,'verdict':'plateaued',"                      \
    "'end':{'kind':'exited','status':124,'by':'a planned restart'}}"

static void narrow_segments_table_hides_columns(void **state)
{
    static const char two[] =
        "{'end':{'kind':'exited','status':0},'segments':[" WIDE_SEGMENT(0) "," WIDE_SEGMENT(1) "]}";
    (void)state;
    full_text_is(two, 80,
                 "undecided: there are no samples\n\n"
                 "segments   #  time         to      saved   peak   verdict    ended by\n"
                 "           0  59 min 59 s  200000  200000  1.60G  plateaued  planned restart\n"
                 "           1  59 min 59 s  200000  200000  1.60G  plateaued  planned restart\n");
    full_text_is(two, 40,
                 "undecided: there are no samples\n\n"
                 "segments   #  to      ended by\n"
                 "           0  200000  planned restart\n"
                 "           1  200000  planned restart\n");
}

static void summary_shows_the_first_and_newest_of_many_segments(void **state)
{
    struct buf b = {0};
    json_t *doc = quoted_json("{'end':{'kind':'exited','status':0},'segments':[]}");
    (void)state;
    for (int i = 0; i < 200; i++)
        json_array_append_new(json_object_get(doc, "segments"), json_pack("{s:i}", "segment", i));
    summary_text(&b, doc, SUMMARY_FULL, false, 80);
    assert_non_null(strstr(buf_str(&b), "\n           2 "));
    assert_non_null(strstr(buf_str(&b), " 188 more in run.json\n           191 "));
    assert_non_null(strstr(buf_str(&b), "\n           199 "));
    assert_null(strstr(buf_str(&b), "\n           3 "));
    assert_null(strstr(buf_str(&b), "\n           190 "));
    json_decref(doc);
    buf_fini(&b);
}

static void summary_text_is_equal_with_and_without_colours(void **state)
{
    struct buf plain = {0}, coloured = {0};
    json_t *doc = quoted_json(whole);
    (void)state;
    summary_text(&plain, doc, SUMMARY_FULL, false, 80);
    summary_text(&coloured, doc, SUMMARY_FULL, true, 80);
    assert_non_null(strstr(buf_str(&coloured), "\033["));
    size_t at = 0;
    for (size_t i = 0; i < coloured.len; i++) {
        if (coloured.data[i] == '\033') {
            while (coloured.data[i] != 'm')
                i++;
            continue;
        }
        assert_int_equal(coloured.data[i], plain.data[at++]);
    }
    assert_int_equal(at, plain.len);
    json_decref(doc);
    buf_fini(&plain);
    buf_fini(&coloured);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(summary_matches_expected_text),
        cmocka_unit_test(summary_without_a_growth_rate_names_no_source_line),
        cmocka_unit_test(summary_and_full_text_fit_any_width_from_60_to_200),
        cmocka_unit_test(summary_begins_with_the_worst_verdict_of_host_and_gpus),
        cmocka_unit_test(summary_omits_cause_of_host_growth_if_gpu_memory_ran_out),
        cmocka_unit_test(summary_omits_container_if_allocator_retains_the_memory),
        cmocka_unit_test(full_summary_text_has_every_fact),
        cmocka_unit_test(summary_counts_guard_actions_and_lists_the_newest),
        cmocka_unit_test(summary_omits_leftovers_of_other_jobs),
        cmocka_unit_test(summary_omits_shared_memory_that_was_freed),
        cmocka_unit_test(only_full_summary_shows_shared_memory_of_the_machine),
        cmocka_unit_test(summary_of_an_empty_run_json_is_one_line),
        cmocka_unit_test(summary_describes_every_way_a_run_can_end),
        cmocka_unit_test(summary_accepts_run_json_values_of_wrong_type),
        cmocka_unit_test(hostile_names_in_the_summary_are_escaped),
        cmocka_unit_test(full_summary_text_fits_narrow_terminals),
        cmocka_unit_test(narrow_segments_table_hides_columns),
        cmocka_unit_test(summary_shows_the_first_and_newest_of_many_segments),
        cmocka_unit_test(summary_text_is_equal_with_and_without_colours),
    };
    setlocale(LC_CTYPE, "C.UTF-8");
    if (!getcwd(source_dir, sizeof source_dir) || !mkdtemp(run_dir) || chdir(run_dir) < 0 ||
        mkdir("ebb-runs", 0700) < 0 || mkdir("ebb-runs/train-20260131-120000", 0700) < 0 ||
        symlink("train-20260131-120000", "ebb-runs/latest") < 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink("ebb-runs/latest");
    rmdir("ebb-runs/train-20260131-120000");
    rmdir("ebb-runs");
    rmdir(run_dir);
    return failed;
}
