#include "simulator/traffic.h"

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_map>
#include <vector>

#include "simulator/runtime.h"

namespace cuda_sim::traffic {
namespace {

constexpr std::uintptr_t kSectorBytes = 32;
constexpr std::uintptr_t kBankBytes = 4;
constexpr unsigned kBanks = 32;
constexpr std::size_t kPhaseBytes = kBanks * kBankBytes;

struct Request {
    Space space;
    std::size_t bytes = 0;  // of one lane
    std::array<std::uintptr_t, kWarpSize> address{};
};

// Place in the source, warp, barrier and repetition packed into one word each.
struct Key {
    std::uint64_t place;
    std::uint64_t when;
    bool operator==(const Key&) const = default;
};
struct KeyHash {
    std::size_t operator()(const Key& key) const {
        return static_cast<std::size_t>(key.place * 0x9e3779b97f4a7c15ull ^
                                        std::rotl(key.when * 0xc2b2ae3d27d4eb4full, 31));
    }
};

bool on = false;
std::array<Count, kSpaces> counts;
std::unordered_map<Key, Request, KeyHash> requests;
std::unordered_map<Key, std::uint32_t, KeyHash> repetitions;  // per thread, place and barrier

std::uint64_t distinct(std::vector<std::uintptr_t>& values) {
    std::sort(values.begin(), values.end());
    return static_cast<std::uint64_t>(std::unique(values.begin(), values.end()) - values.begin());
}

std::uint64_t count_sectors(const Request& request) {
    std::vector<std::uintptr_t> sectors;
    for (const std::uintptr_t address : request.address) {
        if (!address) continue;
        const std::uintptr_t last = (address + request.bytes - 1) / kSectorBytes;
        for (std::uintptr_t s = address / kSectorBytes; s <= last; ++s) sectors.push_back(s);
    }
    return distinct(sectors);
}

struct Passes {
    std::uint64_t all = 0;
    std::uint64_t extra = 0;
};

Passes count_passes(const Request& request) {
    const std::size_t lanes_per_phase =
        std::min<std::size_t>(kWarpSize, kPhaseBytes / std::max(request.bytes, kBankBytes));
    Passes count;
    for (std::size_t first = 0; first < kWarpSize; first += lanes_per_phase) {
        std::array<std::vector<std::uintptr_t>, kBanks> words;
        for (std::size_t lane = first; lane < first + lanes_per_phase; ++lane) {
            const std::uintptr_t address = request.address[lane];
            if (!address) continue;
            const std::uintptr_t last = (address + request.bytes - 1) / kBankBytes;
            for (std::uintptr_t w = address / kBankBytes; w <= last; ++w) {
                words[w % kBanks].push_back(w);
            }
        }
        std::uint64_t passes = 0;
        for (auto& bank : words) passes = std::max(passes, distinct(bank));
        count.all += passes;
        if (passes > 1) count.extra += passes - 1;
    }
    return count;
}

}  // namespace

void enable(bool value) {
    on = value;
    counts = {};
    requests.clear();
    repetitions.clear();
}

bool enabled() { return on; }

Count total(Space space) { return counts[static_cast<std::size_t>(space)]; }

void record(Space space, const void* address, std::size_t bytes,
            const std::source_location& where) {
    const std::uint64_t place = reinterpret_cast<std::uintptr_t>(where.file_name()) ^
                                (std::uint64_t{where.line()} << 48) ^
                                (std::uint64_t{where.column()} << 36);
    const std::uint64_t barrier = barriers_passed();
    const unsigned thread = linear_thread();
    const std::uint32_t n = repetitions[{place, barrier << 16 | thread}]++;
    Request& request =
        requests[{place, barrier << 40 | std::uint64_t{n} << 8 | thread / kWarpSize}];
    request.space = space;
    if (!address) return;
    request.bytes = bytes;
    request.address[thread % kWarpSize] = reinterpret_cast<std::uintptr_t>(address);
}

void finish_block(double represented) {
    if (!on) return;
    for (const auto& [key, request] : requests) {
        const auto lanes =
            static_cast<std::uint64_t>(std::count_if(request.address.begin(), request.address.end(),
                                                     [](std::uintptr_t a) { return a != 0; }));
        if (lanes == 0) continue;
        Count& count = counts[static_cast<std::size_t>(request.space)];
        const bool global =
            request.space == Space::kGlobalLoad || request.space == Space::kGlobalStore;
        count.requests += represented;
        count.bytes += represented * static_cast<double>(lanes * request.bytes);
        if (global) {
            count.sectors += represented * static_cast<double>(count_sectors(request));
        } else {
            const Passes passes = count_passes(request);
            count.passes += represented * static_cast<double>(passes.all);
            count.conflicts += represented * static_cast<double>(passes.extra);
        }
    }
    requests.clear();
    repetitions.clear();
}

}  // namespace cuda_sim::traffic
