// Runs the kernels of simulator_kernels.cuh.
//
// usage: simulator_kernels NAME ORDER     (ORDER: 0 ascending, 1 descending, > 1 a random seed)
// Prints the numbers a kernel computed, or "error: ..." when the simulator objects.

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "simulator_kernels.cuh"

namespace {

using namespace simulator_kernels;

// Exactly as many elements as asked for, so that the address sanitizer guards the ends.
struct Buffer {
    explicit Buffer(std::size_t n, float first = 1.0f) : size(n), data(new float[n]) {
        for (std::size_t i = 0; i < n; ++i) data[i] = first + static_cast<float>(i);
    }
    std::size_t size;
    std::unique_ptr<float[]> data;
};

void print(const Buffer& buffer) {
    for (std::size_t i = 0; i < buffer.size; ++i) std::printf("%g ", buffer.data[i]);
    std::printf("\n");
}

void print_traffic() {
    using namespace cuda_sim::traffic;
    for (const Space space : {Space::kGlobalLoad, Space::kSharedLoad, Space::kSharedStore}) {
        const Count count = total(space);
        std::printf("%g %g %g %g ", count.requests, count.bytes, count.sectors, count.conflicts);
    }
    std::printf("\n");
}

using Case = std::function<void()>;

std::map<std::string, Case> cases() {
    const auto on_buffers = [](std::size_t n_in, std::size_t n_out, auto body) -> Case {
        return [=] {
            Buffer in(n_in);
            Buffer out(n_out, 0.0f);
            for (std::size_t i = 0; i < n_out; ++i) out.data[i] = 0.0f;
            body(in.data.get(), out.data.get());
            print(out);
        };
    };
    const auto out_only = [&](auto kernel, std::size_t shared_bytes) -> Case {
        return on_buffers(1, kThreads, [=](float*, float* out) {
            WPNODE_LAUNCH(kernel, dim3(1), dim3(kThreads), shared_bytes, nullptr, out);
        });
    };
    const auto reversal = [&](bool after_write, bool after_read) -> Case {
        return on_buffers(2 * kThreads, 2 * kThreads, [=](float* in, float* out) {
            WPNODE_LAUNCH(reversed, dim3(1), dim3(kThreads), kThreads * sizeof(float), nullptr, in,
                          out, after_write, after_read);
        });
    };
    const auto grid_sum = [&](bool atomic) -> Case {
        return on_buffers(4 * kThreads, 1, [=](float* in, float* out) {
            WPNODE_LAUNCH(sum_over_blocks, dim3(4), dim3(kThreads), 0, nullptr, in, out, atomic);
        });
    };
    const auto float4_load = [&](bool checked) -> Case {
        return on_buffers(8, 1, [=](float* in, float* out) {
            WPNODE_LAUNCH(misaligned_float4, dim3(1), dim3(1), 0, nullptr, in, out, checked);
        });
    };
    const auto counted = [&](auto kernel, std::size_t shared_bytes, auto... arguments) -> Case {
        return [=] {
            auto* out = static_cast<float*>(std::aligned_alloc(32, 4096 * sizeof(float)));
            cuda_sim::traffic::enable(true);
            if constexpr (sizeof...(arguments) == 2) {
                WPNODE_LAUNCH(kernel, dim3(1), dim3(32), shared_bytes, nullptr, out, out + 2048,
                              arguments...);
            } else {
                WPNODE_LAUNCH(kernel, dim3(1), dim3(32), shared_bytes, nullptr, out, arguments...);
            }
            print_traffic();
            std::free(out);
        };
    };
    const std::size_t tile = kThreads * sizeof(float);
    return {
        {"reversed", reversal(true, true)},
        {"missing_barrier", reversal(false, true)},
        {"write_after_read", reversal(true, false)},
        {"atomic_grid_sum", grid_sum(true)},
        {"plain_grid_sum", grid_sum(false)},
        {"warp_sum", on_buffers(kThreads, 2,
                                [](float* in, float* out) {
                                    WPNODE_LAUNCH(warp_sum, dim3(1), dim3(kThreads), 0, nullptr, in,
                                                  out);
                                })},
        {"votes", on_buffers(1, 9,
                             [](float*, float* out) {
                                 WPNODE_LAUNCH(votes, dim3(1), dim3(kThreads), 0, nullptr, out);
                             })},
        {"poison", on_buffers(1, 2,
                              [](float*, float* out) {
                                  WPNODE_LAUNCH(first_of_shared, dim3(2), dim3(1), 16, nullptr,
                                                out);
                              })},
        {"too_many_threads",
         [] {
             WPNODE_LAUNCH(votes, dim3(1), dim3(2048), 0, nullptr, nullptr);
             const cudaError_t first = cudaGetLastError();
             std::printf("%d %d\n", first, cudaGetLastError());
         }},
        {"beyond_shared", out_only(beyond_shared, tile)},
        {"beyond_global", on_buffers(kThreads, kThreads,
                                     [](float* in, float* out) {
                                         WPNODE_LAUNCH(beyond_global, dim3(1), dim3(kThreads), 0,
                                                       nullptr, in, out);
                                     })},
        {"misaligned_float4", float4_load(true)},
        {"unchecked_misaligned_float4", float4_load(false)},
        {"returned_lane_in_mask", out_only(returned_lane_in_mask, 0)},
        {"caller_outside_mask", out_only(caller_outside_mask, 0)},
        {"different_masks", out_only(different_masks, 0)},
        {"shuffle_from_outside_mask", out_only(shuffle_from_outside_mask, 0)},
        {"barrier_after_return", out_only(barrier_after_return, 0)},
        {"barriers_in_both_branches", out_only(barriers_in_both_branches, 0)},
        {"collective_beside_barrier", out_only(collective_beside_barrier, 0)},
        {"contiguous_loads", counted(strided_loads, 0, 1, 0)},
        {"shifted_loads", counted(strided_loads, 0, 1, 1)},
        {"scattered_loads", counted(strided_loads, 0, 8, 0)},
        {"same_loads", counted(strided_loads, 0, 0, 0)},
        {"shared_stride_1", counted(strided_shared, 4096, 1)},
        {"shared_stride_2", counted(strided_shared, 4096, 2)},
        {"shared_stride_32", counted(strided_shared, 4096, 32)},
        {"vector_rows_contiguous", counted(vector_rows, 4096, 4)},
        {"vector_rows_apart", counted(vector_rows, 4096, 8)},
    };
}

// Every half as a float, then stdin's floats as halves and as bfloat16s.
void convert_halves() {
    for (unsigned bits = 0; bits < 65536; ++bits) {
        const float value = __half2float(__half{static_cast<std::uint16_t>(bits)});
        std::fwrite(&value, sizeof(value), 1, stdout);
    }
    float value;
    while (std::fread(&value, sizeof(value), 1, stdin) == 1) {
        const std::uint16_t pair[] = {__float2half_rn(value).bits, __float2bfloat16_rn(value).bits};
        std::fwrite(pair, sizeof(pair), 1, stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string name = argc > 1 ? argv[1] : "";
    const unsigned order = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 0;
    cuda_sim::set_order(static_cast<cuda_sim::Order>(order < 2 ? order : 2), order);
    if (name == "halves") {
        convert_halves();
        return 0;
    }
    const auto all = cases();
    const auto found = all.find(name);
    if (found == all.end()) {
        std::fprintf(stderr, "unknown case %s\n", name.c_str());
        return 2;
    }
    try {
        found->second();
    } catch (const cuda_sim::Error& error) {
        std::printf("error: %s\n", error.what());
    }
    return 0;
}
