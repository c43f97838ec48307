#include "graph_passes/guards.h"

#include <array>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/ops/backend.h"
#include "cc/ops/choice.h"
#include "cc/ops/matmul_shapes.h"
#include "cc/ops/stock_kernel.h"
#include "graph_passes/replacement.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::DeviceNameUtils;
using tensorflow::Node;
using tensorflow::PartialTensorShape;
using tensorflow::TensorShape;

const std::string& Device(const Node& node) {
  return node.assigned_device_name().empty() ? node.requested_device()
                                             : node.assigned_device_name();
}

// "CPU" where the device is not settled yet.
std::string DeviceType(const Node& node) {
  DeviceNameUtils::ParsedName parsed;
  if (DeviceNameUtils::ParseFullName(Device(node), &parsed) && parsed.has_type) return parsed.type;
  return tensorflow::DEVICE_CPU;
}

// A variable, or what stands for one inside a function or a loop.
bool IsVariable(const GraphView& view, const Slot& slot) {
  const Node* node = view.Producer(slot);
  while (node != nullptr) {
    const Node* enter = GraphView::EnterOfInvariant(*node);
    const bool passes =
        node->IsEnter() || node->IsIdentity() || node->IsSwitch() || node->type_string() == "Cast";
    if (enter == nullptr && !passes) break;
    node = view.Producer({enter != nullptr ? enter : node, 0});
  }
  return node != nullptr && (node->type_string() == "ReadVariableOp" || node->IsVariable());
}

// Null where it is not known, as in a graph that is stored.
const tensorflow::Device* FindDevice(const GraphView& view, const Node& node) {
  const tensorflow::DeviceSet* devices = view.options().devices;
  return devices == nullptr ? nullptr : devices->FindDeviceByName(Device(node));
}

// What there is to choose from where the node runs; nothing for a GPU that is not known.
std::optional<Backend> BackendOfNode(const GraphView& view, const Node& node) {
  if (DeviceType(node) != tensorflow::DEVICE_GPU) return CpuBackend();
  const tensorflow::Device* device = FindDevice(view, node);
  if (device == nullptr) return std::nullopt;
  return GpuBackend(device->attributes());
}

// Whether the node is on another machine or in another process, which may not have the ops.
bool IsRemote(const GraphView& view, const Node& node) {
  const tensorflow::Device* device = FindDevice(view, node);
  return device != nullptr && !device->IsLocal();
}

// What would serve the op, if its shapes and its device are known: Taken and *choice.
Verdict ChoiceOf(GraphView& view, const Fusion& fusion, Choice* choice) {
  const std::optional<Backend> backend = BackendOfNode(view, *fusion.product);
  TensorShape lhs, rhs, addend;
  if (!backend.has_value() || !view.Shape(fusion.lhs.tensor).AsTensorShape(&lhs) ||
      !view.Shape(fusion.rhs.tensor).AsTensorShape(&rhs)) {
    return Verdict::NotApplicable();
  }
  // An addend of unknown shape is taken as one that does not enlarge the product.
  if (fusion.addend.has_value() && !view.Shape(*fusion.addend).AsTensorShape(&addend)) addend = {};
  MatMulShapes shapes;
  const absl::Status status = ResolveMatMulShapes(
      fusion.attrs(), lhs, rhs, fusion.addend.has_value() ? &addend : nullptr, &shapes);
  if (!status.ok()) return Verdict::Refused(Reason::kShapes, std::string(status.message()));
  *choice = Choose(*backend, shapes, FallbackInForce());
  return Verdict::Taken();
}

bool HasPackKernel(GraphView& view, const Fusion& fusion) {
  Choice choice;
  return ChoiceOf(view, fusion, &choice).taken() && choice.server == Server::kKernel &&
         !choice.kernel->problem().is_generic();
}

}  // namespace

bool HasOwnGradient(const GraphView& view, const Node& node) {
  return view.options().keep_gradients && node.attrs().Find("_gradient_op_type") != nullptr;
}

bool SameDevice(const Node& a, const Node& b) { return Device(a) == Device(b); }

Verdict HasDType(GraphView&, const Fusion& fusion) {
  switch (fusion.dtype) {
    case tensorflow::DT_FLOAT:
    case tensorflow::DT_DOUBLE:
    case tensorflow::DT_HALF:
    case tensorflow::DT_BFLOAT16:
      return Verdict::Taken();
    default:
      return Verdict::Refused(Reason::kDType, tensorflow::DataTypeString(fusion.dtype));
  }
}

Verdict IsOutsideXla(GraphView& view, const Fusion& fusion) {
  if (view.options().for_xla) return Verdict::Refused(Reason::kXla);
  for (const char* attr : {"_XlaMustCompile", "_XlaCompile", "_xla_compile_id", "_XlaCluster"}) {
    const auto* value = fusion.product->attrs().Find(attr);
    const bool off =
        value != nullptr && value->value_case() == tensorflow::AttrValue::kB && !value->b();
    if (value != nullptr && !off) return Verdict::Refused(Reason::kXla, attr);
  }
  return Verdict::Taken();
}

Verdict HasKernelOnDevice(GraphView& view, const Fusion& fusion) {
  if (IsRemote(view, *fusion.product)) {
    return Verdict::Refused(Reason::kRemote, Device(*fusion.product));
  }
  const std::string type = DeviceType(*fusion.product);
  const bool found = tensorflow::FindKernelDef(tensorflow::DeviceType(type), OpNode(fusion),
                                               /*def=*/nullptr, /*kernel_class_name=*/nullptr)
                         .ok();
  if (!found) return Verdict::Refused(Reason::kDevice, type);
  // Stock inside an op is no faster than stock.
  const std::optional<Backend> backend = BackendOfNode(view, *fusion.product);
  if (type != tensorflow::DEVICE_CPU && backend.has_value() && backend->kernels->empty()) {
    return Verdict::Refused(Reason::kDevice, absl::StrCat(type, ": no pack has kernels for it"));
  }
  return Verdict::Taken();
}

Verdict HasBatch(GraphView& view, const Fusion& fusion) {
  const int lhs = view.Shape(fusion.lhs.tensor).dims(), rhs = view.Shape(fusion.rhs.tensor).dims();
  if (lhs == 2 && rhs == 2) return Verdict::Refused(Reason::kRank);
  const bool weight = lhs == 2 || rhs == 2 || (lhs < 0 && IsVariable(view, fusion.lhs.tensor)) ||
                      (rhs < 0 && IsVariable(view, fusion.rhs.tensor));
  if (weight && !HasPackKernel(view, fusion)) return Verdict::Refused(Reason::kProjection);
  return Verdict::Taken();
}

Verdict BeatsStock(GraphView& view, const Fusion& fusion) {
  Choice choice;
  const Verdict known = ChoiceOf(view, fusion, &choice);
  if (known.refused()) return known;
  if (!known.taken() || choice.server != Server::kStock) return Verdict::Taken();
  return Verdict::Refused(Reason::kStock, RefusalName(choice.refusal));
}

Verdict CheckProduct(GraphView& view, const Fusion& fusion) {
  for (const auto guard : {HasDType, IsOutsideXla, HasKernelOnDevice, HasBatch}) {
    const Verdict verdict = guard(view, fusion);
    if (!verdict.taken()) return verdict;
  }
  return Verdict::Taken();
}

Verdict EpiloguePays(GraphView& view, const Fusion& fusion) {
  if (DeviceType(*fusion.product) != tensorflow::DEVICE_CPU) return Verdict::Taken();
  const bool is_16_bit =
      fusion.dtype == tensorflow::DT_BFLOAT16 || fusion.dtype == tensorflow::DT_HALF;
  if (!is_16_bit || !OneDnnTakes(fusion.dtype) || HasPackKernel(view, fusion)) {
    return Verdict::Taken();
  }
  return Verdict::Refused(Reason::k16Bit);
}

}  // namespace tf_tvm_ops
