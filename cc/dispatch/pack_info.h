// What users are told of a pack.
#ifndef TF_TVM_OPS_CC_DISPATCH_PACK_INFO_H_
#define TF_TVM_OPS_CC_DISPATCH_PACK_INFO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/dispatch/export.h"

namespace tf_tvm_ops {

struct TF_TVM_OPS_EXPORT PackInfo {
  std::string path;                  // real path of the folder
  int64_t kernels = 0;               // problems it has a kernel for that is usable on this machine
  std::vector<std::string> targets;  // of the images in use, those of CPUs first, best first
  std::vector<std::string> ignored;  // images that are not used: "cuda:sm_80: ..." and why
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_PACK_INFO_H_
