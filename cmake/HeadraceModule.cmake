# headrace_module(NAME DEPS...): the library headrace_NAME from every *.cc of the calling folder (and its sub-folders), and,
# in developer builds, one test program headrace_NAME_test from every *_test.cc beside them.
# DEPS are link targets; the layer check (tools/check_layers.py) guards the direction of includes.
# Set HEADRACE_<name>_TEST_DEPS before the call for what only the tests link.
function(headrace_module name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(sources)
    add_library(headrace_${name} STATIC ${sources})
    headrace_unity(headrace_${name} ${sources})
    target_link_libraries(headrace_${name} PUBLIC headrace_options ${ARGN})
  else()
    add_library(headrace_${name} INTERFACE)
    target_link_libraries(headrace_${name} INTERFACE headrace_options ${ARGN})
  endif()
  if(HEADRACE_DEVELOPER AND tests)
    add_executable(headrace_${name}_test ${tests})
    headrace_unity(headrace_${name}_test ${tests})
    target_link_libraries(headrace_${name}_test PRIVATE headrace_${name} GTest::gmock GTest::gtest_main ${HEADRACE_${name}_TEST_DEPS})
    target_compile_definitions(headrace_${name}_test PRIVATE HEADRACE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    # One process a module: starting one per test case would cost more than the tests.
    add_test(NAME ${name} COMMAND headrace_${name}_test)
  endif()
endfunction()
