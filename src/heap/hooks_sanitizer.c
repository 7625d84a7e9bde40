/* A sanitizer's runtime in the job: it asks these functions for its settings as it starts, so that
 * it is known here before the first sample. It counts and checks every block itself, and says what
 * it finds about the calls it sees: there the hooks only hand through. */
#include "heap/hooks.h"

#include "heap/life.h"

static const char *step_aside(const char *settings)
{
    hooks_real.malloc_usable_size = NULL; /* a wrong pointer is to be seen in realloc itself */
    life_give_up();
    return settings;
}

/* Without this, one that is not the first library of all ends the job. */
HOOK const char *__asan_default_options(void);
HOOK const char *__asan_default_options(void)
{
    return step_aside("verify_asan_link_order=0");
}

HOOK const char *__hwasan_default_options(void);
HOOK const char *__hwasan_default_options(void)
{
    return step_aside("");
}

HOOK const char *__lsan_default_options(void);
HOOK const char *__lsan_default_options(void)
{
    return step_aside("");
}

HOOK const char *__tsan_default_options(void);
HOOK const char *__tsan_default_options(void)
{
    return step_aside("");
}
