/* Scenarios and assertions for the tests of hypotheses. */
#include "diagnose/scenarios.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct synthetic s;

int scenario_begin(void **state)
{
    (void)state;
    synthetic_begin(&s);
    return 0;
}

int scenario_end(void **state)
{
    (void)state;
    synthetic_end(&s);
    return 0;
}

void memory_leaks(void)
{
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_verdict(&s, 0, VERDICT_LEAKING);
    synthetic_steps(&s, 50);
}

void memory_is_flat(void)
{
    synthetic_memory(&s, MIB(500), MIB(500), 200);
    synthetic_verdict(&s, 0, VERDICT_STABLE);
    synthetic_steps(&s, 50);
}

void growth_stops_after(double seconds)
{
    synthetic_memory(&s, MIB(500), MIB(900), 10 + seconds);
    synthetic_verdict(&s, 0, VERDICT_PLATEAUED);
    s.processes[0].verdict.ended_step = (int64_t)seconds;
    synthetic_steps(&s, 50);
}

void expect(enum hypothesis_id id, enum hypothesis_word word)
{
    const struct hypothesis *h = synthetic_test(&s, id);
    if (h->word != word)
        fail_msg("%s is %s, not %s: %s", hypothesis_key(id), hypothesis_words[h->word],
                 hypothesis_words[word], h->n_evidence ? h->evidence[0].text : "no evidence");
}

void expect_first(enum hypothesis_id id)
{
    synthetic_test(&s, id);
    if (s.ranked[0].id != id)
        fail_msg("%s is first, not %s", hypothesis_key(s.ranked[0].id), hypothesis_key(id));
}

void expect_absent(enum hypothesis_id id, const char *text)
{
    const struct hypothesis *h = synthetic_test(&s, id);
    assert_true(has_evidence(h, EVIDENCE_ABSENT, text));
}

void memory_grew_once_by(double bytes)
{
    synthetic_memory(&s, MIB(500), MIB(500) + bytes, 30);
    synthetic_verdict(&s, 0, VERDICT_PLATEAUED);
    s.processes[0].verdict.ended_step = 20;
    synthetic_steps(&s, 50);
}
