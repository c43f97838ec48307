// Registers the XLA kernels, when this library is opened or when asked to again.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "cc/dispatch/export.h"
#include "cc/dispatch/log.h"
#include "cc/xla/kernels.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/kernel_def.pb.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::XlaOpRegistry;

constexpr tensorflow::DataType kTypes[] = {tensorflow::DT_HALF, tensorflow::DT_BFLOAT16,
                                           tensorflow::DT_FLOAT, tensorflow::DT_DOUBLE};

// The kinds of device that the op has a kernel for.
std::set<std::string> DevicesOf(const char* op) {
  std::set<std::string> devices;
  const tensorflow::KernelList kernels = tensorflow::GetRegisteredKernelsForOp(op);
  for (const tensorflow::KernelDef& kernel : kernels.kernel()) {
    devices.insert(kernel.device_type());
  }
  return devices;
}

void AddToRegistry(const char* op) {
  // The registry keeps what it was given; the registrar itself is not needed afterwards.
  tensorflow::XlaOpRegistrar(tensorflow::XlaOpRegistrationBuilder::Name(op)
                                 .TypeConstraint("T", kTypes)
                                 .Build(MakeXlaKernel));
}

// TensorFlow turns the XLA registry's entries into kernels once, when it first compiles something,
// and never looks at later ones. For those this does the same.
void AddMissingKernels() {
  const std::set<std::string> done = DevicesOf("MatMul");
  // This waits for the registry's lock, so that a thread which is making kernels has finished.
  for (const std::string& backend : XlaOpRegistry::BackendNames()) {
    if (done.count(backend) == 0) continue;
    for (const char* op : kXlaOps) {
      if (DevicesOf(op).count(backend) != 0) continue;
      const tensorflow::KernelDef* kernel = tensorflow::KernelDefBuilder(op)
                                                .Device(backend.c_str())
                                                .TypeConstraint("T", kTypes)
                                                .Build();
      tensorflow::kernel_factory::OpKernelRegistrar(kernel, "BatchMatMulXlaOp", MakeXlaKernel);
    }
  }
}

// Empty once the kernels are registered, otherwise why they are not.
std::string Register() {
  static bool registered = false;
  if (registered) return "";
  const std::vector<std::string> known = XlaOpRegistry::GetAllRegisteredOps();
  for (const char* op : kXlaOps) {
    // TensorFlow ends the process when it finds a kernel without an op, or a second one.
    if (DevicesOf(op).count(tensorflow::DEVICE_CPU) == 0) {
      return std::string("the op library, which has the op ") + op + ", must be loaded first";
    }
    if (std::find(known.begin(), known.end(), op) != known.end()) {
      return "a copy of this library is already loaded from another path; its kernels are in use";
    }
  }
  for (const char* op : kXlaOps) AddToRegistry(op);
  AddMissingKernels();
  registered = true;
  return "";
}

}  // namespace
}  // namespace tf_tvm_ops

// Null once the kernels are registered, otherwise one sentence that says why they are not; valid
// until the next call. Not thread-safe.
extern "C" TF_TVM_OPS_EXPORT const char* TfTvmOpsRegisterXla() noexcept {
  try {
    static std::string problem;
    problem = tf_tvm_ops::Register();
    return problem.empty() ? nullptr : problem.c_str();
  } catch (...) {
    return "an exception was thrown, perhaps for lack of memory";
  }
}

namespace tf_tvm_ops {
namespace {

bool RegisterOrWarn() noexcept {
  const char* problem = TfTvmOpsRegisterXla();
  if (problem == nullptr) return true;
  try {
    Log(Severity::kWarning, std::string("the library of XLA kernels does nothing: ") + problem);
  } catch (...) {
    Log(Severity::kWarning, problem);
  }
  return false;
}

// The only initialiser that runs when the library is opened.
[[maybe_unused]] const bool registered_when_opened = RegisterOrWarn();

}  // namespace
}  // namespace tf_tvm_ops
