// What other libraries may link against; everything else of ours is hidden.
#ifndef TF_TVM_OPS_CC_DISPATCH_EXPORT_H_
#define TF_TVM_OPS_CC_DISPATCH_EXPORT_H_

#define TF_TVM_OPS_EXPORT __attribute__((visibility("default")))

#endif  // TF_TVM_OPS_CC_DISPATCH_EXPORT_H_
