# The tests, all driven by ctest: a cmocka program per tests/unit/FOLDER/test_*.c, and a pytest run
# per tests/cmd/test_*.py. They run from the source root, with the program in $EBB_BINARY.

# A Python that has pytest: the system's, where packages put it, before whatever is on PATH.
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

function(ebb_test name label timeout)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES
    LABELS ${label} TIMEOUT ${timeout} ENVIRONMENT "${ebb_test_environment}")
endfunction()

# tests/unit/FOLDER/*.c that is not a test_*.c is shared by that folder's tests.
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
  endforeach()
endfunction()

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

# What is locked in memory must be all that the kill needs.
if(TARGET guard_test_reflex AND EBB_PYTHON)
  ebb_test(guard.reflex_code unit 60 ${EBB_PYTHON} scripts/check_reflex.py
    $<TARGET_FILE:guard_test_reflex>)
  set_tests_properties(guard.reflex_code PROPERTIES SKIP_RETURN_CODE 77)
endif()

file(GLOB suites CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cmd/test_*.py)
if(NOT EBB_PYTHON)
  message(STATUS "no Python with pytest: the command tests are left out (scripts/setup.sh test)")
  set(suites)
endif()
foreach(suite ${suites})
  get_filename_component(name ${suite} NAME_WE)
  # The project's own scripts do not change with the sanitizers.
  if(EBB_SANITIZE AND name STREQUAL "test_scripts")
    continue()
  endif()
  ebb_test(cmd.${name} cmd 600 ${EBB_PYTHON} -m pytest -q -ra --tb=short --color=no
    -p no:cacheprovider --rootdir=${CMAKE_SOURCE_DIR} ${suite})
endforeach()

# The command tests of the guard run the examples: who builds all, builds these too.
if(suites)
  add_custom_target(command_tests ALL)
  add_dependencies(command_tests examples)
endif()

# Both start what looks like a training job, and one of them expects its own to be the only one.
if(TEST proc.test_find AND TEST cmd.test_watch)
  set_tests_properties(proc.test_find cmd.test_watch PROPERTIES RESOURCE_LOCK training_jobs)
endif()
