// Messages to the user: one line each on standard error, "tf_tvm_ops: warning: ...".
#ifndef TF_TVM_OPS_CC_DISPATCH_LOG_H_
#define TF_TVM_OPS_CC_DISPATCH_LOG_H_

#include <cstdint>
#include <string_view>

#include "cc/dispatch/export.h"

namespace tf_tvm_ops {

enum class Severity : uint8_t { kError, kWarning, kInfo };

// Writes the message if TF_TVM_OPS_LOG asks for its severity. Line breaks in it become spaces.
// Never throws.
TF_TVM_OPS_EXPORT void Log(Severity severity, std::string_view message) noexcept;

// Writes what the user asked for by other means, whatever TF_TVM_OPS_LOG says: "tf_tvm_ops: ...".
TF_TVM_OPS_EXPORT void Print(std::string_view message) noexcept;

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_LOG_H_
