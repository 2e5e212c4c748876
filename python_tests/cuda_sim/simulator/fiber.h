// One stack and one saved context per simulated CUDA thread.
//
// A fiber runs until it calls `yield_to_scheduler`. The address and thread sanitizers are told
// about every switch; switches carry no happens-before edge, so that the thread sanitizer sees
// fibers as unordered unless a barrier orders them.
#pragma once

#include <cstddef>

namespace cuda_sim {

class Fiber {
  public:
    Fiber();
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    // Prepares the fiber to call `entry(argument)` on its own stack; drops what it ran before.
    // `entry` must end in `finish`.
    void prepare(void (*entry)(void*), void* argument);

    // Scheduler side: runs the fiber until it yields or finishes.
    void resume();
    // Fiber side.
    void yield_to_scheduler();
    [[noreturn]] void finish();

  private:
    struct Context;
    static void start(void* fiber);

    Context* context_;
    void* stack_;
    void (*entry_)(void*) = nullptr;
    void* argument_ = nullptr;
};

// The scheduler's side of every switch on this OS thread; call before the first `resume`.
void register_scheduler();

// Orders memory for the thread sanitizer; no effect without it.
void publish(void* object);
void observe(void* object);

}  // namespace cuda_sim
