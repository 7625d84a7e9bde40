/* Prepares text from other programs for Markdown that is pasted into an issue. Escapes the text, so
 * that it contains no markup and mentions no user, and shortens paths that would reveal the
 * author's folders. */
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
