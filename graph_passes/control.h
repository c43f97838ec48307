// Whether graphs are rewritten in this process.
#ifndef TF_TVM_OPS_GRAPH_PASSES_CONTROL_H_
#define TF_TVM_OPS_GRAPH_PASSES_CONTROL_H_

#include <cstdint>

namespace tf_tvm_ops {

enum class RewriteMode : uint8_t {
  kOn,
  kOff,
  kReport  // on, and every product of every graph is reported on standard error
};

// At first what the environment asks for. Graphs that are set up already stay as they are.
RewriteMode RewriteModeInForce();
void SetRewriteMode(RewriteMode mode);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_CONTROL_H_
