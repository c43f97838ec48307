// What measuring on another machine needs there beside the kernels, for a server of TVM that knows
// nothing of them: calls with tensors, since a server hands over no bare pointers, and no functions
// as arguments; and calls in a child, since a server ends with what crashes in it. C interfaces
// alone, so that it needs no more than an image does.

#include <cpuid.h>
#include <sys/wait.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

namespace {

constexpr int kPointers = 5;  // lhs, rhs, addend, out, workspace: see kernels/compute.py
constexpr int kMostArguments = 32;
constexpr int kSlots = 256;  // the twin of SLOTS in remote.py

TVMFFIObjectHandle kernels[kSlots];

int Refuse(const char* message) {
  TVMFFIErrorSetRaisedFromCStr("ValueError", message);
  return -1;
}

bool IsSlot(const TVMFFIAny& value) {
  return value.type_index == kTVMFFIInt && value.v_int64 >= 0 && value.v_int64 < kSlots;
}

// Where a tensor's elements begin; false if the value is no tensor.
bool Address(const TVMFFIAny& value, void** address) {
  const DLTensor* tensor = nullptr;
  if (value.type_index == kTVMFFIDLTensorPtr) {
    tensor = static_cast<const DLTensor*>(value.v_ptr);
  } else if (value.type_index == kTVMFFITensor) {
    tensor = TVMFFITensorGetDLTensorPtr(value.v_obj);
  }
  if (tensor == nullptr) return false;
  *address = static_cast<char*>(tensor->data) + tensor->byte_offset;
  return true;
}

// The call that is described by slot, tensors, and what is handed on.
int Call(const TVMFFIAny* given, int32_t count, TVMFFIAny* result) {
  if (count <= kPointers || count > kMostArguments || !IsSlot(given[0])) {
    return Refuse("expected slot, five tensors, and further arguments");
  }
  TVMFFIObjectHandle kernel = kernels[given[0].v_int64];
  if (kernel == nullptr) return Refuse("nothing bound to the slot");
  TVMFFIAny arguments[kMostArguments];
  for (int i = 1; i < count; ++i) arguments[i - 1] = given[i];
  for (int i = 0; i < kPointers; ++i) {
    TVMFFIAny pointer = {};
    pointer.type_index = kTVMFFIOpaquePtr;
    if (!Address(arguments[i], &pointer.v_ptr)) return Refuse("an operand is no tensor");
    arguments[i] = pointer;
  }
  return TVMFFIFunctionCall(kernel, arguments, count - 1, result);
}

}  // namespace

#define EXPORTED(name)                                                    \
  extern "C" __attribute__((visibility("default"))) int __tvm_ffi_##name( \
      void*, const TVMFFIAny* given, int32_t count, TVMFFIAny* result)

// bind(slot, module, symbol): the kernel that is at the slot from now on.
EXPORTED(bind) {
  if (count != 3 || !IsSlot(given[0])) return Refuse("bind: expected slot, module, symbol");
  constexpr char kName[] = "ffi.ModuleGetFunction";
  const TVMFFIByteArray name = {kName, sizeof(kName) - 1};
  TVMFFIObjectHandle get = nullptr;
  if (TVMFFIFunctionGetGlobal(&name, &get) != 0) return -1;
  TVMFFIAny arguments[3] = {given[1], given[2], {}};
  arguments[2].type_index = kTVMFFIBool;  // not of modules that it imports
  TVMFFIAny found = {};
  const int code = TVMFFIFunctionCall(get, arguments, 3, &found);
  TVMFFIObjectDecRef(get);
  if (code != 0) return code;
  if (found.type_index != kTVMFFIFunction) return Refuse("bind: no such symbol");
  TVMFFIObjectHandle* slot = &kernels[given[0].v_int64];
  if (*slot != nullptr) TVMFFIObjectDecRef(*slot);
  *slot = found.v_obj;
  result->type_index = kTVMFFINone;
  return 0;
}

// call(slot, lhs, rhs, addend, out, workspace, ...): what follows the tensors is handed on.
EXPORTED(call) { return Call(given, count, result); }

// attempt(seconds, slot, ...): as `call`, by a child of which nothing is seen but how it ended: 0,
// the number of a signal (SIGALRM if it took too long), or less than 0 if it failed.
EXPORTED(attempt) {
  if (count < 1 || given[0].type_index != kTVMFFIInt) return Refuse("attempt: expected seconds");
  const pid_t child = fork();
  if (child == 0) {
    alarm(static_cast<unsigned>(given[0].v_int64));
    TVMFFIAny ignored = {};
    _exit(Call(given + 1, count - 1, &ignored) == 0 ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return Refuse("attempt: no child");
  result->type_index = kTVMFFIInt;
  result->v_int64 = WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
  return 0;
}

// fill(tensor, bytes, pattern, period): its bytes are those of the pattern, again and again.
EXPORTED(fill) {
  void* into = nullptr;
  void* from = nullptr;
  if (count != 4 || !Address(given[0], &into) || given[1].type_index != kTVMFFIInt ||
      !Address(given[2], &from) || given[3].type_index != kTVMFFIInt || given[3].v_int64 <= 0) {
    return Refuse("fill: expected tensor, bytes, pattern, period");
  }
  const int64_t period = given[3].v_int64;
  char* place = static_cast<char*>(into);
  for (int64_t left = given[1].v_int64; left > 0; left -= period, place += period) {
    __builtin_memcpy(place, from, static_cast<size_t>(left < period ? left : period));
  }
  result->type_index = kTVMFFINone;
  return 0;
}

// prepare(): ask Linux for tile registers, as `request_tiles` in kernels/targets.py does.
EXPORTED(prepare) {
  (void)given;
  if (count != 0) return Refuse("prepare: expected no arguments");
  syscall(158, 0x1023L, 18L);
  result->type_index = kTVMFFINone;
  return 0;
}

// processor(): the name that the processor gives itself.
EXPORTED(processor) {
  (void)given;
  if (count != 0) return Refuse("processor: expected no arguments");
  unsigned words[12] = {};
  for (unsigned part = 0; part < 3; ++part) {
    unsigned* w = words + 4 * part;
    if (__get_cpuid(0x80000002U + part, w, w + 1, w + 2, w + 3) == 0) break;
  }
  const char* text = reinterpret_cast<const char*>(words);
  TVMFFIByteArray name = {text, 0};
  while (name.size < sizeof(words) && text[name.size] != '\0') ++name.size;
  return TVMFFIStringFromByteArray(&name, result);
}
