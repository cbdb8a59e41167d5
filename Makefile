# Shortcuts for tools/setup and the CMake presets.
#
#   make demo       sets everything up, builds, trains a small model
#   make test       sets everything up, builds, runs every test: exactly what CI runs
#   make build      build/release/trireme
#   make bench      builds and runs the benchmarks
#   make campaign   the long matrices that `make test` only samples, and sanitizers; PARTS=asan for one part
#   make format     clang-format over the sources
#   make clean      removes build/ (not .venv)
#
# PRESET selects another build: make test PRESET=asan

PRESET ?= release
BUILD := build/$(PRESET)
TRIREME := $(BUILD)/trireme

.PHONY: demo build test bench campaign format clean all configure setup

build: configure
	@cmake --build --preset $(PRESET) --target trireme

# Everything, including tests and benchmarks.
all: configure
	@cmake --build --preset $(PRESET)

configure: setup
	@tools/configure $(PRESET)

setup:
	@tools/setup $(if $(filter lower-deck,$(PRESET)),--no-torch)

demo: build
	@tools/demo $(TRIREME)

test: all
	@ctest --preset $(PRESET)

bench: all
	@tools/bench $(BUILD)

campaign: setup
	@tools/campaign $(PARTS)

format:
	@tools/check_format --fix

clean:
	rm -rf build
