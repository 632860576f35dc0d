# libheadrace: the engine as one shared library, with its headers, for C++ programs (docs/cpp.md). `cmake --install` puts
# both and headraceConfig.cmake in place.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

list(TRANSFORM HEADRACE_MODULES REPLACE "(.+)" "$<TARGET_OBJECTS:headrace_\\1>" OUTPUT_VARIABLE objects)
add_library(headrace SHARED ${objects})
add_library(headrace::headrace ALIAS headrace)
# For the libraries of others that the modules need; their own objects are all there already.
target_link_libraries(headrace PRIVATE headrace_engine)
target_compile_features(headrace PUBLIC cxx_std_20)
target_include_directories(headrace PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# Before 1.0 each minor version may change the interface.
set_target_properties(headrace PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/libheadrace.map)
target_link_options(headrace PRIVATE LINKER:--version-script=${CMAKE_CURRENT_LIST_DIR}/libheadrace.map)
if(NOT HEADRACE_SANITIZE)
  target_link_options(headrace PRIVATE LINKER:--no-undefined)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/headrace)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/headraceConfig.cmake.in
  ${PROJECT_BINARY_DIR}/headraceConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/headraceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH HEADRACE_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${CMAKE_CURRENT_LIST_DIR}/headrace.pc.in ${PROJECT_BINARY_DIR}/headrace.pc @ONLY)

install(TARGETS headrace EXPORT headrace LIBRARY COMPONENT cpp NAMELINK_COMPONENT cpp)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/headrace TYPE INCLUDE COMPONENT cpp FILES_MATCHING PATTERN *.h)
install(EXPORT headrace NAMESPACE headrace:: FILE headraceTargets.cmake DESTINATION ${package_dir} COMPONENT cpp)
install(FILES ${PROJECT_BINARY_DIR}/headraceConfig.cmake ${PROJECT_BINARY_DIR}/headraceConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT cpp)
install(FILES ${PROJECT_BINARY_DIR}/headrace.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT cpp)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE TYPE DOC COMPONENT cpp)
