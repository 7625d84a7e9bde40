/* Names of roles and events, as displayed and recorded. */
#include "proc/sample.h"

#include <stddef.h>

const char *process_role_name(enum process_role role)
{
    static const char *const names[ROLE_COUNT] = {
        "other",     "main", "launcher", "compile worker", "data worker", "resource tracker",
        "ray worker"};
    return (size_t)role < ROLE_COUNT ? names[role] : "other";
}

const char *process_event_name(enum process_event_kind kind)
{
    static const char *const names[PROCESS_EVENTS] = {"born", "died", "execed", "reparented",
                                                      "role"};
    return (size_t)kind < PROCESS_EVENTS ? names[kind] : "unknown";
}
