/* Stories that tests of many hypotheses tell, each about one and the same job; and what they
 * expect.
 */
#pragma once

#include "diagnose/story.h"

extern struct story s; /* of the test that runs */
int tale_begin(void **state);
int tale_end(void **state);

/* A pass over the data has 50 steps, one a second from 10 s on. */
void it_leaks(void);
void it_is_flat(void);
void it_stops_after(double seconds); /* by 400 MiB, of 500 */
void it_grew_once_by(double bytes);  /* until 30 s */

void expect(enum hypothesis_id id, enum hypothesis_word word);
void expect_first(enum hypothesis_id id);
/* The hypothesis says that something which TEXT occurs in was not measured. */
void expect_absent(enum hypothesis_id id, const char *text);
