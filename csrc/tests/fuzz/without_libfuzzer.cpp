// A main for compilers without libFuzzer. It runs the target on the files named as arguments, or on
// WPNODE_FUZZ_INPUTS pseudo-random inputs.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        std::ifstream file(argv[i], std::ios::binary);
        if (!file) return EXIT_FAILURE;
        const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    }
    if (argc > 1) return 0;
    const char* asked = std::getenv("WPNODE_FUZZ_INPUTS");
    const long inputs = asked ? std::atol(asked) : 100000;
    std::mt19937 engine(0);
    std::vector<std::uint8_t> bytes;
    for (long i = 0; i < inputs; ++i) {
        bytes.resize(engine() % 160);
        for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(engine());
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
    return 0;
}
