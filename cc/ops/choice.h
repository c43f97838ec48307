// Which implementation serves a product: a pack's kernel, the generic kernel, or stock.
#ifndef TF_TVM_OPS_CC_OPS_CHOICE_H_
#define TF_TVM_OPS_CC_OPS_CHOICE_H_

#include <cstdint>
#include <string>

#include "cc/dispatch/kernel.h"
#include "cc/dispatch/product.h"
#include "cc/ops/backend.h"
#include "cc/ops/matmul_shapes.h"

namespace tf_tvm_ops {

// What serves a product that no pack has a kernel for.
enum class Fallback : uint8_t {
  kAuto,     // the generic kernel where it is expected to win, else stock
  kGeneric,  // the generic kernel if there is one, else stock
  kStock
};

// The fallback that the environment asks for.
Fallback FallbackInForce();

enum class Server : uint8_t { kKernel, kStock, kZeros };

struct Choice {
  Server server = Server::kStock;
  const Kernel* kernel = nullptr;    // set for Server::kKernel
  Plan plan;                         // likewise, without data pointers
  Refusal refusal = Refusal::kNone;  // why no kernel made for the problem serves it
  // Set by who calls the kernel: why it does not serve after all, where something else still can.
  std::string failure;

  // One line: the kernel's symbol, "stock (no_kernel)", or "zeros" for an empty product.
  std::string ToString() const;
};

// Takes no lock and allocates nothing.
Choice Choose(const Backend& backend, const MatMulShapes& shapes, Fallback fallback);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_OPS_CHOICE_H_
