/* Verdicts in words: each word, with figures missing, with hostile names, narrow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "judge/verdicts.h"
#include "present/cells.h"
#include "present/document.h"
#include "present/summary_json.h"
#include "present/verdict.h"

#define RATE(v, l, h) "{'value':" #v ",'low':" #l ",'high':" #h "}"
#define FLOOR "'floor_bytes':{'first':1073741824,'last':2147483648},'peak_bytes':3221225472"

/* ' for " to be read more easily. */
static json_t *parse(const char *text)
{
    char copy[8192];
    assert_true(strlen(text) < sizeof copy);
    strcpy(copy, text);
    for (char *c = copy; *c; c++)
        if (*c == '\'')
            *c = '"';
    json_t *doc = json_loads(copy, 0, NULL);
    assert_non_null(doc);
    return doc;
}

/* The text of verdict_doc on DOC, which is released. */
static void text_of(struct buf *out, json_t *doc, size_t width)
{
    struct verdicts v = {0};
    struct doc d = {0};
    assert_int_equal(verdicts_read(doc, &v), 0);
    verdict_doc(&d, &v);
    doc_terminal(out, &d, false, width);
    doc_fini(&d);
    verdicts_fini(&v);
    json_decref(doc);
}

static void headline_is(const char *json, const char *expected)
{
    struct buf out = {0};
    struct verdicts v = {0};
    json_t *doc = json_pack("{s:o}", "tree", parse(json));
    assert_int_equal(verdicts_read(doc, &v), 0);
    verdict_headline(&out, &v.job, &v);
    assert_string_equal(buf_str(&out), expected);
    verdicts_fini(&v);
    json_decref(doc);
    buf_fini(&out);
}

static void figures_of_the_jobs_own_are_named_before_their_verdict(void **state)
{
    json_t *doc =
        parse("{'tree':{'verdict':'stable','leak':false,'confidence':0.97," FLOOR "},"
              "'processes':[],'gpus':[],'series':[{'name':'heap_live_bytes','label':"
              "'heap (live)','pid':606,'verdict':'stable','leak':false,'confidence':0.9," FLOOR
              "},{'name':'x\\u001b_bytes','label':'x\\u001b_bytes','pid':null,"
              "'verdict':'undecided','leak':null,'evidence':['one reading']}]}");
    struct buf out = {0};
    (void)state;
    text_of(&out, doc, 100);
    assert_non_null(strstr(buf_str(&out), "\nseries     heap (live) of process 606: stable: it is "
                                          "flat at 2.00 GiB (confidence 90 %)\n"));
    assert_non_null(strstr(buf_str(&out), "\nseries     x\\e_bytes: undecided: not enough to say: "
                                          "one reading\n"));
    buf_fini(&out);
}

static void each_word_has_its_sentence(void **state)
{
    (void)state;
    headline_is("{'verdict':'stable','confidence':0.97," FLOOR "}",
                "memory is flat at 2.00 GiB (confidence 97 %)");
    headline_is("{'verdict':'spiking','confidence':0.9," FLOOR "}",
                "memory peaks at 3.00 GiB and comes back to 2.00 GiB (confidence 90 %)");
    headline_is("{'verdict':'plateaued','confidence':0.97," FLOOR
                ",'growth_ended':{'t_s':61.5,'step':83,'at':'the end of the first epoch'}}",
                "memory grew from 1.00 GiB to 2.00 GiB and stopped at step 83, the end of the "
                "first epoch (confidence 97 %)");
    headline_is("{'verdict':'plateaued','confidence':0.97,"
                "'floor_bytes':{'first':782336,'last':782340},"
                "'growth_ended':{'t_s':6.5,'step':40,'at':'step'}}",
                "memory grew and stopped at step 40 (confidence 97 %)");
    headline_is("{'verdict':'plateaued','confidence':0.97," FLOOR
                ",'growth_ended':{'t_s':6.5,'step':40,'at':'an evaluation'}}",
                "memory grew from 1.00 GiB to 2.00 GiB and stopped at step 40, an evaluation "
                "(confidence 97 %)");
    headline_is("{'verdict':'plateaued','confidence':0.8," FLOOR
                ",'growth_ended':{'t_s':600,'step':null,'at':'none'}}",
                "memory grew from 1.00 GiB to 2.00 GiB and stopped after 10 min 00 s (confidence "
                "80 %)");
    headline_is("{'verdict':'stepping','confidence':0.9,'event':'eval','rate_bytes_per_min':"
                "null,'rate_bytes_per_step':" RATE(1048576, 524288, 2097152) "," FLOOR "}",
                "memory rises at each evaluation and stays, by +1.00 MiB a step (+512 KiB to "
                "+2.00 MiB) (confidence 90 %)");
}

static void a_leak_says_who_how_fast_and_until_when(void **state)
{
    (void)state;
    headline_is("{'verdict':'leaking','leak':true,'confidence':0.95,'rate_bytes_per_min':" RATE(
                    104857600, 94371840,
                    115343360) ",'rate_bytes_per_step':null,'grower':{'pid':606,'name':'python3',"
                               "'role':'main'},'oom':{'limit_bytes':25769803776,'eta_s':{'low':"
                               "720,'high':900}}}",
                "process 606 python3 (main) keeps growing, by +100 MiB a minute (+90.0 MiB to +110 "
                "MiB); the limit of 24.0 GiB is reached in 12 min 00 s to 15 min 00 s (confidence "
                "95 %)");
}

static void rates_of_several_processes_are_not_told_of_one(void **state)
{
    (void)state;
#define MANY                                                                                       \
    "'rate_bytes_per_step':" RATE(                                                                 \
        1048576, 524288,                                                                           \
        2097152) ",'rate_bytes_per_min':null,"                                                     \
                 "'growing':2,'grower':{'pid':606,'name':'worker','role':'data worker'}}"
    headline_is("{'verdict':'leaking','confidence':0.9," MANY,
                "2 processes, first of them 606 worker (data worker), keep growing, by +1.00 MiB a "
                "step (+512 KiB to +2.00 MiB) (confidence 90 %)");
    headline_is("{'verdict':'filling','confidence':0.9," MANY,
                "2 processes, first of them 606 worker (data worker), grow within the first pass "
                "over the data, by +1.00 MiB a step (+512 KiB to +2.00 MiB) (confidence 90 %)");
    headline_is("{'verdict':'stepping','event':'save','confidence':0.9," MANY,
                "2 processes, first of them 606 worker (data worker), rise at each checkpoint and "
                "stay, by +1.00 MiB a step (+512 KiB to +2.00 MiB) (confidence 90 %)");
#undef MANY
}

static void an_interval_that_is_one_figure_is_left_out(void **state)
{
    (void)state;
    headline_is("{'verdict':'leaking','rate_bytes_per_min':null,'rate_bytes_per_step':" RATE(
                    1048576, 1048570, 1048580) "}",
                "memory keeps growing, by +1.00 MiB a step");
    headline_is("{'verdict':'leaking','rate_bytes_per_min':null,'rate_bytes_per_step':" RATE(
                    1048576, 1048576, 2097152) "}",
                "memory keeps growing, by +1.00 MiB a step (+1.00 MiB to +2.00 MiB)");
}

static void an_end_that_is_not_in_sight_has_only_an_earliest(void **state)
{
    (void)state;
    headline_is("{'verdict':'leaking','confidence':0.9,'rate_bytes_per_min':null,"
                "'rate_bytes_per_step':null,'oom':{'limit_bytes':1073741824,'eta_s':{'low':60,"
                "'high':null}}}",
                "memory keeps growing; the limit of 1.00 GiB is reached in 1 min 00 s at the "
                "earliest (confidence 90 %)");
}

static void a_time_whose_ends_read_the_same_is_told_once(void **state)
{
    (void)state;
    headline_is("{'verdict':'leaking','confidence':0.9,'rate_bytes_per_min':null,"
                "'rate_bytes_per_step':null,'oom':{'limit_bytes':1073741824,'eta_s':{'low':5270,"
                "'high':5290}}}",
                "memory keeps growing; the limit of 1.00 GiB is reached in 1 h 28 min (confidence "
                "90 %)");
}

static void filling_says_both_ends_and_when_it_will_be_known(void **state)
{
    (void)state;
    headline_is("{'verdict':'filling','leak':null,'confidence':0.9,'rate_bytes_per_step':" RATE(
                    104857600, 99614720,
                    110100480) ",'rate_bytes_per_min':null,'forecast':{'ceiling_bytes':10737418240,"
                               "'decided_at_step':83,'decided_at_s':null},'oom':{'limit_bytes':"
                               "25769803776,'eta_s':null,'eta_steps':{'low':150,'high':170}}}",
                "memory grows within the first pass over the data, by +100 MiB a step (+95.0 MiB "
                "to +105 MiB); if it is a cache it ends near 10.0 GiB; it will be known at step "
                "83; if it is a leak, the limit of 24.0 GiB is reached in 150 steps to 170 steps "
                "(confidence 90 %)");
}

static void undecided_says_why(void **state)
{
    (void)state;
    headline_is("{'verdict':'undecided','confidence':0.5,'evidence':['there are no readings']}",
                "not enough to say: there are no readings");
    headline_is("{}", "not enough to say");
}

static const char tree[] =
    "{'tree':{'verdict':'leaking','leak':true,'confidence':0.95,'rate_bytes_per_min':" RATE(
        104857600, 94371840,
        115343360) ",'rate_bytes_per_step':null," FLOOR
                   ",'grower':{'pid':606,'name':'py\\u001b[31m','role':'main'},'growing':1,"
                   "'evidence':['one','two','three'],'flat':[{'role':'compile worker','count':20,"
                   "'rss_bytes':9663676416,'unique_bytes':1073741824},{'role':'main','count':1,"
                   "'rss_bytes':1,'unique_bytes':null}]},"
                   "'processes':[{'pid':606,'name':'py\\u001b[31m','role':'main','alive':true,'"
                   "verdict':"
                   "'leaking','leak':true,'confidence':0.95," FLOOR
                   ",'rate_bytes_per_min':" RATE(104857600, 1, 2) "},"
                                                                  "{'pid':607,'name':'w','role':"
                                                                  "'compile worker','verdict':"
                                                                  "'stable','leak':false,"
                                                                  "'alive':false}],'gpus':[{'gpu':"
                                                                  "1,'verdict':'stable','leak':"
                                                                  "false}],'not_judged':3}";

static void a_job_is_told_with_its_overhead_and_its_processes(void **state)
{
    struct buf out = {0};
    json_t *doc = parse(tree);
    (void)state;
    text_of(&out, doc, 80);
    const char *text = buf_str(&out);
    assert_int_equal(strncmp(text, "leaking    process 606 py", 25), 0);
    assert_null(strchr(text, '\033'));
    assert_non_null(strstr(text, "· three\n"));
    assert_non_null(strstr(text,
                           "overhead   20 compile workers are flat: 9.00 GiB resident in all, "
                           "1.00 GiB of it\n           shared with nobody\n"));
    assert_null(strstr(text, "1 main is flat"));
    assert_non_null(strstr(text, "gpu 1      stable: "));
    assert_non_null(strstr(text, "607 w (compile worker) gone\n"));
    assert_non_null(strstr(text, "3 more were too short or too small to list\n"));
    buf_fini(&out);
}

static void a_narrow_terminal_breaks_sentences_at_spaces(void **state)
{
    struct buf out = {0};
    json_t *doc = parse("{'verdict':'plateaued','confidence':0.97,'evidence':['it grew by 7 GiB "
                        "and stopped at step 83 (the end of the first epoch)']," FLOOR "}");
    (void)state;
    text_of(&out, doc, 40);
    const char *at = buf_str(&out);
    while (*at) {
        size_t len = strcspn(at, "\n");
        assert_true(len <= 44); /* "·" has two bytes */
        at += len + (at[len] == '\n');
    }
    buf_fini(&out);
}

/* The lines of the table of a job of two data workers, and whether all of them fit WIDTH. */
static void table_at(int width, bool is_over, struct buf *ret)
{
    char json[2048];
    snprintf(json, sizeof json,
             "{'processes':[{'pid':14256,'name':'pt_data_worker','role':'data worker','alive':%s,"
             "'verdict':'leaking','leak':true,'confidence':0.97," FLOOR
             ",'rate_bytes_per_min':" RATE(
                 104857600, 1,
                 2) "},{'pid':14028,'name':'python','role':"
                    "'main','alive':false,'verdict':'stable','leak':false,'confidence':0.97," FLOOR
                    "}]}",
             is_over ? "false" : "true");
    json_t *doc = parse(json);
    text_of(ret, doc, (size_t)width);
    for (const char *at = buf_str(ret); *at;
         at += strcspn(at, "\n") + (at[strcspn(at, "\n")] != 0)) {
        char line[512];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        assert_true(cell_columns(line) <= (size_t)width);
    }
}

static void the_table_has_the_columns_that_there_is_room_for(void **state)
{
    struct buf wide = {0}, usual = {0}, narrow = {0};
    (void)state;
    table_at(100, true, &wide);
    assert_string_equal(
        buf_str(&wide),
        "\nVERDICT  SURE  RATE       FLOOR          PEAK   WHO\n"
        "leaking  97 %  +100M/min  1.00G → 2.00G  3.00G  14256 pt_data_worker (data worker)\n"
        "stable   97 %  –          1.00G → 2.00G  3.00G  14028 python (main)\n");
    table_at(80, true, &usual);
    assert_non_null(strstr(buf_str(&usual), "3.00G  14256 pt_data_worker (data"));
    table_at(60, true, &narrow);
    assert_null(strstr(buf_str(&narrow), "PEAK"));
    assert_non_null(strstr(buf_str(&narrow), "2.00G  14256 pt_data_worker"));
    buf_fini(&wide);
    buf_fini(&usual);
    buf_fini(&narrow);
}

static void who_is_gone_is_told_while_others_live(void **state)
{
    struct buf running = {0}, over = {0};
    (void)state;
    table_at(100, false, &running);
    assert_non_null(strstr(buf_str(&running), "14256 pt_data_worker (data worker)\n"));
    assert_non_null(strstr(buf_str(&running), "14028 python (main) gone\n"));
    table_at(100, true, &over);
    assert_null(strstr(buf_str(&over), "gone"));
    buf_fini(&running);
    buf_fini(&over);
}

static void a_summary_holds_the_verdict_with_two_reasons(void **state)
{
    struct buf out = {0};
    json_t *doc = json_pack("{s:o}", "verdict", parse(tree));
    (void)state;
    summary_text(&out, doc, false, 80);
    const char *text = buf_str(&out);
    assert_non_null(strstr(text, "verdict    leaking: process 606 py"));
    assert_non_null(strstr(text, "· two\n"));
    assert_null(strstr(text, "· three\n"));
    json_decref(doc);
    buf_fini(&out);
}

static void a_brief_one_names_the_word_the_rate_and_who(void **state)
{
    struct buf out = {0};
    json_t *doc = parse(tree);
    (void)state;
    struct verdicts v = {0};
    assert_int_equal(verdicts_read(doc, &v), 0);
    verdict_brief(&out, &v);
    assert_string_equal(buf_str(&out), "leaking +100 MiB/min, 606 py\033[31m");
    verdicts_fini(&v);
    json_decref(doc);
    buf_fini(&out);
}

int main(void)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_of_the_jobs_own_are_named_before_their_verdict),
        cmocka_unit_test(each_word_has_its_sentence),
        cmocka_unit_test(a_leak_says_who_how_fast_and_until_when),
        cmocka_unit_test(rates_of_several_processes_are_not_told_of_one),
        cmocka_unit_test(the_table_has_the_columns_that_there_is_room_for),
        cmocka_unit_test(who_is_gone_is_told_while_others_live),
        cmocka_unit_test(an_interval_that_is_one_figure_is_left_out),
        cmocka_unit_test(an_end_that_is_not_in_sight_has_only_an_earliest),
        cmocka_unit_test(a_time_whose_ends_read_the_same_is_told_once),
        cmocka_unit_test(filling_says_both_ends_and_when_it_will_be_known),
        cmocka_unit_test(undecided_says_why),
        cmocka_unit_test(a_job_is_told_with_its_overhead_and_its_processes),
        cmocka_unit_test(a_narrow_terminal_breaks_sentences_at_spaces),
        cmocka_unit_test(a_summary_holds_the_verdict_with_two_reasons),
        cmocka_unit_test(a_brief_one_names_the_word_the_rate_and_who),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
