# The tests, all driven by ctest: a cmocka program per tests/unit/FOLDER/test_*.c, and a pytest run per
# tests/cmd/test_*.py and tests/py/test_*.py. They run from the source root, with the path of the program in
# $EBB_BINARY.
#
# Every build tree defines all tests that can run in it. `make test` runs most tests only once. Everything that executes
# our C code runs in the sanitized tree. The plain tree runs only the tests labelled "plain": the suites of the Python
# package and the pages, and tests of memory use, timing and machine code, because sanitizers change all three. The
# target plain_tests builds the files that the plain tests need.

# Finds a Python with pytest. /usr/bin/python3 is tried before the python3 on PATH, because distribution packages
# install pytest for /usr/bin/python3.
if(NOT EBB_PYTHON)
  foreach(candidate /usr/bin/python3 python3)
    execute_process(COMMAND ${candidate} -c "import pytest"
      RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
    if(result EQUAL 0)
      set(EBB_PYTHON ${candidate} CACHE STRING "The Python that runs the command tests" FORCE)
      break()
    endif()
  endforeach()
endif()

set(ebb_test_environment
  "EBB_BINARY=${CMAKE_BINARY_DIR}/ebb"
  "EBB_BUILD_DIR=${CMAKE_BINARY_DIR}"
  "EBB_SANITIZED=$<BOOL:${EBB_SANITIZE}>"
  "PYTHONDONTWRITEBYTECODE=1"
  "ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1"
  "UBSAN_OPTIONS=print_stacktrace=1")

# Reads the costs of long tests; ctest starts the longest tests first. `ctest -j` counts in thirds of a core: a test
# that mostly waits needs only one third, so that several of them run at a time.
set(ebb_test_costs ${CMAKE_SOURCE_DIR}/cmake/test_costs.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ebb_test_costs})

function(ebb_test name label timeout)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set(seconds 0)
  set(thirds 3)
  string(REPLACE "." "\\." pattern ${name})
  file(STRINGS ${ebb_test_costs} line REGEX "^${pattern} ")
  if(line MATCHES " ([0-9]+) +([0-9])$")
    set(seconds ${CMAKE_MATCH_1})
    set(thirds ${CMAKE_MATCH_2})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${timeout}
    ENVIRONMENT "${ebb_test_environment}" COST ${seconds} PROCESSORS ${thirds})
endfunction()

# Files in tests/unit/FOLDER other than test_*.c are shared by all tests of that folder.
function(ebb_unit_tests folder)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/unit/${folder}/test_*.c)
  file(GLOB shared CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/unit/${folder}/*.c)
  list(REMOVE_ITEM shared ${tests})
  foreach(source ${tests})
    get_filename_component(name ${source} NAME_WE)
    set(target ${folder}_${name})
    add_executable(${target} ${source} ${shared})
    set_target_properties(${target} PROPERTIES
      OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/${folder})
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests/unit)
    target_link_libraries(${target} PRIVATE ebb_${folder} ebb_cmocka ebb_warnings m Threads::Threads)
    ebb_test(${folder}.${name} unit 600 $<TARGET_FILE:${target}>)
    add_dependencies(unit_tests ${target})
  endforeach()
endfunction()

function(ebb_plain_test name)
  if(TEST ${name} AND NOT EBB_SANITIZE)
    set_property(TEST ${name} APPEND PROPERTY LABELS plain)
  endif()
endfunction()

add_custom_target(plain_tests)
add_custom_target(unit_tests)
if(TARGET ebb_cmocka)
  file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true RELATIVE ${CMAKE_SOURCE_DIR}/tests/unit
    ${CMAKE_SOURCE_DIR}/tests/unit/*)
  foreach(folder ${folders})
    if(TARGET ebb_${folder})
      ebb_unit_tests(${folder})
    elseif(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/tests/unit/${folder})
      message(STATUS "tests/unit/${folder}: src/${folder} has no library, its tests are left out")
    endif()
  endforeach()
endif()

# Sanitizers change the code of ebb's last-resort killer (the reflex) and the memory mappings of a process, so these
# tests also run unsanitized.
foreach(test guard.test_reflex proc.test_unique_kinds)
  ebb_plain_test(${test})
  string(REPLACE . _ target ${test})
  if(TARGET ${target})
    add_dependencies(plain_tests ${target})
  endif()
endforeach()

# These tests replace functions of ebb or of the C library with their own.
if(TARGET server_jobs_test_jobs_clock)
  target_link_options(server_jobs_test_jobs_clock PRIVATE -Wl,--wrap=clock_wall_ns)
endif()
if(TARGET server_http_test_auth)
  target_link_options(server_http_test_auth PRIVATE -Wl,--wrap=io_random_hex)
endif()
if(TARGET trace_test_reader_live)
  target_link_options(trace_test_reader_live PRIVATE -Wl,--wrap=pread,--wrap=pwrite,--wrap=ftruncate)
endif()
if(TARGET profile_test_collect)
  target_link_options(profile_test_collect PRIVATE -Wl,--wrap=clock_mono_ns)
endif()

# Builds the lock-free parts of the heap library as a separate program with ThreadSanitizer.
if(TARGET ebb_cmocka AND TARGET ebb_heap AND EBB_PYTHON AND NOT EBB_SANITIZE)
  include(CheckCSourceCompiles)
  set(CMAKE_REQUIRED_FLAGS -fsanitize=thread)
  check_c_source_compiles("int main(void) { return 0; }" EBB_HAS_TSAN)
  unset(CMAKE_REQUIRED_FLAGS)
  if(EBB_HAS_TSAN)
    set(logic heap sampler live stacks)
    list(TRANSFORM logic REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/src/heap/\\1.c")
    add_executable(heap_tsan ${CMAKE_SOURCE_DIR}/tests/unit/heap/test_concurrent.c ${logic})
    set_target_properties(heap_tsan PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/heap)
    target_include_directories(heap_tsan PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_compile_options(heap_tsan PRIVATE -fsanitize=thread)
    target_link_options(heap_tsan PRIVATE -fsanitize=thread)
    target_link_libraries(heap_tsan PRIVATE ebb_cmocka ebb_warnings m Threads::Threads)
    ebb_test(heap.tsan unit 600 ${EBB_PYTHON} scripts/run_tsan.py $<TARGET_FILE:heap_tsan>)
    set_tests_properties(heap.tsan PROPERTIES SKIP_RETURN_CODE 77)
    ebb_plain_test(heap.tsan)
    add_dependencies(plain_tests heap_tsan)
  else()
    message(STATUS "no ThreadSanitizer: heap.tsan is left out")
  endif()
endif()

# Checks that all code and data needed to kill a job are locked in memory.
if(TARGET guard_test_reflex AND EBB_PYTHON)
  ebb_test(guard.reflex_code unit 60 ${EBB_PYTHON} scripts/check_reflex.py
    $<TARGET_FILE:guard_test_reflex>)
  set_tests_properties(guard.reflex_code PROPERTIES SKIP_RETURN_CODE 77)
  ebb_plain_test(guard.reflex_code)
endif()

# The tests of the Python package run in the virtual environment created by `scripts/setup.sh python`.
set(EBB_VENV ${CMAKE_BINARY_DIR}/venv CACHE PATH "A Python environment with torch and the like")
set(ebb_package_python ${EBB_PYTHON})
set(ebb_package_environment OMP_NUM_THREADS=1)
if(EXISTS ${EBB_VENV}/complete)
  set(ebb_package_python ${EBB_VENV}/bin/python)
elseif(EXISTS ${EBB_VENV}.reason)
  file(STRINGS ${EBB_VENV}.reason reason LIMIT_COUNT 1)
  string(REPLACE ";" "," reason "${reason}")
  list(APPEND ebb_package_environment "EBB_NO_VENV=${reason}")
else()
  list(APPEND ebb_package_environment "EBB_NO_VENV=scripts/setup.sh python installs it")
endif()

# ebb_package_test(NAME SUITE): adds a suite that needs an optional package and begins with importorskip. Importing
# torch takes seconds, so running all these suites takes minutes.
function(ebb_package_test name suite)
  file(STRINGS ${suite} wants REGEX "^([A-Za-z_]+ = )?pytest\\.importorskip\\(")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${suite})
  set(timeout 1200)
  if(wants)
    set(timeout 1800)
  endif()
  ebb_test(${name} py ${timeout} ${ebb_package_python} ${ebb_pytest} ${suite})
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${ebb_package_environment})
endfunction()

set(ebb_pytest -m pytest -q -ra --tb=short --color=no -p no:cacheprovider
  --rootdir=${CMAKE_SOURCE_DIR})
file(GLOB suites CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cmd/test_*.py
  ${CMAKE_SOURCE_DIR}/tests/py/test_*.py ${CMAKE_SOURCE_DIR}/tests/web/test_*.py
  ${CMAKE_SOURCE_DIR}/tests/slurm/test_*.py)
if(NOT EBB_PYTHON)
  message(STATUS "no Python with pytest: the command tests are left out (scripts/setup.sh test)")
  set(suites)
endif()
foreach(suite ${suites})
  get_filename_component(name ${suite} NAME_WE)
  get_filename_component(folder ${suite} DIRECTORY)
  get_filename_component(folder ${folder} NAME)
  # Sanitizers do not apply to scripts, Python code and pages.
  set(is_plain FALSE)
  if(folder STREQUAL "py" OR folder STREQUAL "slurm" OR name MATCHES "^test_(scripts|zoo.*|page|serve_page|serve_browser)$")
    set(is_plain TRUE)
    if(EBB_SANITIZE)
      continue()
    endif()
  endif()
  if(folder STREQUAL "py")
    ebb_package_test(py.${name} ${suite})
  else()
    ebb_test(${folder}.${name} ${folder} 1200 ${EBB_PYTHON} ${ebb_pytest} ${suite})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${suite})
    file(STRINGS ${suite} plain_marks REGEX "^(@|pytestmark = )(plain|not_sanitized)$")
    if(plain_marks)
      set(is_plain TRUE)
    endif()
  endif()
  if(is_plain)
    ebb_plain_test(${folder}.${name})
  endif()
endforeach()

# Programs that run under the heap library, and their libraries (module_*.c). They are not sanitized, because the
# sanitizer's allocator would take precedence over the hooks.
file(GLOB heap_programs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/heap/*.c)
foreach(source ${heap_programs})
  get_filename_component(name ${source} NAME_WE)
  if(name MATCHES "^module_")
    add_library(heap_${name} MODULE ${source})
    set_target_properties(heap_${name} PROPERTIES
      PREFIX "" OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/heap_programs)
  else()
    add_executable(heap_${name} ${source})
    set_target_properties(heap_${name} PROPERTIES
      OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/heap_programs)
  endif()
  target_compile_options(heap_${name} PRIVATE -fno-sanitize=all -fno-builtin)
  target_link_options(heap_${name} PRIVATE -fno-sanitize=all)
  target_link_libraries(heap_${name} PRIVATE ebb_warnings ${CMAKE_DL_LIBS} Threads::Threads)
  add_dependencies(plain_tests heap_${name})
endforeach()

# Fake PyTorch libraries, which the tests load as Python loads the real ones. Two copies define the functions that ebb
# hooks; the third defines functions with other names.
foreach(copy torch torch2 torch_other)
  set(folder ${CMAKE_BINARY_DIR}/tests/heap_programs/${copy})
  foreach(name c10 c10_cuda)
    add_library(heap_${copy}_${name} SHARED ${CMAKE_SOURCE_DIR}/tests/heap/c10/${name}.c)
    set_target_properties(heap_${copy}_${name} PROPERTIES
      OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${folder})
    target_compile_options(heap_${copy}_${name} PRIVATE -fno-sanitize=all)
    target_link_options(heap_${copy}_${name} PRIVATE -fno-sanitize=all)
    target_link_libraries(heap_${copy}_${name} PRIVATE ebb_warnings Threads::Threads)
    add_dependencies(plain_tests heap_${copy}_${name})
  endforeach()
  target_link_libraries(heap_${copy}_c10_cuda PRIVATE heap_${copy}_c10)
endforeach()
# The second copy needs its own soname; otherwise the dynamic linker would use the first one for both.
set_target_properties(heap_torch2_c10 PROPERTIES OUTPUT_NAME c10-2)
foreach(name waits other_hook)
  add_library(heap_${name} MODULE ${CMAKE_SOURCE_DIR}/tests/heap/c10/${name}.c)
  set_target_properties(heap_${name} PROPERTIES
    OUTPUT_NAME ${name} PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/heap_programs/torch)
  target_compile_options(heap_${name} PRIVATE -fno-sanitize=all)
  target_link_options(heap_${name} PRIVATE -fno-sanitize=all)
  target_link_libraries(heap_${name} PRIVATE ebb_warnings ${CMAKE_DL_LIBS})
  add_dependencies(plain_tests heap_${name})
endforeach()
target_compile_definitions(heap_torch2_c10_cuda PRIVATE C10_BARE)
target_compile_definitions(heap_torch_other_c10 PRIVATE C10_OTHER)
target_compile_definitions(heap_torch_other_c10_cuda PRIVATE C10_OTHER)

# A tool that generates the recording of a simulated day, for tests and benchmarks of the report.
if(TARGET ebb_cmocka)
  file(GLOB day_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/tools/*.c)
  add_executable(day ${day_sources} ${CMAKE_SOURCE_DIR}/tests/unit/profile/fake_table.c)
  set_target_properties(day PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/tools)
  target_include_directories(day PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests/unit)
  target_link_libraries(day PRIVATE ebb_profile ebb_trace ebb_cmocka ebb_warnings m Threads::Threads)
  add_dependencies(plain_tests day)
endif()

# Two tools: `table` generates a recording from a CSV table, and `cluster` generates the run folder of a job on several
# nodes.
foreach(name table cluster)
  add_executable(${name} ${CMAKE_SOURCE_DIR}/tests/tools/${name}/${name}.c)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/tools)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE ebb_trace ebb_warnings m Threads::Threads)
  add_dependencies(plain_tests ${name})
endforeach()

# A preloaded library that makes every access to a given folder hang.
add_library(hang MODULE ${CMAKE_SOURCE_DIR}/tests/tools/hang/hang.c)
set_target_properties(hang PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/tools)
target_compile_options(hang PRIVATE -fno-sanitize=all)
target_link_options(hang PRIVATE -fno-sanitize=all)
target_link_libraries(hang PRIVATE ebb_warnings ${CMAKE_DL_LIBS})
add_dependencies(plain_tests hang)

# Builds parts of the server as separate programs, which the command tests connect to.
if(TARGET ebb_server_http)
  file(GLOB serve_programs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/serve/*.c)
  foreach(source ${serve_programs})
    get_filename_component(name ${source} NAME_WE)
    add_executable(serve_${name} ${source})
    set_target_properties(serve_${name} PROPERTIES
      OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/serve_programs)
    target_include_directories(serve_${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(serve_${name} PRIVATE ebb_server_http ebb_warnings)
    add_dependencies(plain_tests serve_${name})
  endforeach()
endif()

# The command tests of the guard run example programs, so these are part of the default build.
if(suites)
  add_custom_target(command_tests ALL)
  add_dependencies(command_tests examples)
  add_dependencies(plain_tests command_tests)
endif()

# cmd.test_watch requires that no other training job runs on the machine, so it never runs at the same time as suites
# that start one.
if(TEST cmd.test_watch)
  set_tests_properties(cmd.test_watch PROPERTIES RUN_SERIAL ON)
endif()
