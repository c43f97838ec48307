// Work without the interpreter lock.
#ifndef TF_TVM_OPS_CC_PYTHON_GIL_H_
#define TF_TVM_OPS_CC_PYTHON_GIL_H_

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace tf_tvm_ops {

// Takes the lock back. While the interpreter shuts down, Python ends a thread that asks for the
// lock by unwinding its stack, and the destructors on the way would give up Python objects without
// the lock. Such a thread stops here instead, until the process is gone a moment later.
inline void RestoreThread(PyThreadState* state) {
  try {
    PyEval_RestoreThread(state);
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
}

// Runs `work`, which must not touch Python objects and must not throw, without the lock.
template <typename Work>
void WithoutGil(Work work) {
  PyThreadState* state = PyEval_SaveThread();
  work();
  RestoreThread(state);
}

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_PYTHON_GIL_H_
