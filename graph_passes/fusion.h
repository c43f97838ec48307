// A product and what is fused with it, while rules extend it.
#ifndef TF_TVM_OPS_GRAPH_PASSES_FUSION_H_
#define TF_TVM_OPS_GRAPH_PASSES_FUSION_H_

#include <optional>
#include <string>
#include <vector>

#include "cc/ops/matmul_attrs.h"
#include "graph_passes/graph_view.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tvm_ops {

struct FusedOperand {
  Slot tensor;
  MatMulLayout layout;
  int rank = 0;  // number of dimensions of the tensor, if a rule saw it; else 0
};

// scale * (lhs · rhs) + addend, or that with length and heads swapped: one op of the family.
struct Fusion {
  const tensorflow::Node* product = nullptr;  // where it began
  const tensorflow::Node* tail = nullptr;     // whose output 0 the op takes over
  tensorflow::DataType dtype = tensorflow::DT_INVALID;
  FusedOperand lhs;
  FusedOperand rhs;
  // Whether batch dimensions are broadcast; stock reports different ones as an error otherwise.
  bool broadcast_batch = true;
  double scale = 1.0;
  std::optional<Slot> addend;
  bool addend_negated = false;
  bool output_length_first = false;
  int output_rank = 0;                            // as of an operand
  std::vector<const tensorflow::Node*> absorbed;  // product and tail among them
  std::vector<std::string> parts;                 // for people: "scale", "rhs transpose", ...

  MatMulAttrs attrs() const;
  // Takes over the role of the tail.
  void Absorb(const tensorflow::Node& node, std::string part);
};

// The value of a constant with one element; nothing for other dtypes than floating-point ones.
std::optional<double> ScalarValue(const tensorflow::Tensor& tensor);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_FUSION_H_
