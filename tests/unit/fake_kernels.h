/* Kernels without TVM: plain loops behind the calling convention of docs/architecture.md. */
#include <tvm/ffi/c_api.h>

enum { LHS_K, LHS_M };
enum { RHS_N, RHS_K };
enum { PRODUCT, SCRATCH, FAIL };

/* Checks every argument, which a compiled kernel does too, and computes matrices [begin, end). */
static int fake_kernel(const TVMFFIAny* args, int32_t count, int generic, int lhs_order,
                       int rhs_order, int64_t m, int64_t n, int64_t k, int behaviour) {
  if (count != (generic ? 19 : 16)) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "wrong number of arguments");
    return -1;
  }
  for (int i = 0; i < count; ++i) {
    if (args[i].type_index != (i < 4 ? kTVMFFIOpaquePtr : kTVMFFIInt)) {
      TVMFFIErrorSetRaisedFromCStr("TypeError", "wrong type of an argument");
      return -1;
    }
  }
  if (behaviour == FAIL) {
    /* The one that TVM's generated code names. */
    const char* parts[] = {"made to ", "fail"};
    TVMFFIErrorSetRaisedFromCStrParts("ValueError", parts, 2);
    return -1;
  }
  const float* lhs = args[0].v_ptr;
  const float* rhs = args[1].v_ptr;
  float* out = args[2].v_ptr;
  float* scratch = args[3].v_ptr;
  const int64_t heads = args[6].v_int64;
  const int64_t lhs_batch = args[7].v_int64, lhs_head = args[8].v_int64, lhs_row = args[9].v_int64;
  const int64_t rhs_batch = args[10].v_int64, rhs_head = args[11].v_int64;
  const int64_t rhs_row = args[12].v_int64;
  const int64_t out_batch = args[13].v_int64, out_head = args[14].v_int64;
  const int64_t out_row = args[15].v_int64;
  if (generic) {
    m = args[16].v_int64;
    n = args[17].v_int64;
    k = args[18].v_int64;
  }
  if (m < 1 || n < 1 || k < 1) {
    TVMFFIErrorSetRaisedFromCStr("ValueError", "an extent of 0 reached a kernel");
    return -1;
  }
  if (behaviour == SCRATCH && (scratch == 0 || (uintptr_t)scratch % 64 != 0)) {
    TVMFFIErrorSetRaisedFromCStr("ValueError", "the workspace is missing or not aligned");
    return -1;
  }
  for (int64_t i = args[4].v_int64; i < args[5].v_int64; ++i) {
    const float* a = lhs + i / heads * lhs_batch + i % heads * lhs_head;
    const float* b = rhs + i / heads * rhs_batch + i % heads * rhs_head;
    float* c = out + i / heads * out_batch + i % heads * out_head;
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t column = 0; column < n; ++column) {
        float sum = 0;
        for (int64_t j = 0; j < k; ++j) {
          sum += a[lhs_order == LHS_K ? row * lhs_row + j : j * lhs_row + row] *
                 b[rhs_order == RHS_N ? j * rhs_row + column : column * rhs_row + j];
        }
        if (behaviour == SCRATCH) {
          scratch[column] = sum;
        } else {
          c[row * out_row + column] = sum;
        }
      }
      for (int64_t column = 0; behaviour == SCRATCH && column < n; ++column) {
        c[row * out_row + column] = scratch[column];
      }
    }
  }
  return 0;
}

#define FAKE_KERNEL(symbol, generic, lhs_order, rhs_order, m, n, k, behaviour)                  \
  TVM_FFI_DLL_EXPORT int __tvm_ffi_##symbol(void* self, const TVMFFIAny* args, int32_t count,   \
                                            TVMFFIAny* result) {                                \
    (void)self;                                                                                 \
    (void)result;                                                                               \
    return fake_kernel(args, count, generic, lhs_order, rhs_order, m, n, k, behaviour);         \
  }
