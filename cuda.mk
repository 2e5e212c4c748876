# Proof of the CUDA kernels without a GPU; included by the Makefile.
#   make cuda-compile ARCHS="80 90"           some architectures only, no report
#   make cuda-compile JOBS=1                  one compiler at a time
#   make cuda-link CUDA_TORCH=torch==2.14.1   the CUDA build of torch to link with

ARCHS ?=
JOBS ?= 2
CUDA_TORCH ?= torch==2.14.1

.PHONY: cuda-compile cuda-traffic cuda-sim-sanitize cuda-link

# Every kernel for every target, warnings as errors; registers, spills and occupancy.
cuda-compile: $(TOOLS)
	$(BIN)/python benchmarks/cuda/static.py --jobs $(JOBS) $(ARCHS)

# Sectors and bank conflicts of the default problems, counted by the simulator.
cuda-traffic: $(TOOLS)
	$(BIN)/python benchmarks/cuda/traffic.py

# The kernels' sources under the address, undefined-behaviour and thread sanitizers.
cuda-sim-sanitize: $(TOOLS)
	$(BIN)/python python_tests/cuda_sim/sanitize.py

# The extension with its kernels against a CUDA torch (gigabytes, in build/cuda_link).
cuda-link:
	$(PYTHON) benchmarks/cuda/link.py --torch $(CUDA_TORCH)
