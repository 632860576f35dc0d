# The Python that the extension is compiled for: the interpreter that is found, or, for a wheel of another version or machine,
# headers alone (packaging/wheels). The stable ABI is used where scikit-build-core asks for it (wheel.py-api) or a wheel does.
set(HEADRACE_PYTHON_HEADERS "" CACHE STRING "Folders of the headers of another Python than the one found")
set(HEADRACE_PYTHON_VERSION "" CACHE STRING "Which Python those are of: 3.12")
set(HEADRACE_PYTHON_STABLE_ABI OFF CACHE BOOL "Whether to keep to its stable ABI")

if(NOT HEADRACE_PYTHON_HEADERS)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module ${SKBUILD_SABI_COMPONENT})
  return()
endif()

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)  # runs nanobind's scripts; not what is compiled for
set(Python_VERSION ${HEADRACE_PYTHON_VERSION})
string(REGEX MATCH "^[0-9]+" Python_VERSION_MAJOR ${Python_VERSION})
string(REGEX MATCH "[0-9]+$" Python_VERSION_MINOR ${Python_VERSION})
set(Python_INTERPRETER_ID Python)
set(Python_INCLUDE_DIRS ${HEADRACE_PYTHON_HEADERS})
set(Python_SOABI cpython-${Python_VERSION_MAJOR}${Python_VERSION_MINOR}-${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
set(Python_SOSABI abi3)
foreach(kind Module SABIModule)
  if(kind STREQUAL "Module" OR HEADRACE_PYTHON_STABLE_ABI)
    add_library(Python::${kind} INTERFACE IMPORTED)
    target_include_directories(Python::${kind} INTERFACE ${HEADRACE_PYTHON_HEADERS})
  endif()
endforeach()
if(HEADRACE_PYTHON_STABLE_ABI)
  # nanobind uses stderr; from 3.13 on Python.h brings it no more to those who keep to the stable ABI.
  add_compile_options(-include stdio.h)
endif()
