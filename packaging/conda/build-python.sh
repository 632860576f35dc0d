#!/usr/bin/env bash
# The Python package into conda's environment. scikit-build-core takes CMAKE_ARGS from the environment by itself.
set -euo pipefail
export CMAKE_BUILD_PARALLEL_LEVEL=${CPU_COUNT:-1}
${PYTHON:-python} -m pip install . --no-deps --no-build-isolation --disable-pip-version-check -v
