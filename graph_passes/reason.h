// Why a product, or something beside it, was left as it is.
#ifndef TF_TVM_OPS_GRAPH_PASSES_REASON_H_
#define TF_TVM_OPS_GRAPH_PASSES_REASON_H_

#include <cstdint>
#include <string>
#include <utility>

namespace tf_tvm_ops {

// The names (ReasonName) are the vocabulary of the report, the documentation and the tests.
enum class Reason : uint8_t {
  kNone,
  // Of the product itself.
  kDType,       // not float32, float64, float16 or bfloat16, or operands of different dtypes
  kDevice,      // the op has no kernel for the device that the product is on
  kRemote,      // on a machine, or in a process, that may not have the ops
  kXla,         // compiled by XLA, which fuses by itself
  kRank,        // a single matrix product, without batch dimensions
  kProjection,  // an operand without batch dimensions, usually a weight: one large product
  kEquation,    // an einsum that is not a batched matrix product in a layout of the ops
  kFusedOps,    // made by another pass, with something in it that the ops do not have
  kShapes,      // known shapes that do not fit together; stock reports them
  kStock,       // known shapes for which TensorFlow's own kernel would serve the op
  // Of what comes before or after it.
  kGradient,     // the graph gives a node a gradient of its own
  kFetched,      // the value in between is fetched or has to be preserved
  kConsumers,    // the value in between is used elsewhere too
  kControlEdge,  // something has to wait for the value in between
  kOtherDevice,  // on another device than the product
  kCast,         // a Cast in between
  kPermutation,  // a transpose other than of length and heads
  kNotConstant,  // a factor, or a permutation, that is not a constant known by now
  kFactor,       // a factor that is not one finite number
  kOrder,        // the op cannot do it after what is already fused
  kBroadcast,    // the addend enlarges the product, or stock would not broadcast it so
  kSubtraction,  // a mask is subtracted that may be as large as the product
  k16Bit,        // 16-bit without a kernel in a pack: oneDNN, with its own fusions, is faster
  kTaken         // already fused with another product
};

const char* ReasonName(Reason reason);

// "name<tab>sentence" lines of all of them, in their order.
std::string ReasonsText();

// What a rule or a guard says to a node.
struct Verdict {
  enum class Kind : uint8_t {
    kTaken,          // fused
    kNotApplicable,  // the node is not what the rule is about
    kRefused         // it is, but has to be left alone
  };
  Kind kind = Kind::kNotApplicable;
  Reason reason = Reason::kNone;
  std::string detail;  // names the node or the value; may be empty

  static Verdict Taken() { return {Kind::kTaken, Reason::kNone, ""}; }
  static Verdict NotApplicable() { return {}; }
  static Verdict Refused(Reason reason, std::string detail = "") {
    return {Kind::kRefused, reason, std::move(detail)};
  }
  bool taken() const { return kind == Kind::kTaken; }
  bool refused() const { return kind == Kind::kRefused; }
};

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_GRAPH_PASSES_REASON_H_
