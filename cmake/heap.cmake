# Builds the preloaded heap library. It runs inside the job, so it links only libc, is never sanitized (the sanitizer's
# runtime would be loaded into the job), and exports only the functions that it hooks. For the unit tests, the same
# sources are built as a library without hooks, because hooks would intercept the tests' own calls.

include(CheckSymbolExists)
check_symbol_exists(__GLIBC__ features.h EBB_HAS_GLIBC)
if(NOT EBB_HAS_GLIBC)
  message(STATUS "the C library is not glibc: libebb-heap.so is left out")
  add_custom_target(ebb_heap_preload)
  return()
endif()

file(GLOB heap_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/heap/*.c)
set(heap_hooks ${heap_sources})
list(FILTER heap_hooks INCLUDE REGEX /hooks[^/]*\\.c$)
list(FILTER heap_sources EXCLUDE REGEX /hooks[^/]*\\.c$)
set(heap_flags -ftls-model=initial-exec -fno-stack-protector -fno-builtin-malloc -fno-plt)

if(heap_sources)
  add_library(ebb_heap STATIC ${heap_sources})
  target_include_directories(ebb_heap PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(ebb_heap PRIVATE ${heap_flags})
  target_link_libraries(ebb_heap PRIVATE ebb_warnings PUBLIC m ${CMAKE_DL_LIBS} Threads::Threads)
endif()

if(heap_hooks AND heap_sources)
  add_library(ebb_heap_preload SHARED ${heap_hooks} ${heap_sources})
  set_target_properties(ebb_heap_preload PROPERTIES
    OUTPUT_NAME ebb-heap LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_include_directories(ebb_heap_preload PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(ebb_heap_preload PRIVATE ${heap_flags} -O2 -fno-sanitize=all)
  target_link_options(ebb_heap_preload PRIVATE
    -fno-sanitize=all -static-libgcc -Wl,-z,nodelete -Wl,--no-undefined)
  target_link_libraries(ebb_heap_preload PRIVATE ebb_warnings m ${CMAKE_DL_LIBS})
endif()
