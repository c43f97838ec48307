// What generated kernels are compiled with: the types that TVM's code generator names, and the
// functions of device.py. No header is included, so that no CUDA toolkit is needed.
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef unsigned short uint16_t;
typedef unsigned int uint;
typedef unsigned short ushort;

#define TVMOP __device__ __forceinline__

TVMOP float tvmop_from_float16(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

TVMOP uint16_t tvmop_to_float16(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

TVMOP float tvmop_from_bfloat16(uint16_t bits) { return __uint_as_float((uint32_t)bits << 16); }

TVMOP uint16_t tvmop_to_bfloat16(float value) {
#if __CUDA_ARCH__ >= 800
  uint16_t result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(value));
  return result;
#else
  // To nearest even by adding just less than half a unit in the last place. A NaN is made the
  // quiet one: the addition could carry it over into an infinity.
  uint32_t bits = __float_as_uint(value);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (uint16_t)(value == value ? rounded : 0x7fc0u);
#endif
}

TVMOP float tvmop_low_float16(uint32_t pair) { return tvmop_from_float16((uint16_t)pair); }
TVMOP float tvmop_high_float16(uint32_t pair) { return tvmop_from_float16((uint16_t)(pair >> 16)); }
TVMOP float tvmop_low_bfloat16(uint32_t pair) { return __uint_as_float(pair << 16); }
TVMOP float tvmop_high_bfloat16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

TVMOP void tvmop_read_float32x4(float* target, const float* source) {
  const float4 read = *(const float4*)source;
  target[0] = read.x;
  target[1] = read.y;
  target[2] = read.z;
  target[3] = read.w;
}

TVMOP void tvmop_read_float64x2(double* target, const double* source) {
  const double2 read = *(const double2*)source;
  target[0] = read.x;
  target[1] = read.y;
}

#define TVMOP_READ_16_BIT(DTYPE)                                             \
  TVMOP void tvmop_read_##DTYPE##x4(float* target, const uint16_t* source) { \
    const uint2 read = *(const uint2*)source;                                \
    target[0] = tvmop_low_##DTYPE(read.x);                                   \
    target[1] = tvmop_high_##DTYPE(read.x);                                  \
    target[2] = tvmop_low_##DTYPE(read.y);                                   \
    target[3] = tvmop_high_##DTYPE(read.y);                                  \
  }                                                                          \
  TVMOP void tvmop_read_##DTYPE##x8(float* target, const uint16_t* source) { \
    const uint4 read = *(const uint4*)source;                                \
    target[0] = tvmop_low_##DTYPE(read.x);                                   \
    target[1] = tvmop_high_##DTYPE(read.x);                                  \
    target[2] = tvmop_low_##DTYPE(read.y);                                   \
    target[3] = tvmop_high_##DTYPE(read.y);                                  \
    target[4] = tvmop_low_##DTYPE(read.z);                                   \
    target[5] = tvmop_high_##DTYPE(read.z);                                  \
    target[6] = tvmop_low_##DTYPE(read.w);                                   \
    target[7] = tvmop_high_##DTYPE(read.w);                                  \
  }
TVMOP_READ_16_BIT(float16)
TVMOP_READ_16_BIT(bfloat16)

TVMOP bool tvmop_is_aligned(const void* address, int64_t stride_bytes, int bytes) {
  return (((uint64_t)address | (uint64_t)stride_bytes) & (uint64_t)(bytes - 1)) == 0;
}

TVMOP float tvmop_shuffle_xor(float value, int lane) {
  return __shfl_xor_sync(0xffffffffu, value, lane);
}

TVMOP double tvmop_shuffle_xor(double value, int lane) {
  return __shfl_xor_sync(0xffffffffu, value, lane);
}

TVMOP uint32_t tvmop_shared_address(const void* pointer) {
  return (uint32_t)__cvta_generic_to_shared(pointer);
}

#if __CUDA_ARCH__ >= 800
// Nothing is read where valid is false: the number of bytes to take from memory is 0 then, and the
// hardware writes zeros.
#define TVMOP_COPY_ASYNC(BYTES, CACHE)                                                \
  TVMOP void tvmop_copy_async_##BYTES(void* target, const void* source, bool valid) { \
    asm volatile("cp.async." CACHE ".shared.global [%0], [%1], " #BYTES               \
                 ", %2;" ::"r"(tvmop_shared_address(target)),                         \
                 "l"(source), "r"(valid ? BYTES : 0)                                  \
                 : "memory");                                                         \
  }
TVMOP_COPY_ASYNC(4, "ca")
TVMOP_COPY_ASYNC(8, "ca")
TVMOP_COPY_ASYNC(16, "cg")

TVMOP void tvmop_copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
TVMOP void tvmop_copy_async_wait_0() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }
TVMOP void tvmop_copy_async_wait_1() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }

#define TVMOP_LOAD_FRAGMENTS_2(NAME, QUALIFIER)                                          \
  TVMOP void NAME(uint32_t* target, const void* source) {                                \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" QUALIFIER ".shared.b16 {%0, %1}, [%2];" \
                 : "=r"(target[0]), "=r"(target[1])                                      \
                 : "r"(tvmop_shared_address(source))                                     \
                 : "memory");                                                            \
  }
#define TVMOP_LOAD_FRAGMENTS_4(NAME, QUALIFIER)                                                  \
  TVMOP void NAME(uint32_t* target, const void* source) {                                        \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" QUALIFIER ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(target[0]), "=r"(target[1]), "=r"(target[2]), "=r"(target[3])            \
                 : "r"(tvmop_shared_address(source))                                             \
                 : "memory");                                                                    \
  }
TVMOP_LOAD_FRAGMENTS_2(tvmop_load_fragments_2, "")
TVMOP_LOAD_FRAGMENTS_2(tvmop_load_fragments_2_transposed, ".trans")
TVMOP_LOAD_FRAGMENTS_4(tvmop_load_fragments_4, "")
TVMOP_LOAD_FRAGMENTS_4(tvmop_load_fragments_4_transposed, ".trans")

#define TVMOP_MULTIPLY_ADD(DTYPE, PTX)                                                            \
  TVMOP void tvmop_multiply_add_##DTYPE(float* total, const uint32_t* lhs, const uint32_t* rhs) { \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." PTX "." PTX                             \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"           \
                 : "+f"(total[0]), "+f"(total[1]), "+f"(total[2]), "+f"(total[3])                 \
                 : "r"(lhs[0]), "r"(lhs[1]), "r"(lhs[2]), "r"(lhs[3]), "r"(rhs[0]), "r"(rhs[1])); \
  }
TVMOP_MULTIPLY_ADD(float16, "f16")
TVMOP_MULTIPLY_ADD(bfloat16, "bf16")
#endif
