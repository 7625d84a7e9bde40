/* Scenarios and assertions shared by the tests of hypotheses. */
#pragma once

#include "diagnose/synthetic.h"

extern struct synthetic s; /* the synthetic facts of the current test */
int scenario_begin(void **state);
int scenario_end(void **state);

/* Memory leaks, starting at 500 MiB. Each step takes one second; the first one begins at 10 s, and
 * an epoch has 50 steps. */
void memory_leaks(void);
void memory_is_flat(void);
void growth_stops_after(double seconds); /* Memory grows from 500 to 900 MiB and then stops. */
void memory_grew_once_by(double bytes);

void expect(enum hypothesis_id id, enum hypothesis_word word);
void expect_first(enum hypothesis_id id);
/* Expects that hypothesis ID reports missing data in a sentence that contains TEXT. */
void expect_absent(enum hypothesis_id id, const char *text);
