# Checks which functions the C library lacks; an old glibc (the wheels are built for 2.17) and musl lack some.
# src/base/compat.h replaces the missing functions, except in src/heap, because src/heap hooks one of them.

include(CheckSymbolExists)
set(CMAKE_REQUIRED_DEFINITIONS -D_GNU_SOURCE)
set(ebb_compat
  reallocarray stdlib.h
  getrandom sys/random.h
  memfd_create sys/mman.h
  getdents64 dirent.h
  gettid unistd.h
  explicit_bzero string.h
  sigabbrev_np string.h
  malloc_trim malloc.h
  scandirat dirent.h)

add_library(ebb_compat INTERFACE)
while(ebb_compat)
  list(POP_FRONT ebb_compat name header)
  string(TOUPPER ${name} upper)
  check_symbol_exists(${name} ${header} EBB_HAS_${upper})
  if(NOT EBB_HAS_${upper})
    target_compile_options(ebb_compat INTERFACE -DEBB_NO_${upper}
      "SHELL:-include ${CMAKE_SOURCE_DIR}/src/base/compat.h")
  endif()
endwhile()
unset(CMAKE_REQUIRED_DEFINITIONS)
