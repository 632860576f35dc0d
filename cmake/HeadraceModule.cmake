# headrace_module(NAME [HEADERS header...] [USES module...] [LINKS target...] [TEST_LINKS target...])
#
# The library headrace_NAME from every *.cc of the calling folder (and its sub-folders), and, in developer builds, one test
# program headrace_NAME_test from every *_test.cc beside them.
# HEADERS: the public headers include/headrace/<header>.h that it implements. USES: modules whose headers its files may
# include; tools/check_layers.py reads this declaration and fails when a file includes another. LINKS: libraries that are not
# ours. TEST_LINKS: what only the tests link.
function(headrace_module name)
  cmake_parse_arguments(arg "" "" "HEADERS;USES;LINKS;TEST_LINKS" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "headrace_module(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(uses ${arg_USES})
  list(TRANSFORM uses PREPEND headrace_)
  foreach(use IN LISTS uses)
    if(NOT TARGET ${use})
      message(FATAL_ERROR "headrace_module(${name}): ${use} is not declared before it")
    endif()
  endforeach()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  add_library(headrace_${name} STATIC ${sources})
  headrace_unity(headrace_${name} ${sources})
  target_link_libraries(headrace_${name} PUBLIC headrace_options ${uses} ${arg_LINKS})
  if(HEADRACE_DEVELOPER AND tests)
    add_executable(headrace_${name}_test ${tests})
    headrace_unity(headrace_${name}_test ${tests})
    target_link_libraries(headrace_${name}_test PRIVATE headrace_${name} GTest::gmock GTest::gtest_main ${arg_TEST_LINKS})
    target_compile_definitions(headrace_${name}_test PRIVATE HEADRACE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    # One process a module: starting one per test case would cost more than the tests.
    add_test(NAME ${name} COMMAND headrace_${name}_test)
  endif()
endfunction()
