// Which instruction set the operators use on this machine.
#pragma once

namespace wpnode::cpu {

// "baseline", "avx2" or "avx512": the widest one both compiled in and supported by the processor,
// lowered by the environment variable WPNODE_CPU_CAPABILITY. Decided once, at the first call.
const char* capability();

// Names of all instruction sets compiled in, separated by spaces.
const char* compiled_capabilities();

}  // namespace wpnode::cpu
