# Proof of the CUDA kernels without a GPU; included by the Makefile.

.PHONY: cuda-compile cuda-traffic cuda-sim-sanitize

# Every kernel for every target, warnings as errors; registers, spills and occupancy.
cuda-compile: $(TOOLS)
	$(BIN)/python benchmarks/cuda_static.py

# Sectors and bank conflicts of the default problems, counted by the simulator.
cuda-traffic: $(TOOLS)
	$(BIN)/python benchmarks/cuda_traffic.py

# The kernels' sources under the address, undefined-behaviour and thread sanitizers.
cuda-sim-sanitize: $(TOOLS)
	$(BIN)/python python_tests/cuda_sim/sanitize.py
