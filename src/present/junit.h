/* A run as a JUnit file with one test case, for the pages of CI systems. */
#pragma once

struct buf;
struct summary;

/* Writes the file. A leak is a test failure, a job that did not finish is an error, and an
 * undecided verdict is a skipped test. */
void junit_write(struct buf *out, const struct summary *s);
