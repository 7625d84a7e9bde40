/* Fuzzes the parser of a job's last output, which may contain tracebacks, colours and the tables of
 * launchers. */
#include "guard/death.h"
#include "guard/death.h"
#include "target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct death_tail tail;
    struct death_reading reading;
    char text[DEATH_TEXT];
    /* Inputs that start with byte 1 make the ring buffer wrap within the text. Not all inputs do,
     * because wrapping is slow. */
    tail.written = size && data[0] == 1 ? DEATH_TAIL - 7 : 0;
    memset(tail.text, ' ', sizeof tail.text);
    death_tail_add(&tail, (const char *)data, size / 2);
    death_tail_add(&tail, (const char *)data + size / 2, size - size / 2);
    death_reading_take(&tail, &reading);
    if (strnlen(reading.line, DEATH_LINE) >= DEATH_LINE)
        abort();
    struct death_facts facts = {.status = 1 << 8, .tail = &tail};
    death_cause(&facts, text);
    if (strnlen(text, DEATH_TEXT) >= DEATH_TEXT || strchr(text, '\n'))
        abort();
    return 0;
}
