// A pack as it is read from its folder.
#ifndef TF_TVM_OPS_CC_DISPATCH_PACK_H_
#define TF_TVM_OPS_CC_DISPATCH_PACK_H_

#include <memory>
#include <string>
#include <vector>

#include "cc/dispatch/image.h"
#include "cc/dispatch/pack_info.h"

namespace tf_tvm_ops {

// A pack in use. Immortal, as its images are.
struct Pack {
  PackInfo info;
  std::vector<std::unique_ptr<Image>> images;  // as info.targets
  std::vector<std::string> warnings;           // of a pack that is used all the same
};

// The targets of CPUs that this one can run, best first: none that is better than `limit`, unless
// that is empty.
std::vector<std::string> UsableCpuTargets(const std::string& limit);

// Images for GPUs are used where there is a driver; which GPU can run them is not asked here. Null
// with the reason in *error if nothing can be used. Throws nothing but std::bad_alloc.
std::unique_ptr<Pack> ReadPack(const std::string& path, const std::string& cpu_target_limit,
                               std::string* error);

// With ", " or the like between.
std::string Join(const std::vector<std::string>& parts, const char* separator);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_PACK_H_
