// SHA-256 as in FIPS 180-4, for the checksums of images.
#ifndef TF_TVM_OPS_CC_DISPATCH_SHA256_H_
#define TF_TVM_OPS_CC_DISPATCH_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cc/dispatch/export.h"

namespace tf_tvm_ops {

class TF_TVM_OPS_EXPORT Sha256 {
 public:
  Sha256();
  void Update(const void* data, size_t bytes);
  // The digest as 64 lower-case hex digits. The object must not be used afterwards.
  std::string HexDigest();

 private:
  static constexpr size_t kBlockBytes = 64;

  void Compress(const uint8_t* block);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, kBlockBytes> pending_{};  // the first total_bytes_ % 64 are in use
  uint64_t total_bytes_ = 0;
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_SHA256_H_
