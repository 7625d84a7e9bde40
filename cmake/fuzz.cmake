# Builds one program per fuzz/fuzz_NAME.c into build/fuzz, with the seeds in fuzz/corpus/NAME. If the compiler has
# libFuzzer (clang with its runtime library), each program mutates its seeds; otherwise fuzz/replay.c runs each seed
# once. See fuzz/README.md.

# Instrumenting these functions, which compare byte by byte, would cost time without guiding libFuzzer.
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
    # libFuzzer is written in C++. libstdc++ is linked statically, so that the targets also run where it is not
    # installed.
    target_link_options(${target} PRIVATE -fsanitize=fuzzer -static-libstdc++)
  else()
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/fuzz/replay.c)
  endif()
  add_dependencies(fuzz ${target})
  # With a fixed seed, two runs on the same tree differ only if they reach the time limit.
  if(EBB_TESTS AND EBB_PYTHON)
    ebb_test(fuzz.${name} fuzz 120 ${EBB_PYTHON} scripts/fuzz.py --targets ${ebb_fuzz_dir}
      --only ${name} --seconds 1 --seed 1 --out ${ebb_fuzz_dir}/tested)
  endif()
endforeach()
