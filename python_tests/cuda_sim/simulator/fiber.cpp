// Context switches of simulated threads. Compiled without sanitizer instrumentation; the macros
// CUDA_SIM_ASAN and CUDA_SIM_TSAN say which sanitizer the rest of the program uses.

#include "simulator/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(CUDA_SIM_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(CUDA_SIM_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

// ucontext makes a system call a switch and is about nine times slower.
#if defined(__x86_64__) && !defined(CUDA_SIM_UCONTEXT)
#define CUDA_SIM_ASSEMBLER
// cuda_sim_switch(save, load): pushes the callee-saved registers, stores the stack pointer in
// *save and continues from the stack pointer `load`.
// cuda_sim_trampoline: first frame of a fiber; calls r13 with the argument r12.
extern "C" void cuda_sim_switch(void** save, void* load);
extern "C" void cuda_sim_trampoline();
asm(R"(
.text
.globl cuda_sim_switch
.hidden cuda_sim_switch
.type cuda_sim_switch, @function
cuda_sim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size cuda_sim_switch, .-cuda_sim_switch
.globl cuda_sim_trampoline
.hidden cuda_sim_trampoline
.type cuda_sim_trampoline, @function
cuda_sim_trampoline:
    movq %r12, %rdi
    callq *%r13
    ud2
.size cuda_sim_trampoline, .-cuda_sim_trampoline
)");
#endif

namespace cuda_sim {
namespace {

// Room for an exception to unwind under a sanitizer, whose frames are several times larger.
constexpr std::size_t kStackBytes = 128 * 1024;

struct Side {
#if defined(CUDA_SIM_ASSEMBLER)
    void* stack_pointer = nullptr;
#else
    ucontext_t context{};
#endif
    const void* stack_bottom = nullptr;
    std::size_t stack_size = 0;
    void* fake_stack = nullptr;
    void* tsan = nullptr;
};

thread_local Side scheduler;

std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

void arrive([[maybe_unused]] Side& here, [[maybe_unused]] Side* from) {
#if defined(CUDA_SIM_ASAN)
    __sanitizer_finish_switch_fiber(here.fake_stack, from ? &from->stack_bottom : nullptr,
                                    from ? &from->stack_size : nullptr);
#endif
}

// `for_good`: the stack of `from` will not be resumed.
void switch_sides(Side& from, Side& to, [[maybe_unused]] bool for_good) {
#if defined(CUDA_SIM_ASAN)
    __sanitizer_start_switch_fiber(for_good ? nullptr : &from.fake_stack, to.stack_bottom,
                                   to.stack_size);
#endif
#if defined(CUDA_SIM_TSAN)
    __tsan_switch_to_fiber(to.tsan, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(CUDA_SIM_ASSEMBLER)
    cuda_sim_switch(&from.stack_pointer, to.stack_pointer);
#else
    swapcontext(&from.context, &to.context);
#endif
    arrive(from, nullptr);
}

}  // namespace

struct Fiber::Context : Side {};

Fiber::Fiber() : context_(new Context) {
    // The lowest page stays inaccessible: an overflow faults instead of hitting a neighbour.
    void* base = mmap(nullptr, page_size() + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED || mprotect(base, page_size(), PROT_NONE) != 0) throw std::bad_alloc();
    stack_ = static_cast<char*>(base) + page_size();
    context_->stack_bottom = stack_;
    context_->stack_size = kStackBytes;
}

Fiber::~Fiber() {
#if defined(CUDA_SIM_TSAN)
    if (context_->tsan) __tsan_destroy_fiber(context_->tsan);
#endif
    munmap(static_cast<char*>(stack_) - page_size(), page_size() + kStackBytes);
    delete context_;
}

void Fiber::start(void* fiber) {
    auto* self = static_cast<Fiber*>(fiber);
    arrive(*self->context_, &scheduler);
    self->entry_(self->argument_);
    std::abort();
}

void Fiber::prepare(void (*entry)(void*), void* argument) {
    entry_ = entry;
    argument_ = argument;
    context_->fake_stack = nullptr;
#if defined(CUDA_SIM_ASAN)
    __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
#if defined(CUDA_SIM_TSAN)
    // A new thread on an old stack: mapping it again makes the sanitizer forget the old one.
    mmap(stack_, kStackBytes, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (context_->tsan) __tsan_destroy_fiber(context_->tsan);
    context_->tsan = __tsan_create_fiber(0);
#endif
#if defined(CUDA_SIM_ASSEMBLER)
    // From the top: two empty words (alignment), the trampoline's address, six registers.
    auto** top = reinterpret_cast<void**>(static_cast<char*>(stack_) + kStackBytes);
    *--top = nullptr;
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(&cuda_sim_trampoline);
    *--top = nullptr;                                 // rbp
    *--top = nullptr;                                 // rbx
    *--top = this;                                    // r12
    *--top = reinterpret_cast<void*>(&Fiber::start);  // r13
    *--top = nullptr;                                 // r14
    *--top = nullptr;                                 // r15
    context_->stack_pointer = top;
#else
    getcontext(&context_->context);
    context_->context.uc_stack.ss_sp = stack_;
    context_->context.uc_stack.ss_size = kStackBytes;
    context_->context.uc_link = nullptr;
    // makecontext passes ints only: the pointer travels in two halves.
    const auto entry_point = +[](unsigned low, unsigned high) {
        start(reinterpret_cast<void*>((std::uint64_t{high} << 32) | low));
    };
    const auto address = reinterpret_cast<std::uint64_t>(this);
    makecontext(&context_->context, reinterpret_cast<void (*)()>(entry_point), 2,
                static_cast<unsigned>(address), static_cast<unsigned>(address >> 32));
#endif
}

void Fiber::resume() { switch_sides(scheduler, *context_, false); }

void Fiber::yield_to_scheduler() { switch_sides(*context_, scheduler, false); }

void Fiber::finish() {
    switch_sides(*context_, scheduler, true);
    std::abort();
}

void register_scheduler() {
#if defined(CUDA_SIM_TSAN)
    scheduler.tsan = __tsan_get_current_fiber();
#endif
}

void publish([[maybe_unused]] void* object) {
#if defined(CUDA_SIM_TSAN)
    __tsan_release(object);
#endif
}

void observe([[maybe_unused]] void* object) {
#if defined(CUDA_SIM_TSAN)
    __tsan_acquire(object);
#endif
}

}  // namespace cuda_sim
