# One program per fuzz/fuzz_NAME.c into build/fuzz, with the seeds in fuzz/corpus/NAME. Where the
# compiler has libFuzzer (clang with its runtime library), a program mutates them; elsewhere
# fuzz/replay.c only runs each of them once. fuzz/README.md has the rest.

# These go through every byte, and libFuzzer learns nothing from what they compare it with.
if(EBB_HAS_FUZZER)
  set_source_files_properties(src/base/buf.c src/base/json.c PROPERTIES
    COMPILE_OPTIONS -fno-sanitize-coverage=trace-cmp)
endif()

set(ebb_fuzz_dir ${CMAKE_BINARY_DIR}/fuzz)
add_custom_target(fuzz)
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/fuzz/fuzz_*.c)
foreach(source ${fuzz_sources})
  get_filename_component(target ${source} NAME_WE)
  string(REPLACE fuzz_ "" name ${target})
  add_executable(${target} ${source})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${ebb_fuzz_dir})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE ebb_cli ebb_heap ebb_warnings)
  if(EBB_HAS_FUZZER)
    # libFuzzer is C++: with its library inside, the program also runs where there is none.
    target_link_options(${target} PRIVATE -fsanitize=fuzzer -static-libstdc++)
  else()
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/fuzz/replay.c)
  endif()
  add_dependencies(fuzz ${target})
  # A fixed seed: the same tree gives the same result, as far as the time allows.
  if(EBB_TESTS AND EBB_PYTHON)
    ebb_test(fuzz.${name} fuzz 120 ${EBB_PYTHON} scripts/fuzz.py --targets ${ebb_fuzz_dir}
      --only ${name} --seconds 2 --seed 1 --out ${ebb_fuzz_dir}/tested)
  endif()
endforeach()
