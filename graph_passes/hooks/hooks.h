// Where TensorFlow calls the rewriter.
#ifndef TF_TVM_OPS_GRAPH_PASSES_HOOKS_HOOKS_H_
#define TF_TVM_OPS_GRAPH_PASSES_HOOKS_HOOKS_H_

namespace tf_tvm_ops {

// Each registers with TensorFlow, once in a process.
//
// Every graph of a session and every function, with no configuration.
void RegisterAutomaticPasses();
// The Grappler optimizer "tf_tvm_ops", for those who name it in a ConfigProto.
void RegisterGrapplerOptimizer();

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_HOOKS_HOOKS_H_
