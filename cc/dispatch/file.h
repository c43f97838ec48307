// Reading files, with errors as one sentence. Nothing here throws except when out of memory.
#ifndef TF_TVM_OPS_CC_DISPATCH_FILE_H_
#define TF_TVM_OPS_CC_DISPATCH_FILE_H_

#include <cstdint>
#include <string>

namespace tf_tvm_ops {

// Each returns false with the reason in *error, which does not name the path.

// The absolute path without links and "..".
bool RealPath(const std::string& path, std::string* real_path, std::string* error);

// The size of a regular file.
bool FileBytes(const std::string& path, int64_t* bytes, std::string* error);

// All of a regular file, if it has at most `max_bytes`.
bool ReadFile(const std::string& path, int64_t max_bytes, std::string* text, std::string* error);

// Its SHA-256, in lower-case hex.
bool HashFile(const std::string& path, std::string* hex_digest, std::string* error);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_FILE_H_
