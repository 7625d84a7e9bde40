# Embeds ebb's web pages in the program: their style sheets always, and their scripts if npm is installed.

option(EBB_WEB "Fetch uPlot and build the pages' plots if npm is installed" ON)

# Each page consists of web/src/PAGE.ts and web/style/PAGE.css, and is also listed in src/present/assets.c.
set(ebb_web_pages report serve)
set(ebb_web_dir ${CMAKE_BINARY_DIR}/web)
set(ebb_npm off)
if(EBB_WEB)
  set(ebb_npm none)
  find_program(EBB_NPM npm)
  mark_as_advanced(EBB_NPM)
  if(EBB_NPM)
    set(ebb_npm ${EBB_NPM})
  endif()
endif()

file(GLOB_RECURSE web_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/web/src/*.ts ${CMAKE_SOURCE_DIR}/web/style/*.css
  ${CMAKE_SOURCE_DIR}/web/html/*)
set(web_built ${ebb_web_dir}/serve.html.gz ${ebb_web_dir}/icon.svg.gz)
foreach(page ${ebb_web_pages})
  list(APPEND web_built ${ebb_web_dir}/${page}.css.gz ${ebb_web_dir}/${page}.js.gz)
endforeach()
add_custom_command(OUTPUT ${web_built}
  COMMAND ${CMAKE_SOURCE_DIR}/scripts/build_web.sh ${ebb_web_dir} ${ebb_npm} ${ebb_web_pages}
  DEPENDS ${web_sources} ${CMAKE_SOURCE_DIR}/web/package.json
    ${CMAKE_SOURCE_DIR}/web/package-lock.json ${CMAKE_SOURCE_DIR}/scripts/build_web.sh
    ${CMAKE_SOURCE_DIR}/scripts/fetch_npm.sh
  COMMENT "Building the pages of ebb" VERBATIM)
add_custom_target(ebb_web DEPENDS ${web_built})

set_source_files_properties(${CMAKE_SOURCE_DIR}/src/present/assets.c PROPERTIES
  COMPILE_DEFINITIONS "EBB_WEB_DIR=\"${ebb_web_dir}\""
  OBJECT_DEPENDS "${web_built}")
add_dependencies(ebb_present ebb_web)

# Embeds openapi.json, which the server returns for /api/v1/openapi.json.
configure_file(${CMAKE_SOURCE_DIR}/web/openapi.json ${CMAKE_BINARY_DIR}/generated/openapi.json @ONLY)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/server/http/routes_page.c PROPERTIES
  COMPILE_DEFINITIONS "EBB_OPENAPI=\"${CMAKE_BINARY_DIR}/generated/openapi.json\""
  OBJECT_DEPENDS "${CMAKE_BINARY_DIR}/generated/openapi.json")

# Embeds the pages of `ebb explain`.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cli/explain.c PROPERTIES
  COMPILE_DEFINITIONS "EBB_EXPLAIN_PAGES=\"${CMAKE_SOURCE_DIR}/docs/troubleshooting.md\""
  OBJECT_DEPENDS "${CMAKE_SOURCE_DIR}/docs/troubleshooting.md")

# Embeds the scripts of `ebb help --completions`.
set(completions ${CMAKE_SOURCE_DIR}/contrib/completions)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cli/completions.c PROPERTIES
  COMPILE_DEFINITIONS "EBB_COMPLETIONS=\"${completions}\""
  OBJECT_DEPENDS "${completions}/ebb.bash;${completions}/ebb.zsh;${completions}/ebb.fish")
