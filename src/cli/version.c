/* `ebb version`: prints version, platform and libraries of this build. */
#include "cli/cli.h"

#include <curses.h>
#include <jansson.h>
#include <string.h>
#include <zstd.h>

#include "base/buf.h"
#include "base/json.h"
#include "commit.h"
#include "version.h"

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* The platform of this build, with the oldest version of glibc that the build supports. */
#define TEXT_OF(x) #x
#define NUMBER_TEXT(x) TEXT_OF(x)
#if defined(__x86_64__)
#define MACHINE "x86_64"
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#else
#define MACHINE "unknown"
#endif
#ifdef __GLIBC__
#define TARGET MACHINE "-linux-gnu." NUMBER_TEXT(__GLIBC__) "." NUMBER_TEXT(__GLIBC_MINOR__)
#else
#define TARGET MACHINE "-linux-musl"
#endif

/* Features of this build, for bug reports. */
static const char *const features[] = {
    "recording",
    "terminal-view",
    "nvml-at-run-time",
#ifdef __SANITIZE_ADDRESS__
    "address-sanitizer",
#endif
};

enum { FEATURES = sizeof features / sizeof features[0] };

static const char *ncurses_version(void)
{
    const char *s = curses_version(); /* "ncurses 6.4.20221231" */
    const char *space = strchr(s, ' ');
    return space ? space + 1 : s;
}

/* Returns the length of the compiler's version text. The trailing space that clang may add is not
 * counted. */
static size_t compiler_len(void)
{
    size_t len = strlen(COMPILER);
    while (len > 0 && COMPILER[len - 1] == ' ')
        len--;
    return len;
}

static void version_put_text(struct buf *out)
{
    buf_printf(out, "ebb %s\n", EBB_VERSION);
    buf_printf(out, "commit     %s\n", EBB_COMMIT);
    buf_printf(out, "target     %s\n", TARGET);
    buf_printf(out, "compiler   %.*s\n", (int)compiler_len(), COMPILER);
    buf_printf(out, "libraries  jansson %s, zstd %s, ncurses %s\n", jansson_version_str(),
               ZSTD_versionString(), ncurses_version());
    buf_add_str(out, "features  ");
    for (size_t i = 0; i < FEATURES; i++)
        buf_printf(out, "%s %s", i ? "," : "", features[i]);
    buf_add_byte(out, '\n');
}

static json_t *version_json(void)
{
    json_t *list = json_array();
    for (size_t i = 0; i < FEATURES; i++)
        json_array_append_new(list, json_string(features[i]));
    return json_pack("{s:s, s:s, s:s, s:o, s:{s:s, s:s, s:s}, s:o}", "version", EBB_VERSION,
                     "commit", EBB_COMMIT, "target", TARGET, "compiler",
                     json_text(COMPILER, compiler_len()), "libraries", "jansson",
                     jansson_version_str(), "zstd", ZSTD_versionString(), "ncurses",
                     ncurses_version(), "features", list);
}

static int version_exec(const struct cli_call *call, struct err *err)
{
    const struct cli_json_options *options = call->options;
    struct buf out = {0};
    (void)err;
    if (options->json)
        return cli_print_json(version_json());
    version_put_text(&out);
    return cli_print(&out);
}

static const struct option_desc options_table[] = {
    CLI_JSON_OPTION("print one JSON object"),
    {0},
};

const struct cli_command cmd_version = {
    .name = "version",
    .operands = "",
    .summary = "print the version",
    .description = "Prints the version and commit, the platform, the compiler and the libraries "
                   "of this build: a bug report should contain them.",
    .options = options_table,
    .options_size = sizeof(struct cli_json_options),
    .exec = version_exec,
};
