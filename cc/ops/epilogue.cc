#include "cc/ops/epilogue.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "cc/ops/sharding.h"

namespace tf_tvm_ops {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

struct Dim {
  int64_t extent;
  int64_t in_stride;
  int64_t addend_stride;
};
using Dims = absl::InlinedVector<Dim, 8>;

// The dimensions of the output, outermost first, without those of extent 1; those over which both
// inputs go on as over the next one are merged with it. At least one.
Dims MergedDims(const tensorflow::TensorShape& shape, const StridedView& in,
                const StridedView& addend) {
  Dims dims;
  for (int i = shape.dims() - 1; i >= 0; --i) {
    const Dim dim{shape.dim_size(shape.dims() - 1 - i), in.BroadcastStride(i),
                  addend.BroadcastStride(i)};
    if (dim.extent == 1) continue;
    if (!dims.empty() && dims.back().in_stride == dim.in_stride * dim.extent &&
        dims.back().addend_stride == dim.addend_stride * dim.extent) {
      dims.back() = {dims.back().extent * dim.extent, dim.in_stride, dim.addend_stride};
    } else {
      dims.push_back(dim);
    }
  }
  if (dims.empty()) dims.push_back({1, 0, 0});
  return dims;
}

// In what 16-bit types, and the wider ones, are computed.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename In, typename Out>
struct Row {
  const In* in;
  const Out* addend;
  Out* out;
  int64_t size;
  int64_t in_stride;
  int64_t addend_stride;
  Wide<Out> scale;

  void Compute(int64_t in_step, int64_t addend_step) const {
    for (int64_t i = 0; i < size; ++i) {
      out[i] = static_cast<Out>(scale * static_cast<Wide<Out>>(in[i * in_step]) +
                                static_cast<Wide<Out>>(addend[i * addend_step]));
    }
  }

  // With steps that the compiler knows, it vectorizes the loop.
  void Compute() const {
    if (in_stride == 1 && addend_stride == 1) {
      Compute(1, 1);
    } else if (in_stride == 1 && addend_stride == 0) {
      Compute(1, 0);
    } else if (in_stride == 0 && addend_stride == 1) {
      Compute(0, 1);
    } else {
      Compute(in_stride, addend_stride);
    }
  }
};

template <typename In, typename Out>
class Epilogue {
 public:
  Epilogue(const In* in, double scale, const Out* addend, Out* out, Dims dims)
      : in_(in),
        addend_(addend == nullptr ? &neutral_ : addend),
        out_(out),
        scale_(static_cast<Wide<Out>>(scale)),
        copies_(std::is_same_v<In, Out> && scale == 1 && addend == nullptr),
        dims_(std::move(dims)) {}

  // Elements [begin, end) of the output.
  void Run(int64_t begin, int64_t end) const {
    const Dim& inner = dims_.back();
    const int outer = static_cast<int>(dims_.size()) - 1;
    absl::InlinedVector<int64_t, 8> index(outer);
    int64_t column = begin % inner.extent, rest = begin / inner.extent;
    int64_t in = 0, addend = 0;  // offsets of the row
    for (int i = outer - 1; i >= 0; --i) {
      index[i] = rest % dims_[i].extent;
      rest /= dims_[i].extent;
      in += index[i] * dims_[i].in_stride;
      addend += index[i] * dims_[i].addend_stride;
    }
    while (begin < end) {
      const int64_t size = std::min(inner.extent - column, end - begin);
      const Row<In, Out> row{in_ + in + column * inner.in_stride,
                             addend_ + addend + column * inner.addend_stride,
                             out_ + begin,
                             size,
                             inner.in_stride,
                             inner.addend_stride,
                             scale_};
      if (copies_ && inner.in_stride == 1) {
        std::memcpy(static_cast<void*>(row.out), row.in, size * sizeof(Out));
      } else {
        row.Compute();
      }
      begin += size;
      column = 0;
      for (int i = outer - 1; i >= 0; --i) {
        in += dims_[i].in_stride;
        addend += dims_[i].addend_stride;
        if (++index[i] < dims_[i].extent) break;
        in -= index[i] * dims_[i].in_stride;
        addend -= index[i] * dims_[i].addend_stride;
        index[i] = 0;
      }
    }
  }

 private:
  // Adding -0 changes nothing, while adding +0 would make +0 of -0.
  const Out neutral_ = static_cast<Out>(-0.0f);
  const In* const in_;
  const Out* const addend_;
  Out* const out_;
  const Wide<Out> scale_;
  const bool copies_;
  const Dims dims_;
};

// Cycles to load, convert and store one element; conversions of float16 take several without
// instructions for them, and memory is not faster.
constexpr int64_t kCyclesPerElement = 4;

template <typename In, typename Out>
absl::Status RunTyped(OpKernelContext* ctx, const StridedInput& in, double scale,
                      const StridedInput* addend, Tensor* out) {
  const StridedView no_addend;
  const Epilogue<In, Out> epilogue(
      static_cast<const In*>(in.data), scale,
      addend == nullptr ? nullptr : static_cast<const Out*>(addend->data),
      static_cast<Out*>(out->data()),
      MergedDims(out->shape(), in.view, addend == nullptr ? no_addend : addend->view));
  ShareOut(ctx, out->NumElements(), kCyclesPerElement, [&epilogue](int64_t begin, int64_t end) {
    epilogue.Run(begin, end);
    return std::string();
  });
  return absl::OkStatus();
}

}  // namespace

absl::Status RunEpilogue(OpKernelContext* ctx, const StridedInput& in, double scale,
                         const StridedInput* addend, Tensor* out) {
  using tensorflow::bfloat16;
  using Half = Eigen::half;
  if (out->NumElements() == 0) return absl::OkStatus();
  const auto is = [&](DataType from, DataType to) {
    return in.dtype == from && out->dtype() == to;
  };
  using tensorflow::DT_BFLOAT16, tensorflow::DT_DOUBLE, tensorflow::DT_FLOAT, tensorflow::DT_HALF;
  if (is(DT_FLOAT, DT_FLOAT)) return RunTyped<float, float>(ctx, in, scale, addend, out);
  if (is(DT_DOUBLE, DT_DOUBLE)) return RunTyped<double, double>(ctx, in, scale, addend, out);
  if (is(DT_HALF, DT_HALF)) return RunTyped<Half, Half>(ctx, in, scale, addend, out);
  if (is(DT_HALF, DT_FLOAT)) return RunTyped<Half, float>(ctx, in, scale, addend, out);
  if (is(DT_FLOAT, DT_HALF)) return RunTyped<float, Half>(ctx, in, scale, addend, out);
  if (is(DT_BFLOAT16, DT_BFLOAT16)) {
    return RunTyped<bfloat16, bfloat16>(ctx, in, scale, addend, out);
  }
  if (is(DT_BFLOAT16, DT_FLOAT)) return RunTyped<bfloat16, float>(ctx, in, scale, addend, out);
  if (is(DT_FLOAT, DT_BFLOAT16)) return RunTyped<float, bfloat16>(ctx, in, scale, addend, out);
  return absl::InternalError(absl::StrCat("no epilogue from ", DataTypeString(in.dtype), " to ",
                                          DataTypeString(out->dtype())));
}

}  // namespace tf_tvm_ops
