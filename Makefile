# `make help` lists the targets. Everything runs in a virtual environment (.venv) with
# the versions of constraints.txt; python3 (>= 3.11), a C++20 compiler and make must be
# installed.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=

# Compiling the CUDA kernels takes minutes, and no test needs them without a GPU;
# `make test WPNODE_CUDA=ON` (or AUTO) compiles them.
WPNODE_CUDA ?= OFF
export WPNODE_CUDA

# How long to fuzz: calls from Python, seconds for each native target.
FUZZ_CALLS ?= 1000000
FUZZ_SECONDS ?= 120
CLANG ?= $(shell for name in clang++ clang++-20 clang++-19 clang++-18 clang++-17 clang++-16 \
    clang++-15 clang++-14; do command -v $$name && break; done)

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
TOOLS := $(VENV)/tools.stamp
EDITABLE := build/editable
INSTALLED := $(EDITABLE)/installed.stamp
CHOICES := build/choices.txt

.DELETE_ON_ERROR:
.PHONY: help demo test test-all test-machines bench lint sanitize cpp-test fuzz fuzz-native \
    build clean FORCE

help:
	@echo "make demo      noisy Lorenz-63: learn, forecast, write a report with pictures"
	@echo "make test      all tests but the slow ones"
	@echo "make test-all  all tests, and the C++ tests under sanitizers"
	@echo "make test-machines"
	@echo "               make test with fewer vector instructions, two threads, beside a load"
	@echo "make bench     speed of the operators; writes benchmarks/speed/results"
	@echo "make lint      ruff, clang-format, pyright"
	@echo "make sanitize  the C++ tests with address and undefined-behaviour sanitizers"
	@echo "make cpp-test  the C++ tests without sanitizers"
	@echo "make fuzz      FUZZ_CALLS=$(FUZZ_CALLS) random calls with numbers from all of int64"
	@echo "make fuzz-native"
	@echo "               the C++ kernels under libFuzzer, FUZZ_SECONDS=$(FUZZ_SECONDS) a target"
	@echo "make cuda-compile, cuda-traffic, cuda-sim-sanitize, cuda-link"
	@echo "               examine the CUDA kernels without a GPU (benchmarks/cuda/README.md)"
	@echo "make build     compile what changed and install in place"
	@echo "make clean     remove the environment and every build product"
	@echo "Variables: PYTHON=$(PYTHON) VENV=$(VENV) WPNODE_CUDA=$(WPNODE_CUDA) PYTEST_ARGS=..."

demo: build
	$(BIN)/wpnode demo

test: build
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

test-all: build sanitize
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# Other machines; to select some: MACHINES="default:baseline:1 avx512:avx512:2".
MACHINES ?=
test-machines: build
	$(BIN)/python python_tests/machines.py $(MACHINES)

bench: build
	$(BIN)/python benchmarks/speed/run.py

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	find csrc python_tests/cuda_sim -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \
	    | xargs $(BIN)/clang-format --dry-run --Werror
	$(BIN)/pyright --pythonpath $(BIN)/python

sanitize: $(TOOLS)
	$(call run-cpp-tests,build/sanitize,-DWPNODE_SANITIZE=ON)

cpp-test: $(TOOLS)
	$(call run-cpp-tests,build/tests,-DWPNODE_TESTS=ON)

define run-cpp-tests
	$(BIN)/cmake -S . -B $(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	    $(2) --log-level=WARNING
	$(BIN)/cmake --build $(1)
	$(BIN)/ctest --test-dir $(1) --output-on-failure --no-tests=error
endef

fuzz: build
	$(BIN)/python python_tests/fuzz/run.py --calls $(FUZZ_CALLS)

# libFuzzer keeps its inputs in build/fuzz/corpus, where the next run begins.
fuzz-native: $(TOOLS)
	@test -n "$(CLANG)" || { echo "make fuzz-native needs clang++ with libFuzzer (Debian: \
	clang, libclang-rt-dev); set CLANG=... if it has another name." >&2; exit 1; }
	$(BIN)/cmake -S . -B build/fuzz -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	    -DCMAKE_CXX_COMPILER=$(CLANG) -DWPNODE_FUZZ=ON --log-level=WARNING
	$(BIN)/cmake --build build/fuzz
	for target in operators weights; do \
	    mkdir -p build/fuzz/corpus/$$target && build/fuzz/csrc/tests/fuzz_$$target \
	        -max_total_time=$(FUZZ_SECONDS) -max_len=160 -print_final_stats=1 -verbosity=0 \
	        -artifact_prefix=build/fuzz/ build/fuzz/corpus/$$target || exit 1; \
	done

build: $(INSTALLED)
	@$(BIN)/cmake --build $(EDITABLE)

# torch comes first and alone: a later resolver must not meet an unpinned torch.
$(TOOLS): constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) scikit-build-core pybind11 packaging cmake ninja
	@touch $@

$(INSTALLED): $(TOOLS) pyproject.toml $(CHOICES)
	$(PIP) --no-build-isolation -e '.[train,data,plot,test,dev]'
	@touch $@

# Its time changes only with its contents; a change configures the module anew.
$(CHOICES): FORCE
	@mkdir -p build
	@echo "$(abspath $(VENV)) $(WPNODE_CUDA) $(TORCH_CUDA_ARCH_LIST)" > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

clean:
	rm -rf build dist $(VENV) wpnode_ext/_C*.so .pytest_cache .ruff_cache .hypothesis

# Targets that compile and examine the CUDA kernels.
-include cuda.mk
