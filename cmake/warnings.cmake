# Warning, hardening and sanitizer flags of ebb's own code.

set(ebb_warning_flags
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wformat=2 -Wvla -Wundef -Wpointer-arith
  -Wcast-qual -Wwrite-strings -Wstrict-prototypes -Wmissing-prototypes -Wimplicit-fallthrough
  -Wnull-dereference -Wdouble-promotion)

add_library(ebb_warnings INTERFACE)
target_compile_options(ebb_warnings INTERFACE ${ebb_warning_flags})
if(EBB_WERROR)
  target_compile_options(ebb_warnings INTERFACE -Werror)
endif()

# scripts/lint.sh compiles each header on its own with these flags.
list(JOIN ebb_warning_flags "\n" ebb_warning_lines)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/warning_flags.txt
  CONTENT "${ebb_warning_lines}\n" @ONLY)

# NDEBUG is never defined, so assertions are active in every build.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_C_FLAGS_RELEASE "-O2")

add_compile_definitions(_GNU_SOURCE)
add_compile_options(-fno-common -fvisibility=hidden -fstack-protector-strong)

include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(EBB_SANITIZE)
  # -O1 and -g1 keep stack traces readable. _FORTIFY_SOURCE would hide calls from the sanitizers.
  set(ebb_sanitize -fsanitize=address,undefined -fno-sanitize-recover=all)
  add_compile_options(${ebb_sanitize} -fno-omit-frame-pointer -O1 -g1)
  add_link_options(${ebb_sanitize})
  # Coverage-guided fuzzing requires clang and its runtime library. Without them, the fuzz targets only replay their
  # corpora (cmake/fuzz.cmake).
  if(EBB_FUZZ)
    include(CheckCSourceCompiles)
    set(CMAKE_REQUIRED_FLAGS -fsanitize=fuzzer,address)
    check_c_source_compiles("#include <stddef.h>
      #include <stdint.h>
      int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
      int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return data && size ? 0 : 0; }"
      EBB_HAS_FUZZER)
    unset(CMAKE_REQUIRED_FLAGS)
  endif()
  if(EBB_FUZZ AND EBB_HAS_FUZZER)
    add_compile_options(-fsanitize=fuzzer-no-link)
    add_compile_definitions(EBB_FUZZ)
  endif()
else()
  # Some distributions' compilers define _FORTIFY_SOURCE by default, and redefining it causes a warning.
  add_compile_options($<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE>
    $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=2>)
  add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
endif()
