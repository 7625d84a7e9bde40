/* The stories themselves. */
#include "diagnose/tale.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct story s;

int tale_begin(void **state)
{
    (void)state;
    story_begin(&s);
    return 0;
}

int tale_end(void **state)
{
    (void)state;
    story_end(&s);
    return 0;
}

void it_leaks(void)
{
    story_memory(&s, MIB(500), MIB(900), 200);
    story_verdict(&s, 0, VERDICT_LEAKING);
    story_steps(&s, 50);
}

void it_is_flat(void)
{
    story_memory(&s, MIB(500), MIB(500), 200);
    story_verdict(&s, 0, VERDICT_STABLE);
    story_steps(&s, 50);
}

void it_stops_after(double seconds)
{
    story_memory(&s, MIB(500), MIB(900), 10 + seconds);
    story_verdict(&s, 0, VERDICT_PLATEAUED);
    s.processes[0].verdict.has_ended = true;
    s.processes[0].verdict.ended_step = (int64_t)seconds;
    story_steps(&s, 50);
}

void expect(enum hypothesis_id id, enum hypothesis_word word)
{
    const struct hypothesis *h = story_ask(&s, id);
    if (h->word != word)
        fail_msg("%s is %s, not %s: %s", hypothesis_key(id), hypothesis_words[h->word],
                 hypothesis_words[word], h->n_evidence ? h->evidence[0].text : "no evidence");
}

void expect_first(enum hypothesis_id id)
{
    story_ask(&s, id);
    if (s.ranked[0].id != id)
        fail_msg("%s is first, not %s", hypothesis_key(s.ranked[0].id), hypothesis_key(id));
}

void expect_absent(enum hypothesis_id id, const char *text)
{
    const struct hypothesis *h = story_ask(&s, id);
    assert_true(story_says(h, EVIDENCE_ABSENT, text));
}

void it_grew_once_by(double bytes)
{
    story_memory(&s, MIB(500), MIB(500) + bytes, 30);
    story_verdict(&s, 0, VERDICT_PLATEAUED);
    s.processes[0].verdict.has_ended = true;
    s.processes[0].verdict.ended_step = 20;
    story_steps(&s, 50);
}
