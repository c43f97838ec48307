// Objects that are never destroyed.
//
// Kernels, images and tables may be in use by any thread until the process is gone, also while
// static destructors run in the main thread. Freeing them is not worth finding out when that is.
#ifndef TF_TVM_OPS_CC_DISPATCH_IMMORTAL_H_
#define TF_TVM_OPS_CC_DISPATCH_IMMORTAL_H_

#include <memory>
#include <mutex>
#include <vector>

namespace tf_tvm_ops {

// Takes the object out of ownership. It stays reachable, so that leak checkers do not report it.
template <typename T>
T* MakeImmortal(std::unique_ptr<T> object) {
  struct Registry {
    std::mutex mutex;
    std::vector<std::unique_ptr<T>> objects;
  };
  static auto* const registry = new Registry;
  const std::lock_guard<std::mutex> lock(registry->mutex);
  registry->objects.push_back(std::move(object));
  return registry->objects.back().get();
}

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_IMMORTAL_H_
