# Defines the commit hash that `ebb version` prints, or "unknown" outside a git checkout of ebb. The hash is in a header
# of its own, so that a new commit recompiles only one file. CMake runs again after each commit, because each commit
# changes git's log of HEAD.

set(EBB_COMMIT "" CACHE STRING "The commit of this build (default: git's)")
set(ebb_commit ${EBB_COMMIT})
if(NOT ebb_commit)
  set(ebb_commit unknown)
  find_package(Git QUIET)
endif()
if(Git_FOUND AND NOT EBB_COMMIT)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --show-prefix --git-path logs/HEAD --verify HEAD
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE ebb_git ERROR_QUIET RESULT_VARIABLE ebb_git_failed)
  # The first line of git's output is the path from the top of the checkout to this folder. It is empty unless ebb is a
  # subfolder of another project's checkout.
  if(NOT ebb_git_failed AND ebb_git MATCHES "^\n([^\n]+)\n([0-9a-f]+)\n$")
    string(SUBSTRING ${CMAKE_MATCH_2} 0 12 ebb_commit)
    get_filename_component(ebb_head_log ${CMAKE_MATCH_1} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
    if(EXISTS ${ebb_head_log})
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ebb_head_log})
    endif()
  endif()
endif()
configure_file(cmake/commit.h.in generated/commit.h @ONLY)
