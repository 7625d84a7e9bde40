/* Text of other programs inside Markdown that is pasted into an issue: it is shown, and becomes
 * neither markup nor a call to somebody, and tells no more of the author's folders than needed. */
#pragma once

struct buf;

/* RAW as a line of plain text, also inside of a table. */
void markdown_text(struct buf *out, const char *raw);
/* The same as a code span inside of a table: nothing for an empty one. */
void markdown_code(struct buf *out, const char *raw);
/* The same as a line of a fenced block, which it cannot end. */
void markdown_fenced(struct buf *out, const char *raw);

/* Appends RAW with the folders that only its author has made short: CWD (may be NULL) and what is
 * before site-packages are left out, a home folder is ~. */
void markdown_paths(struct buf *out, const char *raw, const char *cwd);
