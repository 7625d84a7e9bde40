/* What a command says of a process that ebb did not start. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct proc_root;

/* Prints what /proc tells of PID, MISSING (a sentence: what the COMMAND would have needed), and the
 * line that starts it under ebb. The exit status: 2, the request could not be carried out. */
int outside_print(const struct proc_root *root, int32_t pid, const char *command,
                  const char *missing, bool as_json);
