// What forbids to replace a product, whatever is fused with it.
#ifndef TF_TVM_OPS_GRAPH_PASSES_GUARDS_H_
#define TF_TVM_OPS_GRAPH_PASSES_GUARDS_H_

#include "graph_passes/fusion.h"
#include "graph_passes/graph_view.h"
#include "graph_passes/reason.h"

namespace tf_tvm_ops {

// Each is Taken, or Refused with the reason of its name.
Verdict HasDType(GraphView& view, const Fusion& fusion);
Verdict IsOutsideXla(GraphView& view, const Fusion& fusion);
Verdict HasKernelOnDevice(GraphView& view, const Fusion& fusion);
Verdict HasBatch(GraphView& view, const Fusion& fusion);
// Where all shapes are known: whether a kernel of a pack, or the generic one, would serve the op.
Verdict BeatsStock(GraphView& view, const Fusion& fusion);

// All of them, in this order, up to the first that refuses.
Verdict CheckProduct(GraphView& view, const Fusion& fusion);

// Whether a scale or addend may be fused into a product of this dtype. If not, the product is
// better left alone, since TensorFlow's own optimizer may fuse them.
Verdict EpiloguePays(GraphView& view, const Fusion& fusion);

// Whether the node will be differentiated in another way than its type says.
bool HasOwnGradient(const GraphView& view, const tensorflow::Node& node);

bool SameDevice(const tensorflow::Node& a, const tensorflow::Node& b);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_GUARDS_H_
