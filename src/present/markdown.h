/* Escapes text from other programs for Markdown that is pasted into an issue. The escaped text
 * becomes neither markup nor a mention of a user. It reveals no more of the author's paths than
 * necessary. */
#pragma once

struct buf;

/* Appends RAW as a line of plain text, which is also valid inside a table. */
void markdown_text(struct buf *out, const char *raw);
/* Appends RAW as a code span, which is also valid inside a table. Adds nothing if RAW is empty. */
void markdown_code(struct buf *out, const char *raw);
/* Appends RAW as a line of a fenced block, which RAW cannot end. */
void markdown_fenced(struct buf *out, const char *raw);

/* Appends RAW with private folders shortened: CWD (may be NULL) and everything before
 * site-packages are removed, and a home folder becomes ~. */
void markdown_paths(struct buf *out, const char *raw, const char *cwd);
