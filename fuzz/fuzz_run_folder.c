/* Fuzzes all readers of a run folder together: the verdict on its recording, the diagnosis, the
 * heap and the report. The input is a list of files. Each starts with a byte that selects the
 * file's name. The content follows; the content of a recording has the input format of
 * fuzz_trace_reader. */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/report_read.h"
#include "trace/csv.h"
#include "trace_input.h"
#include "present/document.h"
#include "present/report.h"

enum { FILES = 4, RUN_JSON = 0, TRACE = 1 };
static const char *const names[FILES] = {"run.json", "trace.ebb", "heap.7.ebbheap",
                                         "census/0001-7-1.json"};

static char folder[64];
static int folder_fd;

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void remove_folder(void)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void make_folder(void)
{
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/ebb-fuzz-XXXXXX", parent ? parent : "/tmp");
    if (!mkdtemp(folder) || (folder_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0 ||
        mkdirat(folder_fd, "census", 0700) < 0 || atexit(remove_folder) != 0)
        abort();
}

static void write_file(const char *name, const char *data, size_t len)
{
    int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, len) != (ssize_t)len)
        abort();
    close(fd);
}

static void fill_folder(const uint8_t *data, size_t size)
{
    struct cur c = cur_of(data, size);
    for (int i = 0; i < FILES; i++)
        unlinkat(folder_fd, names[i], 0);
    for (int i = 0; i < FILES && cur_left(&c) > 1; i++) {
        struct buf file = {0};
        unsigned which = cur_byte(&c) % FILES;
        size_t len;
        const char *content = cur_blob(&c, &len);
        if (which == TRACE && len > 0)
            trace_input_make((const uint8_t *)content, len, &file);
        else
            buf_add(&file, content, len);
        write_file(names[which], file.data, file.len);
        buf_fini(&file);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = {""};
    struct buf out = {0};
    struct report r = {0};
    struct doc d = {0};
    if (!folder[0])
        make_folder();
    fill_folder(data, size);
    if (report_read(folder, &(struct csv_options){0}, false, &r, &err) == 0)
        report_document(&d, &r);
    doc_terminal(&out, &d, false, 80);
    doc_fini(&d);
    report_fini(&r);
    buf_fini(&out);
    return 0;
}
