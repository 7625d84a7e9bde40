/* Tests the text of verdicts: each word, missing values, hostile names and narrow terminals. */
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
#include "present/quoted_json.h"
#include "present/summary.h"
#include "present/verdict.h"

#define RATE(v, l, h) "{'value':" #v ",'low':" #l ",'high':" #h "}"
#define FLOOR "'floor_bytes':{'first':1073741824,'last':2147483648},'peak_bytes':3221225472"

/* Writes to OUT the text that `ebb verdict` prints for DOC. Frees DOC. */
static void text_of(struct buf *out, json_t *doc, size_t width)
{
    struct verdicts v = {0};
    struct doc d = {0};
    assert_int_equal(verdicts_read(doc, &v), 0);
    summary_lead(&d, &(struct summary){.verdicts = &v}, NULL);
    verdict_details(&d, &v, false);
    doc_terminal(out, &d, false, width);
    doc_fini(&d);
    verdicts_fini(&v);
    json_decref(doc);
}

static void headline_is(const char *json, const char *expected)
{
    struct buf out = {0};
    struct verdicts v = {0};
    json_t *doc = json_pack("{s:o}", "tree", quoted_json(json));
    assert_int_equal(verdicts_read(doc, &v), 0);
    verdict_headline(&out, &v.job, &v, true);
    assert_string_equal(buf_str(&out), expected);
    verdicts_fini(&v);
    json_decref(doc);
    buf_fini(&out);
}

static void verdict_on_a_metric_begins_with_the_metric_name(void **state)
{
    json_t *doc = quoted_json(
        "{'tree':{'verdict':'stable','leak':false,'confidence':0.97," FLOOR "},"
        "'processes':[],'gpus':[],'series':[{'name':'heap_live_bytes','label':"
        "'heap (live)','pid':606,'verdict':'stable','leak':false,'confidence':0.9," FLOOR
        "},{'name':'x\\u001b_bytes','label':'x\\u001b_bytes','pid':null,"
        "'verdict':'undecided','leak':null,'evidence':['one reading']}]}");
    struct buf out = {0};
    (void)state;
    text_of(&out, doc, 100);
    assert_non_null(strstr(buf_str(&out),
                           "\nseries     heap (live) of process 606: no leak: stable "
                           "at 2.0 GiB, peak 3.0 GiB (90 % confident)\n"));
    assert_non_null(strstr(buf_str(&out), "\nseries     x\\e_bytes: undecided: one reading\n"));
    buf_fini(&out);
}

static void each_verdict_word_has_a_headline(void **state)
{
    (void)state;
    headline_is("{'verdict':'stable','leak':false,'confidence':0.97,'samples':9," FLOOR "}",
                "no leak: stable at 2.0 GiB, peak 3.0 GiB (97 % confident)");
    headline_is("{'verdict':'spiking','leak':false,'confidence':0.9,'samples':9," FLOOR "}",
                "no leak: spiking at 2.0 GiB, peak 3.0 GiB (90 % confident)");
    headline_is("{'verdict':'plateaued','leak':false,'confidence':0.97," FLOOR
                ",'growth_ended':{'t_s':61.5,'step':83,'at':'the end of the first epoch'}}",
                "no leak: plateaued at 2.0 GiB since step 83 (the end of the first epoch), peak "
                "3.0 GiB (97 % confident)");
    headline_is("{'verdict':'plateaued','leak':false,'confidence':0.97,"
                "'floor_bytes':{'first':782336,'last':782340},"
                "'growth_ended':{'t_s':6.5,'step':40,'at':'step'}}",
                "no leak: plateaued at 760 KiB since step 40 (97 % confident)");
    headline_is("{'verdict':'plateaued','leak':false,'confidence':0.8," FLOOR
                ",'growth_ended':{'t_s':600,'step':null,'at':'none'}}",
                "no leak: plateaued at 2.0 GiB after 10 min, peak 3.0 GiB (80 % confident)");
    headline_is("{'verdict':'stepping','leak':true,'confidence':0.9,'event':'eval',"
                "'rate_bytes_per_min':null,'rate_bytes_per_step':" RATE(1048576, 524288,
                                                                        2097152) "," FLOOR "}",
                "stepping: +1.0 MiB/step, growing at each evaluation (90 % confident)");
}

static void leak_headline_has_one_rate_and_the_time_to_the_limit(void **state)
{
    (void)state;
    headline_is("{'verdict':'leaking','leak':true,'confidence':0.95,'rate_bytes_per_min':" RATE(
                    104857600, 94371840,
                    115343360) ",'rate_bytes_per_step':null,'grower':{'pid':606,'name':'python3',"
                               "'role':'main'},'oom':{'limit_bytes':25769803776,'eta_s':{'low':"
                               "720,'high':900}}}",
                "leaking: +100 MiB/min, out of memory in about 13 min (95 % confident)");
    headline_is("{'verdict':'leaking','leak':true,'rate_bytes_per_min':" RATE(
                    104857600, 94371840, 115343360) ",'rate_bytes_per_step':" RATE(1048576, 1048570,
                                                                                   1048580) "}",
                "leaking: +1.0 MiB/step");
    headline_is("{'verdict':'leaking','leak':true,'confidence':0.9,'rate_bytes_per_min':null,"
                "'rate_bytes_per_step':null,'oom':{'limit_bytes':1073741824,'eta_s':{'low':60,"
                "'high':null}}}",
                "leaking: keeps growing, out of memory in 60 s at the earliest (90 % confident)");
}

static void verdict_headline_names_the_growing_process(void **state)
{
    struct buf out = {0};
    struct verdicts v = {0};
    json_t *doc = quoted_json(
        "{'tree':{'verdict':'leaking','leak':true,'confidence':0.9,'rate_bytes_per_min':null,"
        "'rate_bytes_per_step':" RATE(
            1048576, 524288,
            2097152) ",'growing':2,'grower':{'pid':606,'name':'worker','role':'data worker'}},"
                     "'processes':[{'pid':606},{'pid':607}]}");
    (void)state;
    assert_int_equal(verdicts_read(doc, &v), 0);
    verdict_headline(&out, &v.job, &v, true);
    assert_string_equal(buf_str(&out), "leaking: +1.0 MiB/step in 2 processes, fastest in 606 "
                                       "worker (data worker) (90 % confident)");
    verdicts_fini(&v);
    json_decref(doc);
    buf_fini(&out);
}

static void headline_of_filling_job_has_forecasts_and_decision_step(void **state)
{
    (void)state;
    headline_is(
        "{'verdict':'filling','leak':null,'confidence':0.9,'rate_bytes_per_step':" RATE(
            104857600, 99614720,
            110100480) ",'rate_bytes_per_min':null,'forecast':{'ceiling_bytes':10737418240,"
                       "'decided_at_step':83,'decided_at_s':null},'oom':{'limit_bytes':"
                       "25769803776,'eta_s':null,'eta_steps':{'low':150,'high':170}}}",
        "filling: +100 MiB/step in the first epoch; a cache would level off near 10 GiB, a leak "
        "would run out of memory in about 160 steps; will be known at step 83 (90 % "
        "confident)");
}

static void headline_of_undecided_verdict_has_the_reason(void **state)
{
    (void)state;
    headline_is("{'verdict':'undecided','confidence':0.5,'evidence':['there are no readings']}",
                "undecided: there are no readings");
    headline_is("{}", "undecided: too few samples");
}

static void headline_names_the_leaking_gpu_if_the_host_is_stable(void **state)
{
    struct verdicts v = {0};
    struct buf out = {0};
    json_t *doc =
        quoted_json("{'tree':{'verdict':'stable','leak':false},'gpus':[{'gpu':0,'verdict':"
                    "'stable','leak':false},{'gpu':1,'verdict':'leaking','leak':true,"
                    "'rate_bytes_per_step':" RATE(1048576, 1048570, 1048580) "}]}");
    (void)state;
    assert_int_equal(verdicts_read(doc, &v), 0);
    assert_ptr_equal(verdict_worst(&v), &v.gpus.at[1]);
    verdict_headline(&out, verdict_worst(&v), &v, true);
    assert_string_equal(buf_str(&out), "leaking on gpu 1: +1.0 MiB/step");
    verdicts_fini(&v);
    json_decref(doc);
    buf_fini(&out);
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

static void verdict_text_lists_overhead_and_exited_processes(void **state)
{
    struct buf out = {0};
    json_t *doc = quoted_json(tree);
    (void)state;
    text_of(&out, doc, 80);
    const char *text = buf_str(&out);
    assert_int_equal(strncmp(text, "leaking: +100 MiB/min in process 606 py", 39), 0);
    assert_null(strchr(text, '\033'));
    assert_non_null(strstr(text, "· three\n"));
    assert_non_null(strstr(text,
                           "overhead   20 compile workers are flat: 9.00 GiB resident in all, "
                           "1.00 GiB of it\n           unshared\n"));
    assert_null(strstr(text, "1 main is flat"));
    assert_non_null(strstr(text, "gpu 1      no leak: stable"));
    assert_non_null(strstr(text, "607 w (compile worker) gone\n"));
    assert_non_null(strstr(text, "not listed: 3 more processes, too short-lived or too small\n"));
    buf_fini(&out);
}

static void verdict_sentences_fit_a_narrow_terminal(void **state)
{
    struct buf out = {0};
    json_t *doc =
        quoted_json("{'verdict':'plateaued','confidence':0.97,'evidence':['it grew by 7 GiB "
                    "and stopped at step 83 (the end of the first epoch)']," FLOOR "}");
    (void)state;
    text_of(&out, doc, 40);
    const char *at = buf_str(&out);
    while (*at) {
        size_t len = strcspn(at, "\n");
        assert_true(len <= 44); /* The character "·" has two bytes. */
        at += len + (at[len] == '\n');
    }
    buf_fini(&out);
}

/* Renders the table of a job with two data workers and checks that all lines fit WIDTH. */
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
    json_t *doc = quoted_json(json);
    text_of(ret, doc, (size_t)width);
    for (const char *at = buf_str(ret); *at;
         at += strcspn(at, "\n") + (at[strcspn(at, "\n")] != 0)) {
        char line[512];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        assert_true(cell_columns(line) <= (size_t)width);
    }
}

static void verdict_table_hides_columns_that_do_not_fit(void **state)
{
    struct buf wide = {0}, usual = {0}, narrow = {0};
    (void)state;
    table_at(100, true, &wide);
    assert_string_equal(
        buf_str(&wide),
        "leaking: +100 MiB/min (97 % confident)\n\n"
        "VERDICT  CONFIDENT  RATE       BASELINE       PEAK   PROCESS\n"
        "leaking  97 %       +100M/min  1.00G → 2.00G  3.00G  14256 pt_data_worker (data worker)\n"
        "stable   97 %       –          1.00G → 2.00G  3.00G  14028 python (main)\n");
    table_at(80, true, &usual);
    assert_non_null(strstr(buf_str(&usual), "3.00G  14256 pt_data_worker (data"));
    table_at(60, true, &narrow);
    assert_null(strstr(buf_str(&narrow), "PEAK"));
    assert_non_null(strstr(buf_str(&narrow), "2.00G  14256 pt_data_worker"));
    buf_fini(&wide);
    buf_fini(&usual);
    buf_fini(&narrow);
}

static void exited_process_is_labelled_gone_only_while_the_job_runs(void **state)
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

static void brief_verdict_has_the_verdict_word_and_rate_and_process(void **state)
{
    struct buf out = {0};
    json_t *doc = quoted_json(tree);
    (void)state;
    struct verdicts v = {0};
    assert_int_equal(verdicts_read(doc, &v), 0);
    verdict_brief(&out, &v);
    assert_string_equal(buf_str(&out), "leaking +100 MiB/min in process 606 py\033[31m (main)");
    verdicts_fini(&v);
    json_decref(doc);
    buf_fini(&out);
}

int main(void)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdict_on_a_metric_begins_with_the_metric_name),
        cmocka_unit_test(each_verdict_word_has_a_headline),
        cmocka_unit_test(leak_headline_has_one_rate_and_the_time_to_the_limit),
        cmocka_unit_test(verdict_headline_names_the_growing_process),
        cmocka_unit_test(headline_of_filling_job_has_forecasts_and_decision_step),
        cmocka_unit_test(headline_of_undecided_verdict_has_the_reason),
        cmocka_unit_test(headline_names_the_leaking_gpu_if_the_host_is_stable),
        cmocka_unit_test(verdict_text_lists_overhead_and_exited_processes),
        cmocka_unit_test(verdict_sentences_fit_a_narrow_terminal),
        cmocka_unit_test(verdict_table_hides_columns_that_do_not_fit),
        cmocka_unit_test(exited_process_is_labelled_gone_only_while_the_job_runs),
        cmocka_unit_test(brief_verdict_has_the_verdict_word_and_rate_and_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
