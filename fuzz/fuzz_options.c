/* Fuzzes the parsers of option values from users and requests: numbers, sizes, durations, words,
 * signals, addresses, Host and Origin headers, config files. The first byte selects the parser. */
#include "base/clock.h"
#include "base/err.h"
#include "base/number.h"
#include "base/quantity.h"
#include "base/words.h"
#include "options/run_options.h"
#include "server/http/auth.h"
#include "server/http/listen.h"
#include "target.h"

static void parse_numbers(const char *s)
{
    struct err err = {""};
    struct quantity_size size;
    uint64_t ns;
    int64_t n;
    double v;
    number_parse_i64(s, strlen(s), &n);
    if (number_parse_double(s, strlen(s), &v) == 0 && (v != v || v - v != 0))
        abort();
    if (quantity_parse_size("--limit", s, &size, &err) == 0)
        quantity_bytes(&size, UINT64_MAX);
    if (quantity_parse_duration("--interval", s, NS_PER_MS, NS_PER_S, &ns, &err) == 0 &&
        (ns < NS_PER_MS || ns > NS_PER_S))
        abort();
    if (quantity_parse_int("--top", s, -3, 9, &n, &err) == 0 && (n < -3 || n > 9))
        abort();
}

static void parse_words(const char *s)
{
    struct err err = {""};
    char **words = NULL, name[WORDS_SIGNAL_MAX];
    int signo;
    if (words_split("--checkpoint-cmd", s, &words, &err) == 0)
        for (char **word = words; *word; word++)
            if (strlen(*word) > strlen(s))
                abort();
    free(words);
    if (words_signal("--checkpoint-signal", s, &signo, &err) == 0)
        words_signal_name(name, signo);
}

/* The input is a Host value and an Origin value, on separate lines. */
static void parse_hosts(char *s)
{
    static const char *const hosts[] = {"node7.example", NULL};
    char *origin = s, *host = strsep(&origin, "\n");
    struct listen_address address;
    struct err err = {""};
    auth_host_ok(hosts, host);
    if (origin)
        auth_origin_is_host(origin, host);
    listen_parse(host, &address, &err);
}

static void parse_config(char *s)
{
    struct run_options options = {0};
    struct options_given given = {0};
    struct err err = {""};
    const struct options_config c = {.file = "fuzz",
                                     .command = "run",
                                     .table = run_options_table,
                                     .given = &given,
                                     .values = &options,
                                     .values_size = sizeof options};
    if (options_config_parse(&c, s, strlen(s), &err) == 0)
        run_options_complete(&options, &given, &err);
    run_options_fini(&options);
    options_given_fini(&given);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *s = fuzz_string(data + 1, size - 1);
    switch (data[0] % 4) {
    case 0:
        parse_numbers(s);
        break;
    case 1:
        parse_words(s);
        break;
    case 2:
        parse_hosts(s);
        break;
    default:
        parse_config(s);
        break;
    }
    free(s);
    return 0;
}
