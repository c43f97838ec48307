#pragma GCC optimize("O1")  // also where kernels are not

#include "machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define __asan_unpoison_memory_region(address, size)
#endif

// 0: first thread first, copies late; 1: last thread first, copies at once. Set by the checker.
extern "C" {
__attribute__((visibility("default"))) int emulate_order = 0;
// The most blocks that a launch had, for tests of launching functions.
__attribute__((visibility("default"))) int64_t emulate_most_blocks = 0;
void emulate_switch(void** save, void* resume);
void emulate_enter();
}

// Saves the registers that a function must preserve on the stack, and takes over the other stack.
asm(R"(
  .pushsection .text
  .globl emulate_switch
  .hidden emulate_switch
  .type emulate_switch, @function
emulate_switch:
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
  .popsection
)");

namespace emulate {

Index thread_index;
Index block_index;

namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
// Below each stack: a frame that is too large ends the process.
constexpr size_t kGuardBytes = 4096;
// The part of a stack where the locals of a kernel are.
constexpr size_t kPoisonBytes = 4096;
constexpr int kMaxThreads = 1024;

enum class State : uint8_t { kReady, kAtBarrier, kInWarp, kDone };

struct Copy {
  void* target;
  const void* source;
  int bytes;
  bool valid;
};

struct Fiber {
  void* stack_pointer = nullptr;
  State state = State::kDone;
  int site = 0;
  Collective execute = nullptr;
  void* lane = nullptr;
  std::vector<std::vector<Copy>> groups;  // committed, oldest first
  std::vector<Copy> open;
};

struct Machine {
  std::vector<Fiber> fibers{kMaxThreads};
  int current = 0;
  void* scheduler = nullptr;
  const Launch* launch = nullptr;
  std::string fault;
};

Machine& machine() {
  static auto* instance = new Machine;
  return *instance;
}

void Yield() {
  Machine& m = machine();
  emulate_switch(&m.fibers[m.current].stack_pointer, m.scheduler);
}

void Prepare(Fiber* fiber, char* stack) {
  __asan_unpoison_memory_region(stack, kStackBytes);
  // What emulate_switch pops: six registers, then where to go. The stack is aligned as at a call.
  auto* top = reinterpret_cast<void**>(stack + kStackBytes) - 2;
  // Locals that a kernel does not set are NaN.
  std::memset(stack + kStackBytes - kPoisonBytes, 0xff, kPoisonBytes);
  *top = reinterpret_cast<void*>(&emulate_enter);
  fiber->stack_pointer = top - 6;
  std::memset(fiber->stack_pointer, 0, 6 * sizeof(void*));
  fiber->state = State::kReady;
  fiber->groups.clear();
  fiber->open.clear();
}

// The stacks of a launch, which go with it: guards make two mappings of each, and a process that
// has many kernels would run out of mappings.
class Stacks {
 public:
  explicit Stacks(int64_t threads) : bytes_(kStackBytes * static_cast<size_t>(threads)) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    memory_ = static_cast<char*>(memory);
    for (size_t offset = 0; offset < bytes_; offset += kStackBytes) {
      if (mprotect(memory_ + offset, kGuardBytes, PROT_NONE) != 0) return;
    }
    complete_ = true;
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  ~Stacks() {
    if (memory_ == nullptr) return;
    __asan_unpoison_memory_region(memory_, bytes_);
    munmap(memory_, bytes_);
  }

  // False if the system granted less than all stacks and guards.
  bool complete() const { return complete_; }
  char* of(int thread) const { return memory_ + static_cast<size_t>(thread) * kStackBytes; }

 private:
  size_t bytes_;
  char* memory_ = nullptr;
  bool complete_ = false;
};

void Resume(int thread) {
  Machine& m = machine();
  m.current = thread;
  thread_index.x = static_cast<unsigned>(thread);
  emulate_switch(&m.scheduler, m.fibers[thread].stack_pointer);
}

void Perform(const Copy& copy) {
  if (copy.valid) {
    std::memcpy(copy.target, copy.source, static_cast<size_t>(copy.bytes));
  } else {
    std::memset(copy.target, 0, static_cast<size_t>(copy.bytes));
  }
}

// Lets a warp go on if its lanes have all come to one instruction.
bool ReleaseWarp(int first, int threads) {
  Machine& m = machine();
  if (first + kWarp > threads) return false;
  void* lanes[kWarp];
  for (int lane = 0; lane < kWarp; ++lane) {
    const Fiber& fiber = m.fibers[first + lane];
    if (fiber.state != State::kInWarp || fiber.site != m.fibers[first].site) return false;
    lanes[lane] = fiber.lane;
  }
  m.fibers[first].execute(lanes);
  for (int lane = 0; lane < kWarp; ++lane) m.fibers[first + lane].state = State::kReady;
  return true;
}

// Runs a warp as far as it gets by itself: what it needs of others, a barrier must have given it.
void RunWarp(int first, int threads) {
  Machine& m = machine();
  const int count = std::min(kWarp, threads - first);
  do {
    for (int i = 0; i < count && m.fault.empty(); ++i) {
      const int thread = first + (emulate_order == 0 ? i : count - 1 - i);
      if (m.fibers[thread].state == State::kReady) Resume(thread);
    }
  } while (m.fault.empty() && ReleaseWarp(first, threads));
}

bool ReleaseBarrier(int threads) {
  Machine& m = machine();
  for (int thread = 0; thread < threads; ++thread) {
    if (m.fibers[thread].state != State::kAtBarrier) return false;
    if (m.fibers[thread].site != m.fibers[0].site) {
      m.fault = "divergent barrier: threads 0 and " + std::to_string(thread) +
                " wait at different ones (lines " + std::to_string(m.fibers[0].site) + " and " +
                std::to_string(m.fibers[thread].site) + ")";
      return false;
    }
  }
  for (int thread = 0; thread < threads; ++thread) m.fibers[thread].state = State::kReady;
  return true;
}

std::string Stuck(int threads) {
  int counts[4] = {};
  for (int thread = 0; thread < threads; ++thread) {
    ++counts[static_cast<int>(machine().fibers[thread].state)];
  }
  return "divergent barrier: " + std::to_string(counts[1]) + " threads wait at a barrier, " +
         std::to_string(counts[2]) + " for their warp, " + std::to_string(counts[3]) +
         " have ended";
}

void RunBlock(const Stacks& stacks, int threads) {
  Machine& m = machine();
  for (int thread = 0; thread < threads; ++thread) {
    Prepare(&m.fibers[thread], stacks.of(thread));
  }
  const int warps = (threads + kWarp - 1) / kWarp;
  while (m.fault.empty()) {
    for (int i = 0; i < warps && m.fault.empty(); ++i) {
      RunWarp((emulate_order == 0 ? i : warps - 1 - i) * kWarp, threads);
    }
    const auto begin = m.fibers.begin();
    const bool done = std::all_of(begin, begin + threads,
                                  [](const Fiber& fiber) { return fiber.state == State::kDone; });
    if (done || !m.fault.empty()) return;
    if (!ReleaseBarrier(threads) && m.fault.empty()) m.fault = Stuck(threads);
  }
}

// By hand: the gaps between arrays are the sanitizer's, which would object to memset.
__attribute__((no_sanitize("address"))) void Poison(char* begin, char* end) {
  for (char* byte = begin; byte != end; ++byte) *const_cast<volatile char*>(byte) = '\xff';
}

}  // namespace

void Barrier(int site) {
  Fiber& fiber = machine().fibers[machine().current];
  fiber.state = State::kAtBarrier;
  fiber.site = site;
  Yield();
}

void Together(Collective execute, void* lane, int site) {
  Fiber& fiber = machine().fibers[machine().current];
  fiber.state = State::kInWarp;
  fiber.site = site;
  fiber.execute = execute;
  fiber.lane = lane;
  Yield();
}

bool CopiesAtOnce() { return emulate_order != 0; }

void CopyLater(void* target, const void* source, int bytes, bool valid) {
  if (CopiesAtOnce()) return Perform({target, source, bytes, valid});
  machine().fibers[machine().current].open.push_back({target, source, bytes, valid});
}

void CommitCopies() {
  Fiber& fiber = machine().fibers[machine().current];
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
}

void WaitForCopies(int groups) {
  auto& waiting = machine().fibers[machine().current].groups;
  while (waiting.size() > static_cast<size_t>(groups)) {
    for (const Copy& copy : waiting.front()) Perform(copy);
    waiting.erase(waiting.begin());
  }
}

void Fail(const std::string& what) {
  machine().fault = what;
  Yield();
  __builtin_unreachable();  // nobody resumes a thread after a fault
}

std::string Run(const Launch& launch) {
  Machine& m = machine();
  if (launch.blocks < 1 || launch.threads < 1 || launch.threads > kMaxThreads) {
    return "launch of " + std::to_string(launch.blocks) + " blocks of " +
           std::to_string(launch.threads) + " threads";
  }
  const Stacks stacks(launch.threads);
  if (!stacks.complete()) return "the system has no memory, or no mappings left, for stacks";
  m.launch = &launch;
  emulate_most_blocks = std::max(emulate_most_blocks, launch.blocks);
  m.fault.clear();
  for (int64_t block = 0; block < launch.blocks && m.fault.empty(); ++block) {
    block_index.x = static_cast<unsigned>(block);
    Poison(launch.shared_begin, launch.shared_end);
    RunBlock(stacks, static_cast<int>(launch.threads));
  }
  return m.fault;
}

}  // namespace emulate

// Where a fiber starts: never returns, as there is nothing to return to.
extern "C" void emulate_enter() {
  emulate::Machine& m = emulate::machine();
  m.launch->run(m.launch->arguments);
  m.fibers[m.current].state = emulate::State::kDone;
  emulate::Yield();
}
