#include "cc/ops/gpu_description.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace tf_tvm_ops {
namespace {

bool ParseCapability(absl::string_view text, ComputeCapability* capability) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('.', 1));
  ComputeCapability parsed;
  if (!absl::SimpleAtoi(parts.first, &parsed.major) ||
      !absl::SimpleAtoi(parts.second, &parsed.minor)) {
    return false;
  }
  *capability = parsed;
  return true;
}

}  // namespace

GpuDescription DescribeGpu(const tensorflow::DeviceAttributes& attributes) {
  GpuDescription gpu;
  for (absl::string_view part : absl::StrSplit(attributes.physical_device_desc(), ", ")) {
    int device = 0;
    if (absl::ConsumePrefix(&part, "device: ") && absl::SimpleAtoi(part, &device)) {
      gpu.device = device;
    }
    if (absl::ConsumePrefix(&part, "compute capability: ")) ParseCapability(part, &gpu.capability);
  }
  return gpu;
}

}  // namespace tf_tvm_ops
