// A multiprocessor on the CPU: runs the threads of a block as fibers that take turns.
//
// A thread runs until it waits for others (a barrier, or an instruction that a warp executes as
// one) or ends. What hardware leaves open is decided against the kernel: threads run in both
// orders, shared memory holds NaN at first, and asynchronous copies arrive as late as they may, or
// at once.
#ifndef TF_TVM_OPS_KERNELS_EMULATE_MACHINE_H_
#define TF_TVM_OPS_KERNELS_EMULATE_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace emulate {

constexpr int kWarp = 32;

struct Index {
  unsigned x, y, z;
};

// Of the fiber that runs now.
extern Index thread_index;
extern Index block_index;

// Lets go until all threads of the block are here. Sites tell barriers apart.
void Barrier(int site);

// What the lanes of a warp hand to an instruction that they execute as one.
using Collective = void (*)(void* lanes[kWarp]);

// Lets go until all lanes of the warp are here; the last one to come executes.
void Together(Collective execute, void* lane, int site);

// Whether asynchronous copies arrive at once in this run.
bool CopiesAtOnce();
void CopyLater(void* target, const void* source, int bytes, bool valid);
void CommitCopies();
void WaitForCopies(int groups);

// Ends the run with an error.
[[noreturn]] void Fail(const std::string& what);

struct Launch {
  void (*run)(const void* arguments);  // a thread
  const void* arguments;
  int64_t blocks;
  int64_t threads;
  char* shared_begin;  // all shared memory of the kernel
  char* shared_end;
};

// Runs all blocks one after the other. Returns what went wrong, or nothing.
std::string Run(const Launch& launch);

}  // namespace emulate

#endif  // TF_TVM_OPS_KERNELS_EMULATE_MACHINE_H_
