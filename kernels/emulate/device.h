// Stands in for CUDA's built-in names and for kernels/cuda/device.cuh when a kernel is compiled for
// the CPU, and calls it through tvm-ffi as TVM's CUDA runtime would.
#ifndef TF_TVM_OPS_KERNELS_EMULATE_DEVICE_H_
#define TF_TVM_OPS_KERNELS_EMULATE_DEVICE_H_

#include <tvm/ffi/c_api.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "machine.h"

using std::max;
using std::min;

typedef unsigned int uint;
typedef unsigned short ushort;

inline uint16_t Bits(_Float16 value) {
  uint16_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float tvmop_from_float16(uint16_t bits) {
  _Float16 value;
  std::memcpy(&value, &bits, sizeof value);
  return static_cast<float>(value);
}

inline uint16_t tvmop_to_float16(float value) { return Bits(static_cast<_Float16>(value)); }

inline float tvmop_from_bfloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

inline uint16_t tvmop_to_bfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float tvmop_low_float16(uint32_t pair) {
  return tvmop_from_float16(static_cast<uint16_t>(pair));
}
inline float tvmop_high_float16(uint32_t pair) {
  return tvmop_from_float16(static_cast<uint16_t>(pair >> 16));
}
inline float tvmop_low_bfloat16(uint32_t pair) {
  return tvmop_from_bfloat16(static_cast<uint16_t>(pair));
}
inline float tvmop_high_bfloat16(uint32_t pair) {
  return tvmop_from_bfloat16(static_cast<uint16_t>(pair >> 16));
}

template <int kLanes, typename T, typename S>
void Read(T* target, const S* source, T (*widen)(S)) {
  if (reinterpret_cast<uintptr_t>(source) % (kLanes * sizeof(S)) != 0) {
    emulate::Fail("misaligned read of " + std::to_string(kLanes * sizeof(S)) + " bytes");
  }
  for (int lane = 0; lane < kLanes; ++lane) target[lane] = widen(source[lane]);
}
inline void tvmop_read_float32x4(float* target, const float* source) {
  Read<4, float, float>(target, source, [](float value) { return value; });
}
inline void tvmop_read_float64x2(double* target, const double* source) {
  Read<2, double, double>(target, source, [](double value) { return value; });
}
#define EMULATE_READ_16_BIT(DTYPE, LANES)                                           \
  inline void tvmop_read_##DTYPE##x##LANES(float* target, const uint16_t* source) { \
    Read<LANES, float, uint16_t>(target, source, tvmop_from_##DTYPE);               \
  }
EMULATE_READ_16_BIT(float16, 4)
EMULATE_READ_16_BIT(float16, 8)
EMULATE_READ_16_BIT(bfloat16, 4)
EMULATE_READ_16_BIT(bfloat16, 8)

inline bool tvmop_is_aligned(const void* address, int64_t stride_bytes, int bytes) {
  return ((reinterpret_cast<uint64_t>(address) | static_cast<uint64_t>(stride_bytes)) &
          static_cast<uint64_t>(bytes - 1)) == 0;
}

template <typename T>
T ShuffleXor(T value, int lane, int site) {
  struct Lane {
    T value;
    int mask;
    T result;
  } mine{value, lane, T()};
  emulate::Together(
      [](void* lanes[emulate::kWarp]) {
        for (int i = 0; i < emulate::kWarp; ++i) {
          auto* self = static_cast<Lane*>(lanes[i]);
          self->result = static_cast<Lane*>(lanes[i ^ self->mask])->value;
        }
      },
      &mine, site);
  return mine.result;
}
#define tvmop_shuffle_xor(VALUE, LANE) ShuffleXor(VALUE, LANE, __LINE__)

#define EMULATE_COPY_ASYNC(BYTES)                                                                \
  inline void tvmop_copy_async_##BYTES(void* target, const void* source, bool valid) {           \
    if (!tvmop_is_aligned(target, 0, BYTES) || (valid && !tvmop_is_aligned(source, 0, BYTES))) { \
      emulate::Fail("misaligned asynchronous copy of " #BYTES " bytes");                         \
    }                                                                                            \
    emulate::CopyLater(target, source, BYTES, valid);                                            \
  }
EMULATE_COPY_ASYNC(4)
EMULATE_COPY_ASYNC(8)
EMULATE_COPY_ASYNC(16)
inline void tvmop_copy_async_commit() { emulate::CommitCopies(); }
inline void tvmop_copy_async_wait_0() { emulate::WaitForCopies(0); }
inline void tvmop_copy_async_wait_1() { emulate::WaitForCopies(1); }

// ldmatrix: lane 8 i + r points to row r of block i; lane l receives elements 2 (l % 4) and the
// next of row l / 4 of every block, or of its transpose.
template <int kCount, bool kTransposed>
void LoadFragments(uint32_t* target, const void* source, int site) {
  struct Lane {
    uint32_t* target;
    uint16_t row[8];
  } mine{target, {}};
  if (!tvmop_is_aligned(source, 0, 16)) emulate::Fail("misaligned row of a fragment");
  // Read now: coming together lets nobody see what other lanes have written.
  std::memcpy(mine.row, source, sizeof mine.row);
  emulate::Together(
      [](void* lanes[emulate::kWarp]) {
        for (int lane = 0; lane < emulate::kWarp; ++lane) {
          for (int block = 0; block < kCount; ++block) {
            const auto element = [&](int row, int column) -> uint32_t {
              return static_cast<Lane*>(lanes[8 * block + row])->row[column];
            };
            const int row = lane / 4;
            const int column = lane % 4 * 2;
            const uint32_t low = kTransposed ? element(column, row) : element(row, column);
            const uint32_t high = kTransposed ? element(column + 1, row) : element(row, column + 1);
            static_cast<Lane*>(lanes[lane])->target[block] = low | high << 16;
          }
        }
      },
      &mine, site);
}
#define tvmop_load_fragments_2(T, S) (LoadFragments<2, false>(T, S, __LINE__))
#define tvmop_load_fragments_2_transposed(T, S) (LoadFragments<2, true>(T, S, __LINE__))
#define tvmop_load_fragments_4(T, S) (LoadFragments<4, false>(T, S, __LINE__))
#define tvmop_load_fragments_4_transposed(T, S) (LoadFragments<4, true>(T, S, __LINE__))

// mma.m16n8k16, with the layout of fragments that the PTX manual gives: group g = lane / 4 and
// position t = lane % 4. lhs has rows g and g + 8, columns 2t, 2t + 1 and those 8 further on; rhs
// rows 2t, 2t + 1 and those 8 further on of column g; totals rows g and g + 8, columns 2t, 2t + 1.
template <float (*kWiden)(uint16_t)>
void MultiplyAdd(float* total, const uint32_t* lhs, const uint32_t* rhs, int site) {
  struct Lane {
    float* total;
    const uint32_t* lhs;
    const uint32_t* rhs;
  } mine{total, lhs, rhs};
  emulate::Together(
      [](void* lanes[emulate::kWarp]) {
        float a[16][16];
        float b[16][8];
        for (int lane = 0; lane < emulate::kWarp; ++lane) {
          const auto* one = static_cast<Lane*>(lanes[lane]);
          const int g = lane / 4;
          const int t = lane % 4;
          for (int half = 0; half < 2; ++half) {
            for (int i = 0; i < 4; ++i) {
              a[g + i % 2 * 8][2 * t + half + i / 2 * 8] =
                  kWiden(static_cast<uint16_t>(one->lhs[i] >> (16 * half)));
            }
            for (int i = 0; i < 2; ++i) {
              b[2 * t + half + i * 8][g] =
                  kWiden(static_cast<uint16_t>(one->rhs[i] >> (16 * half)));
            }
          }
        }
        for (int lane = 0; lane < emulate::kWarp; ++lane) {
          const auto* one = static_cast<Lane*>(lanes[lane]);
          for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8;
            const int column = lane % 4 * 2 + i % 2;
            float sum = one->total[i];
            for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
            one->total[i] = sum;
          }
        }
      },
      &mine, site);
}
#define tvmop_multiply_add_float16(D, A, B) (MultiplyAdd<tvmop_from_float16>(D, A, B, __LINE__))
#define tvmop_multiply_add_bfloat16(D, A, B) (MultiplyAdd<tvmop_from_bfloat16>(D, A, B, __LINE__))

namespace emulate {

template <typename T>
T Unpack(const TVMFFIAny& value) {
  if constexpr (std::is_pointer_v<T>) {
    return static_cast<T>(value.v_ptr);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value.v_float64);
  } else {
    return static_cast<T>(value.v_int64);
  }
}

template <typename... P>
std::string RunKernel(void (*kernel)(P...), const std::tuple<P...>& values, int64_t blocks,
                      int64_t threads, char* shared_begin, char* shared_end) {
  struct Arguments {
    void (*kernel)(P...);
    const std::tuple<P...>* values;
  } arguments{kernel, &values};
  Launch launch{};
  launch.run = [](const void* opaque) {
    const auto* given = static_cast<const Arguments*>(opaque);
    std::apply(given->kernel, *given->values);
  };
  launch.arguments = &arguments;
  launch.blocks = blocks;
  launch.threads = threads;
  launch.shared_begin = shared_begin;
  launch.shared_end = shared_end;
  return Run(launch);
}

// As launching functions call it: the arguments, then the extents of blockIdx.x and threadIdx.x.
template <typename... P, size_t... I>
std::string CallPacked(void (*kernel)(P...), std::index_sequence<I...>, const TVMFFIAny* args,
                       int count, char* shared_begin, char* shared_end) {
  constexpr int kParameters = sizeof...(P);
  if (count != kParameters + 2) {
    return std::to_string(count) + " arguments to a kernel with " + std::to_string(kParameters);
  }
  const std::tuple<P...> values{Unpack<P>(args[I])...};
  return RunKernel(kernel, values, args[kParameters].v_int64, args[kParameters + 1].v_int64,
                   shared_begin, shared_end);
}

// As a CUDA driver is called: a pointer to each argument.
template <typename... P, size_t... I>
std::string CallRaw(void (*kernel)(P...), std::index_sequence<I...>, void* const* args,
                    int64_t blocks, int64_t threads, char* shared_begin, char* shared_end) {
  const std::tuple<P...> values{*static_cast<const P*>(args[I])...};
  return RunKernel(kernel, values, blocks, threads, shared_begin, shared_end);
}

template <typename... P>
constexpr std::index_sequence_for<P...> Parameters(void (*)(P...)) {
  return {};
}

}  // namespace emulate

// Makes a kernel a function of the library, as TVM's CUDA runtime would offer it, and one for a
// driver that is not there.
#define EMULATE_KERNEL(NAME, SECTION)                                                             \
  extern "C" {                                                                                    \
  extern char __start_##SECTION[] __attribute__((weak, visibility("hidden")));                    \
  extern char __stop_##SECTION[] __attribute__((weak, visibility("hidden")));                     \
  __attribute__((visibility("default"))) int __tvm_ffi_##NAME(void*, const TVMFFIAny* args,       \
                                                              int32_t count, TVMFFIAny*) {        \
    const std::string fault = emulate::CallPacked(&NAME, emulate::Parameters(&NAME), args, count, \
                                                  __start_##SECTION, __stop_##SECTION);           \
    if (fault.empty()) return 0;                                                                  \
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", fault.c_str());                                  \
    return -1;                                                                                    \
  }                                                                                               \
  __attribute__((visibility("default"))) int emulate_launch_##NAME(int64_t blocks,                \
                                                                   int64_t threads,               \
                                                                   void* const* args) {           \
    return emulate::CallRaw(&NAME, emulate::Parameters(&NAME), args, blocks, threads,             \
                            __start_##SECTION, __stop_##SECTION)                                  \
                   .empty()                                                                       \
               ? 0                                                                                \
               : -1;                                                                              \
  }                                                                                               \
  __attribute__((visibility("default"))) int emulate_parameters_##NAME() {                        \
    return decltype(emulate::Parameters(&NAME))::size();                                          \
  }                                                                                               \
  }

// Names of CUDA, last, so that no header sees them.
#define __global__ __attribute__((noinline, visibility("hidden")))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __syncthreads() emulate::Barrier(__LINE__)
#define threadIdx emulate::thread_index
#define blockIdx emulate::block_index
#define alignas(BYTES) __attribute__((aligned(BYTES)))

#endif  // TF_TVM_OPS_KERNELS_EMULATE_DEVICE_H_
