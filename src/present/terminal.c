/* Looks up the terminal's description, and restores the terminal after a crash. This is a file
 * of its own, because <term.h> defines words such as `lines` as macros. */
#include "present/terminal.h"

#include <curses.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

static const int crash_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
enum { CRASH_SIGNALS = sizeof crash_signals / sizeof *crash_signals };

/* The state of the one terminal. It is global because a signal handler must find it. */
static struct {
    struct termios before;
    char restore[128];
    size_t restore_len;
    bool is_ours[CRASH_SIGNALS];
} crash;

static void on_crash(int signo)
{
    (void)!write(STDOUT_FILENO, crash.restore, crash.restore_len);
    tcsetattr(STDIN_FILENO, TCSANOW, &crash.before);
    raise(signo); /* SA_RESETHAND has restored the default action */
}

static void crash_add(const char *capability)
{
    const char *text = tigetstr((char *)(uintptr_t)capability);
    if (!text || text == (const char *)-1)
        return;
    size_t len = strlen(text);
    if (crash.restore_len + len > sizeof crash.restore)
        return;
    memcpy(crash.restore + crash.restore_len, text, len);
    crash.restore_len += len;
}

bool terminal_is_known(void)
{
    int found;
    if (setupterm(NULL, STDOUT_FILENO, &found) != OK)
        return false;
    del_curterm(cur_term);
    return true;
}

void terminal_remember(void)
{
    tcgetattr(STDIN_FILENO, &crash.before);
}

void terminal_guard(void)
{
    struct sigaction action = {.sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND | SA_NODEFER};
    struct sigaction old;
    crash.restore_len = 0;
    crash_add("sgr0");
    crash_add("cnorm");
    crash_add("rmkx");
    crash_add("rmcup");
    for (size_t i = 0; i < CRASH_SIGNALS; i++) {
        crash.is_ours[i] = sigaction(crash_signals[i], NULL, &old) == 0 &&
                           old.sa_handler == SIG_DFL &&
                           sigaction(crash_signals[i], &action, NULL) == 0;
    }
}

void terminal_unguard(void)
{
    for (size_t i = 0; i < CRASH_SIGNALS; i++)
        if (crash.is_ours[i])
            signal(crash_signals[i], SIG_DFL);
}
