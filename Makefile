# Shortcuts for tools/setup and the CMake presets.
#
#   make demo       sets everything up, builds, trains a small model
#   make test       sets everything up, builds, runs every test: exactly what CI runs
#   make build      build/release/trireme, and the libraries that `cmake --install build/release` installs
#   make wheel      dist/trireme-*.whl: for pip install, with the torch that is installed there
#   make bench      builds and runs the benchmarks
#   make campaign   the long matrices that `make test` only samples, and sanitizers; PARTS=asan for one part
#   make format     clang-format over the sources
#   make clean      removes build/ (not .venv)
#
# PRESET selects another build: make test PRESET=asan

PRESET ?= release
BUILD := build/$(PRESET)
TRIREME := $(BUILD)/trireme

.NOTPARALLEL:  # ninja runs the jobs
.PHONY: demo build test wheel bench campaign format clean all configure setup setup-tests setup-wheel

build: configure
	@cmake --build --preset $(PRESET) --target trireme_installed

# Everything, including tests and benchmarks.
all: configure
	@cmake --build --preset $(PRESET)

configure: setup
	@tools/configure $(PRESET)

setup:
	@tools/setup --no-tests $(if $(filter lower-deck,$(PRESET)),--no-torch)

# Also the packages and launchers that tests compare with and start. Before `configure`, which looks for them.
setup-tests:
	@tools/setup $(if $(filter lower-deck,$(PRESET)),--no-torch)

setup-wheel:
	$(if $(filter lower-deck,$(PRESET)),$(error a wheel is for the torch that is installed: make wheel PRESET=release, or cuda))
	@tools/setup --no-tests --wheel

demo: build
	@tools/demo $(TRIREME)

test: setup-tests all
	@ctest --preset $(PRESET)

wheel: setup-wheel build
	@.venv/bin/python tools/make_wheel $(BUILD)

bench: setup-tests all
	@tools/bench $(BUILD)

campaign: setup-tests
	@tools/campaign $(PARTS)

format:
	@tools/check_format --fix

clean:
	rm -rf build
