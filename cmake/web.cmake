# The page of `ebb report`, built into the program: its style always, its plots where npm is there.

option(EBB_WEB "Fetch uPlot and build the page's plots with npm, where it is there" ON)

set(ebb_web_dir ${CMAKE_BINARY_DIR}/web)
set(ebb_npm off)
if(EBB_WEB)
  set(ebb_npm)
  find_program(EBB_NPM npm)
  mark_as_advanced(EBB_NPM)
  if(EBB_NPM)
    set(ebb_npm ${EBB_NPM})
  endif()
endif()

file(GLOB web_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/web/src/*.ts)
add_custom_command(OUTPUT ${ebb_web_dir}/page.css.gz ${ebb_web_dir}/page.js.gz
  COMMAND ${CMAKE_SOURCE_DIR}/scripts/build_web.sh ${ebb_web_dir} ${ebb_npm}
  DEPENDS ${web_sources} ${CMAKE_SOURCE_DIR}/web/page.css ${CMAKE_SOURCE_DIR}/web/package.json
    ${CMAKE_SOURCE_DIR}/web/package-lock.json ${CMAKE_SOURCE_DIR}/scripts/build_web.sh
  COMMENT "Building the page of ebb report" VERBATIM)
add_custom_target(ebb_web DEPENDS ${ebb_web_dir}/page.css.gz ${ebb_web_dir}/page.js.gz)

set_source_files_properties(${CMAKE_SOURCE_DIR}/src/view/assets.c PROPERTIES
  COMPILE_DEFINITIONS "EBB_WEB_DIR=\"${ebb_web_dir}\""
  OBJECT_DEPENDS "${ebb_web_dir}/page.css.gz;${ebb_web_dir}/page.js.gz")
add_dependencies(ebb_view ebb_web)
