/* Scenarios and assertions shared by the tests of hypotheses. */
#pragma once

#include "diagnose/synthetic.h"

extern struct synthetic s; /* Synthetic facts of the current test. */
int scenario_begin(void **state);
int scenario_end(void **state);

/* Memory leaks, starting at 500 MiB. Steps take one second each from 10 s on, 50 per epoch. */
void memory_leaks(void);
void memory_is_flat(void);
void growth_stops_after(double seconds); /* Memory grows from 500 to 900 MiB and then stops. */
void memory_grew_once_by(double bytes);  /* until 30 s */

void expect(enum hypothesis_id id, enum hypothesis_word word);
void expect_first(enum hypothesis_id id);
/* Expects evidence for hypothesis ID that contains TEXT and says that data is missing. */
void expect_absent(enum hypothesis_id id, const char *text);
