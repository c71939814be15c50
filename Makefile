# SPDX-License-Identifier: MIT
# A thin door: CMake builds, ctest tests. `make help` lists the targets.
BUILD   ?= build
PREFIX  ?= /usr/local
FUZZ_SECONDS ?= 60
FUZZ_SANITIZE ?= ON

.DEFAULT_GOAL := help
.PHONY: help setup build demo test check check-gpu bench format fuzz install clean

help: ## this list
	@echo "make TARGET, where TARGET is one of"
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "  %-8s %s\n", $$1, $$2 }'
	@echo "variables: BUILD=$(BUILD) (build folder)  PREFIX=$(PREFIX) (install)  FUZZ_SECONDS=$(FUZZ_SECONDS) (fuzz, for each target)"

setup: ## install the Debian packages that are missing (packages.txt); says first what
	@tools/setup

$(BUILD)/build.ninja: CMakeLists.txt | setup
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=ON

build: setup $(BUILD)/build.ninja ## build the libraries, the command and the tests into BUILD
	@cmake --build $(BUILD)

demo: setup $(BUILD)/build.ninja ## build the command, distil GFN2-xTB into a student of ethanol, judge and run it, profile both
	@cmake --build $(BUILD) --target command
	@tools/demo $(BUILD)

test: build ## build, then run every test
	@tools/test_needs $(BUILD)
	@cmake --build $(BUILD) --target plugin_for_tests
	@ctest --test-dir $(BUILD) --output-on-failure -j $(shell expr $$(nproc) + 1) # some only wait

check: ## all that is asked of a change: tests, format, include order, headers, sanitizers, cppcheck, aarch64
	@.ci/run

check-gpu: build ## the tests of models on this machine's GPU
	@MLFF_CUDA_PLUGIN=$${MLFF_CUDA_PLUGIN:-$(BUILD)/lib/libmlff_cuda.so} bench/gpu/check $(BUILD)/bin

bench: build ## measure speed; results under BUILD/bench
	@tools/bench $(BUILD)

format: ## bring every C file into the project's form
	@tools/setup check
	@tools/check_format --fix

fuzz: ## run the fuzz targets, FUZZ_SECONDS each
	@tools/setup check
	@FUZZ_SANITIZE=$(FUZZ_SANITIZE) tools/fuzz $(FUZZ_SECONDS)

install: build ## install into PREFIX (DESTDIR is honoured)
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## remove BUILD
	@rm -rf $(BUILD)
