/* Sets up and restores the terminal, keeps the newest frame, and handles keys. */
#include "present/screen.h"

#include <curses.h>
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/err.h"
#include "present/terminal.h"
#include "present/screen_private.h"

/* ---- setup ---- */

static bool wants_colour(void)
{
    const char *no = getenv("NO_COLOR");
    return (!no || !no[0]) && has_colors();
}

/* Returns true if the user's locale is UTF-8. The program's own locale may differ, because ebb
 * reads names as UTF-8 in every locale. */
static bool terminal_is_utf8(void)
{
    locale_t user = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (!user)
        return false;
    bool is_utf8 = strcmp(nl_langinfo_l(CODESET, user), "UTF-8") == 0;
    freelocale(user);
    return is_utf8;
}

int screen_new(struct screen **ret, struct err *err)
{
    const char *term = getenv("TERM");
    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
        return err_set(err, -ENOTTY, "the live view needs a terminal on input and output");
    struct screen *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    s->is_ascii = !terminal_is_utf8();
    terminal_remember();
    SCREEN *terminal = terminal_is_known() ? newterm(NULL, stdout, stdin) : NULL;
    if (!terminal) {
        free(s);
        return err_set(err, -EINVAL,
                       "the terminal type '%s' is unknown: set TERM, for example to xterm, or "
                       "pipe the output to get plain lines",
                       term ? term : "");
    }
    s->terminal = terminal;
    terminal_guard();
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    set_escdelay(25);
    curs_set(0);
    s->has_colour = wants_colour();
    paint_begin(s);
    *ret = s;
    return 0;
}

void screen_free(struct screen *s)
{
    if (!s)
        return;
    endwin();
    delscreen(s->terminal);
    terminal_unguard();
    table_fini(&s->table);
    free(s);
}

/* Rebuilds the table. If HAS_SLOT, the cursor follows the process SLOT to its new line; otherwise
 * the cursor stays on the same line. */
static void rebuild(struct screen *s, bool has_slot, uint32_t slot)
{
    table_build(&s->table, s->frame->rows, s->frame->count);
    for (size_t i = 0; has_slot && i < s->table.count; i++)
        if (s->table.lines[i].slot == slot) {
            s->cursor = i;
            return;
        }
}

static bool cursor_slot(const struct screen *s, uint32_t *ret)
{
    if (s->cursor >= s->table.count)
        return false;
    *ret = s->table.lines[s->cursor].slot;
    return true;
}

void screen_draw(struct screen *s, const struct frame *frame)
{
    uint32_t slot = 0;
    bool has_slot = s->cursor > 0 && cursor_slot(s, &slot);
    /* if the whole machine is watched, the view begins as a flat list, which shows the largest
     * processes at the top */
    if (!s->frame)
        s->table.is_flat = !sample_has(&frame->machine, MACHINE_TREE_HIGH);
    s->frame = frame;
    rebuild(s, has_slot, slot);
    draw_all(s);
}

bool screen_is_paused(const struct screen *s)
{
    return s->is_paused;
}

void screen_resize(struct screen *s)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
        resizeterm(size.ws_row, size.ws_col);
    clearok(stdscr, TRUE);
    draw_all(s);
}

/* ---- keys ---- */

static void sort_by(struct screen *s, enum table_sort sort)
{
    s->table.is_reversed = s->table.sort == sort && !s->table.is_reversed;
    s->table.sort = sort;
    s->cursor = 0;
    s->top = 0;
    rebuild(s, false, 0);
}

static bool sort_key(struct screen *s, int key)
{
    static const char keys[] = {[SORT_RSS] = 'm',  [SORT_ANON] = 'a', [SORT_UNIQUE] = 'u',
                                [SORT_RATE] = 'r', [SORT_PID] = 'p',  [SORT_GPU] = 'g'};
    for (size_t i = 0; i < sizeof keys; i++)
        if (key == keys[i]) {
            sort_by(s, (enum table_sort)i);
            return true;
        }
    return false;
}

static void move_by(struct screen *s, ptrdiff_t lines)
{
    size_t last = s->table.count ? s->table.count - 1 : 0;
    size_t up = lines < 0 ? (size_t)-lines : 0;
    size_t down = lines > 0 ? (size_t)lines : 0;
    s->cursor = s->cursor > up ? s->cursor - up : 0;
    s->cursor = last - s->cursor > down ? s->cursor + down : last;
}

static bool move_key(struct screen *s, int key)
{
    ptrdiff_t page = s->page > 1 ? (ptrdiff_t)s->page - 1 : 1, all = (ptrdiff_t)s->table.count;
    const struct {
        int key;
        ptrdiff_t lines;
    } moves[] = {{KEY_UP, -1},       {'k', -1},         {KEY_DOWN, 1},    {'j', 1},
                 {KEY_PPAGE, -page}, {KEY_NPAGE, page}, {KEY_HOME, -all}, {KEY_END, all}};
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        if (key == moves[i].key) {
            move_by(s, moves[i].lines);
            return true;
        }
    return false;
}

/* Folds or unfolds a branch. The cursor stays on its process. If the process is hidden, the cursor
 * stays on the same line. */
static bool fold_key(struct screen *s, int key)
{
    uint32_t slot = 0;
    bool has_slot = cursor_slot(s, &slot);
    if ((key == ' ' || key == '\r' || key == '\n' || key == KEY_ENTER) && has_slot &&
        s->table.lines[s->cursor].below > 0)
        table_toggle(&s->table, slot);
    else if (key == '+' || key == '=')
        table_unfold_all(&s->table);
    else if (key == '-')
        table_fold_all(&s->table);
    else
        return false;
    rebuild(s, has_slot, slot);
    return true;
}

static void other_key(struct screen *s, int key)
{
    uint32_t slot = 0;
    bool has_slot = cursor_slot(s, &slot);
    if (key == 't') {
        s->table.is_flat = !s->table.is_flat;
        rebuild(s, has_slot, slot);
    } else if (key == 'P') {
        s->is_paused = !s->is_paused;
    } else if (key == 'c') {
        s->shows_command = !s->shows_command;
    } else if (key == 'h' || key == '?') {
        s->shows_help = true;
    }
}

static enum screen_action on_key(struct screen *s, int key)
{
    s->is_notice_read = true;
    if (key == 'q' || key == 'Q')
        return SCREEN_QUIT;
    if (s->shows_help)
        s->shows_help = false;
    else if (key == 'A')
        return SCREEN_ATTACH;
    else if (!sort_key(s, key) && !move_key(s, key) && !fold_key(s, key))
        other_key(s, key);
    return SCREEN_NONE;
}

enum screen_action screen_keys(struct screen *s)
{
    enum screen_action action = SCREEN_NONE;
    for (int key; action == SCREEN_NONE && (key = getch()) != ERR;)
        if (key != KEY_RESIZE)
            action = on_key(s, key);
    if (action != SCREEN_QUIT)
        draw_all(s);
    return action;
}

bool screen_selected(const struct screen *s, int32_t *ret_pid)
{
    if (!s->frame || s->cursor >= s->table.count)
        return false;
    *ret_pid = s->frame->rows[s->table.lines[s->cursor].row].info.id.pid;
    return true;
}

void screen_show_notice(struct screen *s)
{
    s->is_notice_read = false;
}
