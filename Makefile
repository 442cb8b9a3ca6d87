# Shortcuts; the build itself is CMake's (CMakePresets.json).
.PHONY: help build demo test bench clean format
PRESETS ?= release debug tsan

help:
	@echo 'make demo    install what is missing, build, train two models, compare their memory'
	@echo 'make test    build and run all tests, as released and under sanitizers (PRESETS="$(PRESETS)")'
	@echo 'make build   build/release/bin/ebb and build/release/lib/libebb.so, and libebb_cuda.so where nvcc is'
	@echo 'make bench   run the benchmarks; each prints one JSON object'
	@echo 'make format  clang-format on all C files'
	@echo 'make clean   remove build/'

build:
	@scripts/install-packages.sh build
	@cmake --preset release
	@cmake --build --preset release --target ebb_program ebb_plugins

demo:
	@scripts/install-packages.sh build data
	@cmake --preset release
	@cmake --build --preset release --target ebb_program
	@scripts/demo.sh

test:
	@scripts/install-packages.sh build
	@scripts/install-packages.sh test || echo 'make test: some tests will be skipped' >&2
	@scripts/run-tests.sh $(PRESETS)

bench: build
	@bench/run.sh build/release/bin

format:
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format -i

clean:
	@rm -rf build
