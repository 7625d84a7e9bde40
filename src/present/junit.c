/* Writes a run as a JUnit file. */
#include "present/junit.h"

#include <string.h>

#include "base/buf.h"
#include "judge/verdicts.h"
#include "present/document.h"
#include "present/html.h"
#include "present/summary.h"
#include "present/verdict.h"
#include "run/outcome.h"

enum { JUNIT_COLUMNS = 100, HEADLINE_COLUMNS = 1000 };

enum junit_result { JUNIT_PASSED, JUNIT_FAILURE, JUNIT_ERROR, JUNIT_SKIPPED };

static enum junit_result junit_result_of(const struct summary *s)
{
    const struct judged *worst = verdict_worst(s->verdicts);
    if (s->outcome && (s->outcome->end.error || summary_has_failed(s->outcome)))
        return JUNIT_ERROR;
    if (!worst || worst->result.leak == VERDICT_LEAK_UNKNOWN)
        return JUNIT_SKIPPED;
    return worst->result.leak == VERDICT_LEAK_YES ? JUNIT_FAILURE : JUNIT_PASSED;
}

/* Writes the first line of the summary, not wrapped. */
static void junit_put_headline(struct buf *out, const struct summary *s)
{
    struct buf text = {0};
    struct doc d = {0};
    if (s->outcome && s->outcome->end.error) {
        html_text0(out, s->outcome->end.error);
        return;
    }
    summary_lead(&d, s, NULL);
    doc_terminal(&text, &d, false, HEADLINE_COLUMNS);
    html_text(out, buf_str(&text), strcspn(buf_str(&text), "\n"));
    out->failed = out->failed || text.failed;
    doc_fini(&d);
    buf_fini(&text);
}

static void junit_put_text(struct buf *out, const struct summary *s)
{
    struct buf text = {0};
    struct doc d = {0};
    summary_brief(&d, s);
    doc_terminal(&text, &d, false, JUNIT_COLUMNS);
    for (const char *at = buf_str(&text); *at;) {
        size_t len = strcspn(at, "\n");
        html_text(out, at, len);
        buf_add_byte(out, '\n');
        at += len + (at[len] == '\n');
    }
    out->failed = out->failed || text.failed;
    doc_fini(&d);
    buf_fini(&text);
}

static void junit_put_result(struct buf *out, const struct summary *s, enum junit_result result)
{
    static const char *const elements[] = {
        [JUNIT_FAILURE] = "failure", [JUNIT_ERROR] = "error", [JUNIT_SKIPPED] = "skipped"};
    const char *cause = s->outcome ? s->outcome->end.cause_kind : NULL;
    const char *type = result == JUNIT_ERROR ? cause : summary_code(s);
    if (result == JUNIT_PASSED)
        return;
    buf_printf(out, "      <%s message=\"", elements[result]);
    junit_put_headline(out, s);
    if (result != JUNIT_SKIPPED) {
        buf_add_str(out, "\" type=\"");
        html_text0(out, type ? type : result == JUNIT_ERROR ? "error" : "leak");
    }
    buf_add_str(out, "\"/>\n");
}

void junit_write(struct buf *out, const struct summary *s)
{
    const struct outcome *o = s->outcome;
    enum junit_result result = junit_result_of(s);
    double time_s = o && o->measured.has_duration_s ? o->measured.duration_s : 0;
    buf_printf(out,
               "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
               "<testsuites>\n"
               "  <testsuite name=\"ebb\" tests=\"1\" failures=\"%d\" errors=\"%d\" "
               "skipped=\"%d\" time=\"%.3f\">\n"
               "    <testcase classname=\"ebb\" name=\"",
               result == JUNIT_FAILURE, result == JUNIT_ERROR, result == JUNIT_SKIPPED, time_s);
    html_text0(out, o && o->about.name ? o->about.name : "run");
    buf_printf(out, "\" time=\"%.3f\">\n", time_s);
    junit_put_result(out, s, result);
    buf_add_str(out, "      <system-out>");
    junit_put_text(out, s);
    buf_add_str(out, "</system-out>\n"
                     "    </testcase>\n"
                     "  </testsuite>\n"
                     "</testsuites>\n");
}
