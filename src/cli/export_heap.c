/* `ebb export` of a heap: for pprof, and for flame graphs and speedscope. */
#include "cli/export.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/text.h"
#include "cli/cli.h"
#include "profile/export.h"
#include "profile/folder.h"

/* Which of several was taken, and what of it could not be read. */
static void export_report_choice(const struct folder_heap *h, const struct export_options *options)
{
    char size[TEXT_SIZE_MAX];
    if (h->others && options->pid == 0)
        cli_say("export: %s of %zu processes is exported, the one that grows or holds most; --pid "
                "names "
                "another",
                h->name, h->others + 1);
    if (h->damage.bad_bytes || h->damage.cut_bytes)
        cli_say("export: %s is damaged; not read: %s; the rest is exported", h->name,
                text_size(size, h->damage.bad_bytes + h->damage.cut_bytes));
}

static int write_heap(const struct folder_heap *h, const struct export_options *options, FILE *out,
                      struct err *err)
{
    struct symbols_options symbols = {options->debuginfod, options->sysroot};
    struct names *names = NULL;
    int r = names_new(h->profile, &symbols, &names);
    if (r < 0)
        return err_set(err, r, "cannot name its functions: %s", strerror(-r));
    r = (options->pprof       ? profile_export_pprof
         : options->collapsed ? profile_export_collapsed
                              : profile_export_speedscope)(h->profile, names, out, err);
    names_free(names);
    return r;
}

int export_heap(const char *path, const struct export_options *options)
{
    struct err err = {{0}};
    struct folder_heap h = {0};
    FILE *out = NULL;
    if (options->pprof && (!options->output || strcmp(options->output, "-") == 0) &&
        isatty(STDOUT_FILENO))
        return cli_failf(2, "export: --pprof is not text; write it to a file with -o FILE");
    int r = folder_heap_read(path, (int32_t)options->pid, &h, &err);
    struct stat input = {.st_dev = h.dev, .st_ino = h.ino};
    if (r == 0)
        r = export_open(options, &input, &out, &err);
    if (r == 0)
        r = export_close(options, out, write_heap(&h, options, out, &err), &err);
    if (r == 0)
        export_report_choice(&h, options);
    folder_heap_fini(&h);
    return export_status(options, r, &err);
}
