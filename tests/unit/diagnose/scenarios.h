/* Scenarios and assertions shared by the tests of hypotheses. */
#pragma once

#include "diagnose/synthetic.h"

extern struct synthetic s; /* facts of the running test */
int scenario_begin(void **state);
int scenario_end(void **state);

/* Memory leaks from 500 MiB on. An epoch has 50 steps, one per second from 10 s on. */
void memory_leaks(void);
void memory_is_flat(void);
void growth_stops_after(double seconds); /* grows by 400 MiB, from 500 MiB */
void memory_grew_once_by(double bytes);  /* until 30 s */

void expect(enum hypothesis_id id, enum hypothesis_word word);
void expect_first(enum hypothesis_id id);
/* Expects evidence on ID that something was not measured, containing TEXT. */
void expect_absent(enum hypothesis_id id, const char *text);
