#include "cc/dispatch/workspace.h"

#include <cstddef>
#include <cstdlib>

namespace tf_tvm_ops {
namespace {

// Usable again after its destructor ran, in case something computes while the thread ends: the
// buffer then made is lost, which is better than a crash at exit.
struct Buffer {
  void* data = nullptr;
  int64_t bytes = 0;

  ~Buffer() { Free(); }

  void Free() {
    std::free(data);
    data = nullptr;
    bytes = 0;
  }
};

thread_local Buffer buffer;

}  // namespace

void* ThreadWorkspace(int64_t bytes) {
  if (bytes <= 0) return nullptr;
  if (bytes > buffer.bytes) {
    const int64_t rounded =
        (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    buffer.Free();
    buffer.data = std::aligned_alloc(kWorkspaceAlignment, static_cast<size_t>(rounded));
    buffer.bytes = buffer.data == nullptr ? 0 : rounded;
  }
  return buffer.data;
}

}  // namespace tf_tvm_ops
