/* Reads two censuses of the main process: the first one after training began, and the last. */
#include <stdio.h>

#include "base/buf.h"
#include "diagnose/facts_private.h"
#include "trace/census.h"

/* Reads a census of the known format. Returns NULL on error. */
static json_t *facts_census(const char *path)
{
    json_t *doc = census_file_read(path, NULL);
    if (doc && json_integer_value(json_object_get(doc, "format")) == 1)
        return doc;
    json_decref(doc);
    return NULL;
}

void facts_read_census(const char *folder, struct facts *f)
{
    struct buf path = {0};
    struct census_files files = {0};
    buf_printf(&path, "%s/census", folder);
    if (f->main)
        census_files_list(buf_str(&path), f->main->id.pid, &files);
    json_t *first = files.count ? facts_census(files.v[0].path) : NULL;
    json_t *last =
        files.count > 1 ? facts_census(files.v[files.count - 1].path) : json_incref(first);
    buf_fini(&path);
    census_files_fini(&files);
    if (first && last) {
        f->census_first = first;
        f->census_last = last;
        return;
    }
    json_decref(first);
    json_decref(last);
}
