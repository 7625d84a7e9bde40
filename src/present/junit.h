/* A run as a JUnit file with one test case, for the pages of CI systems. */
#pragma once

struct buf;
struct summary;

/* A leak is a failure, a job that did not finish is an error, an undecided verdict is skipped. */
void junit_write(struct buf *out, const struct summary *s);
