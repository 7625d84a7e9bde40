/* The table's numbers in words: why something was not recorded, and what is with Python. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* "nodes", "live": the key in JSON; NULL from HEAP_DROP_KINDS on. */
const char *profile_drop_key(size_t drop);
/* "the tree of stacks is full: …"; NULL where there is no such key. */
const char *profile_drop_text(const char *key);
/* "Python frames are read"; also of a number that this version does not know. */
const char *profile_python_text(uint32_t state);
