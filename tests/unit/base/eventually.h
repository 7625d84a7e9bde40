/* Waits for a condition that another thread or process makes true. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <time.h>

/* Waits up to 30 s for COND, running STEP before each check. Only broken code reaches this
 * limit. */
#define EVENTUALLY(cond, step)                                                                     \
    do {                                                                                           \
        bool ok_ = false;                                                                          \
        for (int tries_ = 0; !(ok_ = (cond)) && tries_ < 6000; tries_++) {                         \
            step;                                                                                  \
            nanosleep(&(struct timespec){0, 5000000}, NULL);                                       \
        }                                                                                          \
        assert_true(ok_);                                                                          \
    } while (0)
