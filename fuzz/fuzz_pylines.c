/* Fuzzes the parsers of Python line tables read from a job's process, and of function names read
 * from its libraries. */
#include "base/buf.h"
#include "profile/demangle.h"
#include "profile/pylines.h"
#include "target.h"

static void check_name(const uint8_t *data, size_t size)
{
    struct buf out = {0};
    size_t len;
    char *name = fuzz_string(data, size);
    demangle(&out, name);
    const char *readable = buf_str(&out);
    const char *bare = demangle_bare(readable, &len);
    if (bare < readable || bare + len > readable + strlen(readable))
        abort();
    buf_fini(&out);
    free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t versions[] = {0x03090000, 0x030a0000, 0x030b0000, 0x030c0000, 0x030e0000};
    enum { VERSIONS = sizeof versions / sizeof *versions };
    uint32_t line;
    if (size < 3)
        return 0;
    if (data[0] % (VERSIONS + 1) == VERSIONS)
        check_name(data + 1, size - 1);
    else if (pylines_find(data + 3, size - 3, versions[data[0] % VERSIONS], data[1], data[2],
                          &line) == 0 &&
             (line == 0 || line > INT32_MAX))
        abort();
    return 0;
}
