// A compiled kernel as the dispatcher sees it, and the calling convention of its symbol.
#ifndef TF_TVM_OPS_CC_DISPATCH_KERNEL_H_
#define TF_TVM_OPS_CC_DISPATCH_KERNEL_H_

#include <cstdint>
#include <string>

#include "cc/dispatch/export.h"
#include "cc/dispatch/measured.h"
#include "cc/dispatch/problem.h"

namespace tf_tvm_ops {

// Version of the argument list below; a pack made for another one is refused. kernels/compute.py
// builds the callee and names the same version.
constexpr int kKernelAbi = 2;

// Devices are told apart by numbers below this: of a GPU CUDA's own, of the CPU 0. TVM's runtime
// keeps functions of modules in tables of so many GPUs, unchecked.
constexpr int kMaxDevices = 32;

// What a kernel adds to the scaled product.
enum class AddendKind : uint8_t {
  kNone = 0,
  kMatrix = 1,  // addend[m, n], contiguous in n
  kColumn = 2   // addend[m], the same for every n
};

// The arguments of a kernel, in the order in which they are passed through tvm-ffi (a pointer to
// the thread's workspace stands between out and begin). All strides count elements. Flattened batch
// index i in [begin, end) stands for batch i / heads and head i % heads; a broadcast operand has
// stride 0 there.
//
//   out[m, n] = scale * sum over k of lhs[m, k] * rhs[k, n] + addend[m, n]
//
// 16-bit types are multiplied, scaled and added in float32 and rounded once, float64 in float64.
struct KernelArgs {
  const void* lhs;
  const void* rhs;
  const void* addend;  // may be null if the kind is kNone
  void* out;
  int64_t begin;
  int64_t end;
  int64_t heads;
  int64_t lhs_batch_stride;
  int64_t lhs_head_stride;
  int64_t lhs_stride;  // of the dimension that is not contiguous
  int64_t rhs_batch_stride;
  int64_t rhs_head_stride;
  int64_t rhs_stride;  // of the dimension that is not contiguous
  int64_t addend_batch_stride;
  int64_t addend_head_stride;
  int64_t addend_stride;  // of m, 0 if every row gets the same
  AddendKind addend_kind;
  int64_t out_batch_stride;
  int64_t out_head_stride;
  int64_t out_stride;  // of m; n is contiguous
  double scale;
  // Passed to generic kernels only.
  int64_t m;
  int64_t n;
  int64_t k;
};

// One entry of a manifest. Lives as long as the process; safe to use from any thread.
class TF_TVM_OPS_EXPORT Kernel {
 public:
  virtual ~Kernel() = default;
  virtual const Problem& problem() const = 0;
  virtual const std::string& symbol() const = 0;
  virtual const std::string& target() const = 0;  // "cpu:x86-64-v4"
  virtual const std::string& pack() const = 0;    // folder of the pack
  virtual const std::string& config() const = 0;  // JSON text of the schedule config

  // How it did against stock when its pack was tuned.
  virtual const Duels& duels() const = 0;
  // Of a generic kernel of a tuned pack; else null.
  virtual const FallbackModel* model() const = 0;

  // Loads the image behind the kernel on first use (checksum, dlopen, symbol). False when that
  // failed, now or earlier: the failure was logged once, the kernel must not be called.
  virtual bool Ready() const = 0;

  // Whether it failed on a device when it was called, so that it is to be passed over there.
  virtual bool FailedOn(int device) const = 0;
  // Notes that it did, for the life of the process. One warning says so, whoever notes it first.
  virtual void Fail(int device, const std::string& error) const = 0;

  // Computes batches [begin, end). The workspace a kernel asks for is taken from a buffer of the
  // calling thread. Returns an empty string, or what went wrong. Never throws.
  virtual std::string Call(const KernelArgs& args) const = 0;
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_KERNEL_H_
