# Third-party libraries, each an INTERFACE target. Their headers are SYSTEM, so that they cause no warnings in our code.
# With EBB_STATIC_DEPS static archives are preferred; the program then needs nothing but glibc at run time.

find_package(PkgConfig REQUIRED)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# ebb_dependency(TARGET MODULE PACKAGE ARCHIVE...): links the ARCHIVEs if all of them exist, and otherwise the
# pkg-config module MODULE.
function(ebb_dependency target module package)
  pkg_check_modules(${target}_pc QUIET ${module})
  if(NOT ${target}_pc_FOUND)
    message(FATAL_ERROR "${module} not found; run scripts/setup.sh or install ${package}")
  endif()
  pkg_get_variable(${target}_libdir ${module} libdir)
  set(libraries ${${target}_pc_LINK_LIBRARIES})
  set(${target}_shared ${libraries} PARENT_SCOPE)
  if(EBB_STATIC_DEPS)
    set(archives)
    foreach(archive ${ARGN})
      find_library(${target}_${archive} NAMES ${archive} HINTS ${${target}_libdir})
      mark_as_advanced(${target}_${archive})
      if(${target}_${archive})
        list(APPEND archives ${${target}_${archive}})
      else()
        message(STATUS "${archive} not found: ${module} will be a shared library")
        set(archives NOTFOUND)
        break()
      endif()
    endforeach()
    if(archives)
      set(libraries ${archives})
    endif()
  endif()
  add_library(${target} INTERFACE)
  target_link_libraries(${target} INTERFACE ${libraries})
  target_include_directories(${target} SYSTEM INTERFACE ${${target}_pc_INCLUDE_DIRS})
  # The defines that pkg-config reports are ignored. _GNU_SOURCE already implies those of ncursesw.
endfunction()

ebb_dependency(ebb_jansson jansson libjansson-dev libjansson.a)
ebb_dependency(ebb_zstd libzstd libzstd-dev libzstd.a)
ebb_dependency(ebb_ncursesw ncursesw libncurses-dev libncursesw.a libtinfo.a)
ebb_dependency(ebb_zlib zlib zlib1g-dev libz.a)
# Links only the parts of libdw that read ELF and DWARF. libdwfl is left out, because it would search for files on
# servers; bzip2 and lzma are left out too, because only libdwfl needs them. Newer versions of libdw require zstd.
ebb_dependency(ebb_dw libdw libdw-dev libdw.a libelf.a)
# Since elfutils 0.192, libdw.a and libelf.a may call functions that neither of them defines. A test program shows
# whether the archives can be linked.
if(EBB_STATIC_DEPS AND ebb_dw_libdw.a AND ebb_dw_libelf.a)
  include(CheckCSourceCompiles)
  foreach(target ebb_dw ebb_zlib ebb_zstd)
    get_property(libraries TARGET ${target} PROPERTY INTERFACE_LINK_LIBRARIES)
    list(APPEND CMAKE_REQUIRED_LIBRARIES ${libraries})
  endforeach()
  check_c_source_compiles("#include <elfutils/libdw.h>
    int main(void) { return dwarf_begin(0, DWARF_C_READ) != 0; }" EBB_DW_ARCHIVES_LINK)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(NOT EBB_DW_ARCHIVES_LINK)
    message(STATUS "libdw.a cannot be linked: libdw will be a shared library")
    set_property(TARGET ebb_dw PROPERTY INTERFACE_LINK_LIBRARIES ${ebb_dw_shared})
  endif()
endif()
target_link_libraries(ebb_dw INTERFACE ebb_zlib ebb_zstd)

# The C++ demangler. Only libsupc++ is linked, and only as an archive, so that the program does not need libstdc++.
# For a compiler without libsupc++, such as zig, set EBB_SUPCXX.
set(EBB_SUPCXX "" CACHE FILEPATH "libsupc++.a (default: the compiler's)")
set(ebb_supcxx_archive ${EBB_SUPCXX})
if(NOT ebb_supcxx_archive)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libsupc++.a
    OUTPUT_VARIABLE ebb_supcxx_archive OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(NOT IS_ABSOLUTE "${ebb_supcxx_archive}")
  message(FATAL_ERROR "libsupc++.a not found; run scripts/setup.sh or install g++")
endif()
add_library(ebb_supcxx INTERFACE)
target_link_libraries(ebb_supcxx INTERFACE ${ebb_supcxx_archive})

if(EBB_TESTS)
  pkg_check_modules(ebb_cmocka_pc QUIET cmocka)
  if(ebb_cmocka_pc_FOUND)
    add_library(ebb_cmocka INTERFACE)
    target_link_libraries(ebb_cmocka INTERFACE ${ebb_cmocka_pc_LINK_LIBRARIES})
    target_include_directories(ebb_cmocka SYSTEM INTERFACE ${ebb_cmocka_pc_INCLUDE_DIRS})
  else()
    message(STATUS "cmocka not found: the unit tests are not built (scripts/setup.sh test)")
  endif()
endif()

# Libraries of the server. Packaged libmicrohttpd includes TLS, which ebb does not use (it listens on loopback and unix
# sockets only). The gnutls functions that the static archive calls are replaced by empty ones, so that the program
# needs neither gnutls nor its dependencies. A shared libmicrohttpd links gnutls itself.
ebb_dependency(ebb_sqlite sqlite3 libsqlite3-dev libsqlite3.a)
target_link_libraries(ebb_sqlite INTERFACE m ${CMAKE_DL_LIBS} Threads::Threads)
ebb_dependency(ebb_microhttpd libmicrohttpd libmicrohttpd-dev libmicrohttpd.a)
target_link_libraries(ebb_microhttpd INTERFACE Threads::Threads)
if(EBB_STATIC_DEPS AND ebb_microhttpd_libmicrohttpd.a)
  execute_process(COMMAND ${CMAKE_NM} -u ${ebb_microhttpd_libmicrohttpd.a}
    OUTPUT_VARIABLE undefined ERROR_QUIET)
  string(REGEX MATCHALL "gnutls_[a-z0-9_]+" tls_names "${undefined}")
  list(REMOVE_DUPLICATES tls_names)
  set(tls_text "/* Written by cmake/deps.cmake: see there. */\n")
  foreach(name ${tls_names})
    string(APPEND tls_text "long ${name}(void);\nlong ${name}(void)\n{\n    return 0;\n}\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/no_tls.c CONTENT "${tls_text}" @ONLY)
  add_library(ebb_no_tls STATIC ${CMAKE_BINARY_DIR}/generated/no_tls.c)
  target_link_libraries(ebb_microhttpd INTERFACE ebb_no_tls)
endif()
# wslay is not packaged as a static archive. Only its header is needed, because `ebb serve` loads the library at run
# time.
find_path(EBB_WSLAY_INCLUDE wslay/wslay.h)
if(NOT EBB_WSLAY_INCLUDE)
  message(FATAL_ERROR "wslay/wslay.h not found; run scripts/setup.sh or install libwslay-dev")
endif()
add_library(ebb_wslay INTERFACE)
target_include_directories(ebb_wslay SYSTEM INTERFACE ${EBB_WSLAY_INCLUDE})
