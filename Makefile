# Thin words over tools/setup and the CMake presets.
#
#   make demo       sets everything up, builds, shows what exists
#   make test       sets everything up, builds, runs every test: exactly what CI runs
#   make build      build/release/trireme
#   make bench      builds and runs the benchmarks
#   make campaign   the long matrices that `make test` only samples
#   make format     clang-format over the sources
#   make clean      removes build/ (not .venv)
#
# PRESET chooses another build: make test PRESET=asan

PRESET ?= release
BUILD := build/$(PRESET)
TRIREME := $(BUILD)/trireme

.PHONY: demo build test bench campaign format clean setup

build: setup
	@tools/configure $(PRESET)
	@cmake --build --preset $(PRESET)

setup:
	@tools/setup

demo: build
	@tools/demo $(TRIREME)

test: build
	@ctest --preset $(PRESET)

bench: build
	@tools/bench $(BUILD)

campaign: build
	@TRIREME_CAMPAIGN=1 ctest --preset $(PRESET) -R Campaign

format: setup
	@tools/check_format --fix

clean:
	rm -rf build
