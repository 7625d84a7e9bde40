/* Fuzzes the processing of JSON from outside: size limits, parser and printer. Printed text must
 * parse to the same value. Texts are also sanitized for a terminal. */
#include "base/buf.h"
#include "base/text.h"
#include "target.h"

static void check_again(const json_t *doc)
{
    struct buf once = {0};
    if (json_print(&once, doc, 0) == 0) {
        json_t *again = json_parse(once.data, once.len, NULL);
        if (!again)
            abort();
        json_decref(again);
    }
    buf_fini(&once);
}

/* Checks that arbitrary bytes can be converted to text that the parser accepts, and to text without
 * terminal escapes. */
static void check_text(const uint8_t *data, size_t size)
{
    char fit[64];
    struct buf out = {0};
    json_t *text = json_text((const char *)data, size);
    json_t *list = json_pack("[o]", text);
    check_again(list);
    json_decref(list);
    text_escape(&out, (const char *)data, size);
    for (size_t i = 0; i < out.len; i++)
        if ((unsigned char)out.data[i] < ' ' || out.data[i] == 0x7f)
            abort();
    buf_clear(&out);
    text_command(&out, (const char *)data, size);
    text_fit(fit, sizeof fit, size ? data[0] % 80 : 0, (const char *)data, size);
    if (strlen(fit) >= sizeof fit)
        abort();
    buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (json_is_crowded((const char *)data, size, 1000))
        return 0;
    json_t *doc = fuzz_json(data, size);
    if (doc)
        check_again(doc);
    json_decref(doc);
    check_text(data, size);
    return 0;
}
