/* The end of a run in words: whole, with much missing, with hostile names, narrow. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "present/cells.h"
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

/* JSON with ' for ", to be readable here. */
static json_t *doc_of(const char *text)
{
    char copy[8192];
    json_error_t error;
    size_t len = strlen(text);
    assert_true(len < sizeof copy);
    for (size_t i = 0; i <= len; i++)
        copy[i] = text[i] == '\'' ? '"' : text[i];
    json_t *doc = json_loads(copy, 0, &error);
    if (!doc)
        fail_msg("%s at %d", error.text, error.position);
    return doc;
}

static void summary_is(const char *text, int width, const char *want)
{
    struct buf b = {0};
    json_t *doc = doc_of(text);
    summary_text(&b, doc, false, width);
    assert_string_equal(buf_str(&b), want);
    json_decref(doc);
    buf_fini(&b);
}

static void a_whole_summary_reads_well(void **state)
{
    (void)state;
    summary_is(
        whole, 100,
        "ebb        exited with status 0 after 12 min 05 s, 1 process left behind and ended, last "
        "step 1200\n"
        "memory     start 1.02 GiB, mean 1.51 GiB, peak 2.10 GiB, end 1.95 GiB\n"
        "baseline   1.01 GiB → 1.93 GiB, growth +942 MiB, rate +78.1 MiB/min\n"
        "sharing    1.60 GiB unique to one process, 340 MiB shared, counted once\n"
        "processes  24 in all, 1 main (1.60 GiB), 20 compile workers (up to 398 MiB each, 300 MiB "
        "unique),\n"
        "           3 other\n"
        "largest    1.60 GiB in python3 4711 (main)\n"
        "\n"
        " PID  ROLE            START  FLOOR  MEAN   PEAK    END  GROWTH  RATE/min  UNIQUE  "
        "COMMAND\n"
        "4711  main             100M  1.60G  150M  1.60G  1.60G   +100M    +50.0M   90.0M  python3 "
        "train.py …\n"
        "4720  compile worker   100M   398M  150M   398M   398M   +100M    +50.0M   90.0M  "
        "python3\n"
        "and 22 more\n"
        "\n"
        "next time  ask for 2.38 GiB, the limit is 24.0 GiB (/user.slice), head-room 12.0 GiB\n"
        "gpu 0      NVIDIA H200, this job at most 8.00 GiB, 12.0 GiB of 140 GiB used at the end\n"
        "recording  /r/ebb-runs/train-1 (1.20 MiB)\n"
        "ebb cost   420 ms CPU (0.06 %), 6.10 MiB, longest look at its pages 800 µs\n");
}

#define SEGMENT(number, from, to, saved, by)                                                       \
    "{'segment':" #number ",'duration_s':725.2,'first_step':" #from ",'last_step':" #to            \
    ",'checkpoint_step':" saved ",'peak_bytes':433061888,'verdict':'undecided','end':{" by "}}"
#define ACT(t, act, trigger) "{'t_s':" #t ",'act':'" act "','trigger':'" trigger "'}"

static void the_acts_of_the_guard_are_counted_and_the_last_are_lines_of_80_columns(void **state)
{
    (void)state;
    summary_is(
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
        "ebb        exited with status 0\n"
        "limit      512 MiB (--limit)\n"
        "segments   #  time         from  to   saved  peak  verdict    ended by\n"
        "           0  12 min 05 s  1     88   87     413M  undecided  planned restart\n"
        "           1  12 min 05 s  88    173  171    413M  undecided  guard\n"
        "           2  12 min 05 s  172   300  –      413M  undecided  finished\n"
        "guard      limit 512 MiB (also the kernel's), 2 checkpoints asked for, 1 made,\n"
        "           stopped it 2 times, killed it once, the last acts (all: run.json)\n"
        "           · 3.0 s: asked for a checkpoint (pace)\n"
        "           · 4.0 s: the checkpoint was there\n"
        "           · 5.5 s: sent SIGTERM (level)\n"
        "           · 12 min 05 s: killed everything (level)\n"
        "           · 12 min 06 s: stood down\n"
        "given back host 568 MiB before, 1.06 GiB peak, 850 MiB after, 235 MiB freed\n");
}

static void left_over_files_of_others_are_not_shown(void **state)
{
    (void)state;
    summary_is("{'left':{'shm':[{'name':'torch_7','bytes':3000000,'is_jobs':true,'in_use':false,"
               "'removed':true},{'name':'x\\n','bytes':0,'is_jobs':false}]}}",
               80,
               "ebb        ended\n"
               "left over  /dev/shm/torch_7 (2.86 MiB, removed)\n");
}

static void memory_that_came_back_is_not_shown(void **state)
{
    (void)state;
    summary_is("{'given_back':{'host':{'before_bytes':13107200,'peak_bytes':117964800,"
               "'after_bytes':14107200,'freed_bytes':103857600}}}",
               100, "ebb        ended\n");
}

static void shared_memory_that_stays_is_told(void **state)
{
    (void)state;
    summary_is("{'given_back':{'shm':{'before_bytes':13107200,'peak_bytes':117964800,"
               "'after_bytes':117964800,'freed_bytes':0}}}",
               100,
               "ebb        ended\n"
               "given back shm 12.5 MiB before, 113 MiB peak, 113 MiB after, 0 B freed\n");
}

static void an_empty_document_is_one_line(void **state)
{
    (void)state;
    summary_is("{}", 80, "ebb        ended\n");
    summary_is("{'end':null,'tree':null,'processes':null,'limit':{},'gpus':[{}],'cost':{}}", 80,
               "ebb        ended\n");
}

static void every_end_has_its_words(void **state)
{
    (void)state;
    summary_is("{'end':{'kind':'signalled','signal':'KILL'},'duration_s':2}", 80,
               "ebb        killed by SIGKILL after 2.0 s\n");
    summary_is("{'end':{'kind':'signalled','signal':'SIGTERM'}}", 80,
               "ebb        killed by SIGTERM\n");
    summary_is("{'end':{'kind':'signalled','signal':null}}", 80, "ebb        killed by SIGNAL\n");
    summary_is("{'end':{'kind':'not_started','status':127}}", 80,
               "ebb        could not be started\n");
    summary_is("{'tree':{},'end':{'kind':'gone'},'duration_s':2}", 80,
               "ebb        the job ended, watched for 2.0 s\n");
    summary_is("{'tree':{},'end':{'kind':'watch_ended','by':'Ctrl-C'},'duration_s':2}", 80,
               "ebb        the job runs on, watched for 2.0 s, ended by Ctrl-C\n");
    summary_is("{'end':{'kind':'watch_ended'},'duration_s':2}", 80,
               "ebb        the machine, watched for 2.0 s\n");
}

/* Every one of these is in some run.json that somebody made. */
static void wrong_types_are_left_out(void **state)
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
        json_t *doc = doc_of(docs[i]);
        summary_text(&b, doc, true, 0);
        assert_false(b.failed);
        json_decref(doc);
        buf_fini(&b);
    }
}

static void hostile_names_stay_on_their_line(void **state)
{
    struct buf b = {0};
    json_t *doc = doc_of(whole);
    json_t *p = json_array_get(json_object_get(doc, "processes"), 0);
    static const char name[] = "x\n) R 1 \033[2J\r";
    (void)state;
    json_object_set_new(p, "command", json_pack("[s]", name));
    json_object_set_new(json_object_get(doc, "largest"), "name", json_string(name));
    json_object_set_new(json_object_get(doc, "limit"), "where", json_string(name));
    json_object_set_new(json_array_get(json_object_get(doc, "gpus"), 0), "name", json_string(name));
    json_object_set_new(doc, "run_dir", json_string("/tmp/\033]0;x\a\n"));
    summary_text(&b, doc, false, 100);
    for (size_t i = 0; i < b.len; i++)
        assert_true((unsigned char)b.data[i] >= ' ' || b.data[i] == '\n');
    assert_non_null(strstr(buf_str(&b), "x\\n) R 1 \\e[2J\\x0d"));
    json_decref(doc);
    buf_fini(&b);
}

static void no_line_is_wider_than_the_terminal_nor_the_text_longer_than_a_screen(void **state)
{
    const int widths[] = {0, 20, 40, 60, 80, 100, 300};
    (void)state;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        size_t lines = 0, most = widths[i] < 40 ? (widths[i] ? 40 : 80) : (size_t)widths[i];
        struct buf b = {0};
        json_t *doc = doc_of(whole);
        json_t *processes = json_object_get(doc, "processes");
        for (int k = 0; k < 30; k++)
            json_array_append(processes, json_array_get(processes, 0));
        most = most > 100 ? 100 : most;
        summary_text(&b, doc, false, widths[i]);
        char *save = NULL;
        (void)buf_str(&b);
        for (char *l = strtok_r(b.data, "\n", &save); l; l = strtok_r(NULL, "\n", &save), lines++)
            assert_in_range(cell_columns(l), 0, most);
        if (most >= 80)
            assert_in_range(lines, 1, 25);
        json_decref(doc);
        buf_fini(&b);
    }
}

#define WIDE_SEGMENT(n)                                                                            \
    "{'segment':" #n ",'duration_s':3599,'first_step':100000,'last_step':200000,"                  \
    "'checkpoint_step':200000,'peak_bytes':1717986918,'verdict':'plateaued',"                      \
    "'end':{'kind':'exited','status':124,'by':'a planned restart'}}"

static void segments_lose_columns_before_they_are_too_wide(void **state)
{
    static const char two[] =
        "{'end':{'kind':'exited','status':0},'segments':[" WIDE_SEGMENT(0) "," WIDE_SEGMENT(1) "]}";
    (void)state;
    summary_is(two, 80,
               "ebb        exited with status 0\n"
               "segments   #  time         to      saved   peak   verdict    ended by\n"
               "           0  59 min 59 s  200000  200000  1.60G  plateaued  planned restart\n"
               "           1  59 min 59 s  200000  200000  1.60G  plateaued  planned restart\n");
    summary_is(two, 40,
               "ebb        exited with status 0\n"
               "segments   #  to      ended by\n"
               "           0  200000  planned restart\n"
               "           1  200000  planned restart\n");
}

static void of_many_segments_the_first_and_the_newest_are_shown(void **state)
{
    struct buf b = {0};
    json_t *doc = doc_of("{'end':{'kind':'exited','status':0},'segments':[]}");
    (void)state;
    for (int i = 0; i < 200; i++)
        json_array_append_new(json_object_get(doc, "segments"), json_pack("{s:i}", "segment", i));
    summary_text(&b, doc, false, 80);
    assert_non_null(strstr(buf_str(&b), "\n           2 "));
    assert_non_null(strstr(buf_str(&b), " 188 more in run.json\n           191 "));
    assert_non_null(strstr(buf_str(&b), "\n           199 "));
    assert_null(strstr(buf_str(&b), "\n           3 "));
    assert_null(strstr(buf_str(&b), "\n           190 "));
    json_decref(doc);
    buf_fini(&b);
}

static void colours_change_no_words(void **state)
{
    struct buf plain = {0}, coloured = {0};
    json_t *doc = doc_of(whole);
    (void)state;
    summary_text(&plain, doc, false, 80);
    summary_text(&coloured, doc, true, 80);
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
        cmocka_unit_test(a_whole_summary_reads_well),
        cmocka_unit_test(the_acts_of_the_guard_are_counted_and_the_last_are_lines_of_80_columns),
        cmocka_unit_test(left_over_files_of_others_are_not_shown),
        cmocka_unit_test(memory_that_came_back_is_not_shown),
        cmocka_unit_test(shared_memory_that_stays_is_told),
        cmocka_unit_test(an_empty_document_is_one_line),
        cmocka_unit_test(every_end_has_its_words),
        cmocka_unit_test(wrong_types_are_left_out),
        cmocka_unit_test(hostile_names_stay_on_their_line),
        cmocka_unit_test(no_line_is_wider_than_the_terminal_nor_the_text_longer_than_a_screen),
        cmocka_unit_test(segments_lose_columns_before_they_are_too_wide),
        cmocka_unit_test(of_many_segments_the_first_and_the_newest_are_shown),
        cmocka_unit_test(colours_change_no_words),
    };
    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
