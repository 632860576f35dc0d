# The commands of the project. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
PY := $(VENV)/bin/python
PIP_INSTALL := $(VENV)/bin/pip install -q --disable-pip-version-check --no-build-isolation --no-deps
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
CONTAINERS ?= $(shell command -v docker || command -v podman)
# ctest runs each suite as one process: starting a process per test would cost more than the tests.
CTEST := ctest --output-on-failure --timeout 300 -j $(JOBS)

.PHONY: help setup install library image image-cpp demo test build-test test-cpp test-python check bench docs asan tsan soak fuzz wheels test-wheels clean

help: ## List the targets
	@grep -hE '^[a-z -]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

setup: ## Install packages, venv and test servers for everything below
	@tools/setup demo test check

install: ## Build the release engine and install the Python package into .venv
	@tools/setup build
	@$(PIP_INSTALL) .

library: ## Build the C++ library and install it with its headers into PREFIX (default /usr/local)
	@tools/setup build
	@cmake -S . -B build/library -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=$(PREFIX) -DHEADRACE_UNITY=ON >/dev/null
	@ninja -C build/library -j $(JOBS) --quiet headrace
	@cmake --install build/library --component cpp --strip

image image-cpp: ## Build the container image, or that with the C++ library and a compiler, by docker or podman
	@[ -n "$(CONTAINERS)" ] || { echo "make $@: needs docker or podman, and neither is there; 'make install' needs none" >&2; exit 1; }
	@$(CONTAINERS) info >/dev/null 2>&1 || { echo "make $@: $(CONTAINERS) is there but does not answer: is its service running, and may you use it?" >&2; exit 1; }
	@$(CONTAINERS) build --target $(if $(filter image-cpp,$@),cpp,run) -t headrace$(if $(filter image-cpp,$@),-cpp):latest .

demo: ## Stream, train, kill -9, resume and prove exactly-once on the Linux kernel source
	@tools/setup demo
	@$(MAKE) --no-print-directory install
	@$(PY) demo/demo.py

test: ## All tests, C++ and Python, with a real S3 server
	@$(MAKE) --no-print-directory -k test-cpp test-python

# One engine for both, with its assertions, compiled once.
build-test:
	@tools/setup test
	@cmake --preset test >build-configure.log || { cat build-configure.log; exit 1; }; rm -f build-configure.log
	@ninja -C build/test -j $(JOBS) --quiet
	@$(PIP_INSTALL) --config-settings=build-dir=build/test --config-settings=cmake.build-type=RelWithDebInfo .

test-cpp: build-test
	@tests/with_servers $(CTEST) --test-dir build/test --progress

test-python: build-test
	@$(PY) tests/in_processes -j $$(( $(JOBS) < 8 ? $(JOBS) : 8 ))

check: ## The fast loop: format, lint, layers, types, build, unit tests
	@tools/setup check test
	@tools/check

bench: ## The benchmarks behind docs/performance.md (minutes)
	@tools/setup test
	@$(MAKE) --no-print-directory install
	@bench/run

docs: ## The site of docs/, with search and an API reference, in build/site
	@tools/setup docs
	@set -o pipefail; NO_MKDOCS_2_WARNING=1 $${HEADRACE_CACHE:-$$HOME/.cache/headrace}/docs/bin/mkdocs build 2>&1 | { grep -v '^INFO' || true; }
	@echo "docs: build/site/index.html"

wheels: ## Wheels for x86-64 and aarch64 into dist/wheels, libraries inside (WHEELS="--arch x86_64 --python cp311": fewer)
	@tools/setup wheels
	@$${HEADRACE_CACHE:-$$HOME/.cache/headrace}/wheels/venv/bin/python packaging/wheels/build.py --jobs $(JOBS) $(WHEELS)

test-wheels: ## Install the wheels of dist/wheels into new venvs and bare Debian systems, and use them
	@tools/setup test wheels
	@$(PY) -m pytest -q tests/wheels

asan tsan: ## C++ tests under AddressSanitizer + UBSan, or ThreadSanitizer
	@tools/setup check
	@cmake --preset $@ >/dev/null && ninja -C build/$@ -j $(JOBS) --quiet && $(CTEST) --test-dir build/$@

soak: ## The long soak: half an hour under each sanitizer (SOAK_SECONDS to change)
	@tools/setup check
	@for kind in asan tsan; do cmake --preset $$kind >/dev/null && ninja -C build/$$kind -j $(JOBS) --quiet headrace_soak_test && \
	  HEADRACE_SOAK_SECONDS=$${SOAK_SECONDS:-1800} build/$$kind/tests/headrace_soak_test || exit 1; done

fuzz: ## Ten minutes on each libFuzzer target (FUZZ_SECONDS to change)
	@tools/setup check
	@cmake --preset fuzz >/dev/null && ninja -C build/fuzz -j $(JOBS) --quiet fuzz/all && fuzz/run $${FUZZ_SECONDS:-600}

clean: ## Remove build outputs (keeps .venv)
	@rm -rf build dist
