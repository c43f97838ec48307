/* Kernels without TVM: plain loops behind the calling convention of docs/architecture.md. */
#include <immintrin.h>
#include <stdio.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

enum { FLOAT32, FLOAT16, BFLOAT16, FLOAT64 };
enum { LHS_K, LHS_M };
enum { RHS_N, RHS_K };
enum { PRODUCT, SCRATCH, FAIL, DESCRIBE };
enum { NO_ADDEND, MATRIX, COLUMN };

/* The places of the arguments. */
enum {
  LHS,
  RHS,
  ADDEND,
  OUT,
  WORKSPACE,
  BEGIN,
  END,
  HEADS,
  LHS_BATCH,
  LHS_HEAD,
  LHS_STRIDE,
  RHS_BATCH,
  RHS_HEAD,
  RHS_STRIDE,
  ADDEND_BATCH,
  ADDEND_HEAD,
  ADDEND_STRIDE,
  ADDEND_KIND,
  OUT_BATCH,
  OUT_HEAD,
  OUT_STRIDE,
  SCALE,
  M,
  N,
  K,
  COUNT,
  FIXED_COUNT = M
};

static double load(int dtype, const void* data, int64_t index) {
  switch (dtype) {
    case FLOAT16:
      return _cvtsh_ss(((const uint16_t*)data)[index]);
    case BFLOAT16: {
      const uint32_t bits = (uint32_t)((const uint16_t*)data)[index] << 16;
      float value;
      memcpy(&value, &bits, sizeof value);
      return value;
    }
    case FLOAT64:
      return ((const double*)data)[index];
    default:
      return ((const float*)data)[index];
  }
}

static void store(int dtype, void* data, int64_t index, double value) {
  switch (dtype) {
    case FLOAT16:
      ((uint16_t*)data)[index] = _cvtss_sh((float)value, _MM_FROUND_TO_NEAREST_INT);
      break;
    case BFLOAT16: {
      const float single = (float)value;
      uint32_t bits;
      memcpy(&bits, &single, sizeof bits);
      /* To the nearest, half way to the even one. */
      const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
      ((uint16_t*)data)[index] = (uint16_t)(value == value ? rounded : 0x7FC0);
      break;
    }
    case FLOAT64:
      ((double*)data)[index] = value;
      break;
    default:
      ((float*)data)[index] = (float)value;
  }
}

static int raise_error(const char* kind, const char* message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

/* Fails with the arguments that are no pointers, in their order. */
static int describe(const TVMFFIAny* args, int32_t count) {
  char text[1024];
  int used = 0;
  for (int i = BEGIN; i < count; ++i) {
    const int room = (int)sizeof text - used;
    used += i == SCALE ? snprintf(text + used, room, "%.17g ", args[i].v_float64)
                       : snprintf(text + used, room, "%lld ", (long long)args[i].v_int64);
  }
  return raise_error("ValueError", text);
}

/* Checks every argument, which a compiled kernel does too, and computes matrices [begin, end). */
static int fake_kernel(const TVMFFIAny* args, int32_t count, int generic, int dtype, int lhs_order,
                       int rhs_order, int64_t m, int64_t n, int64_t k, int behaviour) {
  if (count != (generic ? COUNT : FIXED_COUNT)) {
    return raise_error("TypeError", "wrong number of arguments");
  }
  for (int i = 0; i < count; ++i) {
    const int expected = i < BEGIN ? kTVMFFIOpaquePtr : i == SCALE ? kTVMFFIFloat : kTVMFFIInt;
    if (args[i].type_index != expected)
      return raise_error("TypeError", "wrong type of an argument");
  }
  if (behaviour == FAIL) {
    /* The one that TVM's generated code names. */
    const char* parts[] = {"made to ", "fail"};
    TVMFFIErrorSetRaisedFromCStrParts("ValueError", parts, 2);
    return -1;
  }
  if (behaviour == DESCRIBE) return describe(args, count);
  if (generic) {
    m = args[M].v_int64;
    n = args[N].v_int64;
    k = args[K].v_int64;
  }
  if (m < 1 || n < 1 || k < 1) {
    return raise_error("ValueError", "an extent of 0 reached a kernel");
  }
  void* scratch = args[WORKSPACE].v_ptr;
  if (behaviour == SCRATCH && (scratch == 0 || (uintptr_t)scratch % 64 != 0)) {
    return raise_error("ValueError", "the workspace is missing or not aligned");
  }
  const int64_t kind = args[ADDEND_KIND].v_int64;
  if (kind < NO_ADDEND || kind > COLUMN || (kind == NO_ADDEND) != (args[ADDEND].v_ptr == 0)) {
    return raise_error("ValueError", "the kind of the addend is unknown, or at odds with the data");
  }
  const double scale = dtype == FLOAT64 ? args[SCALE].v_float64 : (float)args[SCALE].v_float64;
  for (int64_t i = args[BEGIN].v_int64; i < args[END].v_int64; ++i) {
    const int64_t batch = i / args[HEADS].v_int64;
    const int64_t head = i % args[HEADS].v_int64;
    const int64_t a = batch * args[LHS_BATCH].v_int64 + head * args[LHS_HEAD].v_int64;
    const int64_t b = batch * args[RHS_BATCH].v_int64 + head * args[RHS_HEAD].v_int64;
    const int64_t c = batch * args[ADDEND_BATCH].v_int64 + head * args[ADDEND_HEAD].v_int64;
    const int64_t o = batch * args[OUT_BATCH].v_int64 + head * args[OUT_HEAD].v_int64;
    const int64_t lhs_stride = args[LHS_STRIDE].v_int64, rhs_stride = args[RHS_STRIDE].v_int64;
    for (int64_t row = 0; row < m; ++row) {
      const int64_t out_row = o + row * args[OUT_STRIDE].v_int64;
      for (int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (int64_t j = 0; j < k; ++j) {
          const int64_t l = lhs_order == LHS_K ? row * lhs_stride + j : j * lhs_stride + row;
          const int64_t r = rhs_order == RHS_N ? j * rhs_stride + column : column * rhs_stride + j;
          sum += load(dtype, args[LHS].v_ptr, a + l) * load(dtype, args[RHS].v_ptr, b + r);
        }
        sum *= scale;
        if (kind != NO_ADDEND) {
          const int64_t at = row * args[ADDEND_STRIDE].v_int64 + (kind == MATRIX ? column : 0);
          sum += load(dtype, args[ADDEND].v_ptr, c + at);
        }
        if (behaviour == SCRATCH) {
          store(dtype, scratch, column, sum);
        } else {
          store(dtype, args[OUT].v_ptr, out_row + column, sum);
        }
      }
      for (int64_t column = 0; behaviour == SCRATCH && column < n; ++column) {
        store(dtype, args[OUT].v_ptr, out_row + column, load(dtype, scratch, column));
      }
    }
  }
  return 0;
}

#define FAKE_KERNEL(symbol, generic, dtype, lhs_order, rhs_order, m, n, k, behaviour)          \
  TVM_FFI_DLL_EXPORT int __tvm_ffi_##symbol(void* self, const TVMFFIAny* args, int32_t count,  \
                                            TVMFFIAny* result) {                               \
    (void)self;                                                                                \
    (void)result;                                                                              \
    return fake_kernel(args, count, generic, dtype, lhs_order, rhs_order, m, n, k, behaviour); \
  }
