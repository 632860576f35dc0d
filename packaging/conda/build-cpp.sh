#!/usr/bin/env bash
# libheadrace into $PREFIX. conda sets PREFIX, CMAKE_ARGS (compiler, where its libraries are) and CPU_COUNT.
set -euo pipefail
# shellcheck disable=SC2086  # CMAKE_ARGS is a list of words
cmake -S . -B build/conda -G Ninja ${CMAKE_ARGS:-} -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_INSTALL_LIBDIR=lib -DHEADRACE_UNITY=ON
cmake --build build/conda --parallel "${CPU_COUNT:-1}" --target headrace
cmake --install build/conda --component cpp
