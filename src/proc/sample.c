/* Names of roles and events, as they are shown and recorded. */
#include "proc/sample.h"

const char *process_role_name(enum process_role role)
{
    switch (role) {
    case ROLE_MAIN:
        return "main";
    case ROLE_LAUNCHER:
        return "launcher";
    case ROLE_COMPILE_WORKER:
        return "compile worker";
    case ROLE_DATA_WORKER:
        return "data worker";
    case ROLE_RESOURCE_TRACKER:
        return "resource tracker";
    case ROLE_OTHER:
    case ROLE_COUNT:
        break;
    }
    return "other";
}

const char *process_event_name(enum process_event_kind kind)
{
    switch (kind) {
    case PROCESS_BORN:
        return "born";
    case PROCESS_DIED:
        return "died";
    case PROCESS_EXECED:
        return "execed";
    case PROCESS_REPARENTED:
        return "reparented";
    case PROCESS_ROLE:
        return "role";
    case PROCESS_EVENTS:
        break;
    }
    return "unknown";
}
