# Installs the program, its manual page and its completions. The program prints the manual page and the completions from
# its own option table.

# A wheel contains only the component "python". pip installs the program itself as the command, without a Python
# wrapper.
if(SKBUILD)
  install(TARGETS ebb DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
  if(EBB_HAS_GLIBC)
    install(TARGETS ebb_heap_preload DESTINATION ebb/lib COMPONENT python)
  endif()
  # Python executes the line in this file at startup. With EBB_ATTACH=1 the line allows ebb attach without ptrace.
  install(FILES python/ebb-attach.pth DESTINATION . COMPONENT python)
endif()

set(ebb_printed
  "ebb.1|--man|${CMAKE_INSTALL_MANDIR}/man1"
  "ebb.bash|--completions bash|${CMAKE_INSTALL_DATADIR}/bash-completion/completions"
  "_ebb|--completions zsh|${CMAKE_INSTALL_DATADIR}/zsh/site-functions"
  "ebb.fish|--completions fish|${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")

set(outputs)
foreach(entry ${ebb_printed})
  string(REPLACE "|" ";" entry "${entry}")
  list(GET entry 0 file)
  list(GET entry 1 arguments)
  list(GET entry 2 folder)
  separate_arguments(arguments)
  set(output ${CMAKE_BINARY_DIR}/share/${file})
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/share
    COMMAND ${CMAKE_COMMAND} -E env NO_COLOR=1 $<TARGET_FILE:ebb> help ${arguments} > ${output}
    DEPENDS ebb COMMENT "Printing ${file}" VERBATIM)
  list(APPEND outputs ${output})
  if(file STREQUAL "ebb.bash")
    install(FILES ${output} DESTINATION ${folder} RENAME ebb)
  else()
    install(FILES ${output} DESTINATION ${folder})
  endif()
endforeach()

# Sanitized programs are only for tests and are not installed.
if(EBB_SANITIZE)
  add_custom_target(ebb_printed DEPENDS ${outputs})
else()
  add_custom_target(ebb_printed ALL DEPENDS ${outputs})
endif()

install(TARGETS ebb DESTINATION ${CMAKE_INSTALL_BINDIR})
if(EBB_HAS_GLIBC)
  install(TARGETS ebb_heap_preload DESTINATION lib/ebb) # The program expects the heap library in this folder.
endif()
# The program finds these files by a path relative to its own.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/ebb DESTINATION ${CMAKE_INSTALL_DATADIR}/ebb/python
  FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/README.md
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/ebb OPTIONAL)
