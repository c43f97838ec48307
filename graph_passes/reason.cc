#include "graph_passes/reason.h"

#include <string>

namespace tf_tvm_ops {
namespace {

struct Word {
  Reason reason;
  const char* name;
  const char* meaning;
};

constexpr Word kWords[] = {
    {Reason::kNone, "", ""},
    {Reason::kDType, "dtype", "The dtype is not float32, float64, float16 or bfloat16."},
    {Reason::kDevice, "device",
     "The op, or every pack, has no kernel for the device of the product."},
    {Reason::kRemote, "remote",
     "The product is on another machine or in another process, which may not have the ops."},
    {Reason::kXla, "xla", "XLA compiles this graph and fuses by itself."},
    {Reason::kRank, "rank", "It is a single matrix product, without batch dimensions."},
    {Reason::kProjection, "projection",
     "An operand has no batch dimensions, as a weight: it is one large matrix product."},
    {Reason::kEquation, "equation",
     "The einsum is not a batched matrix product in a layout that the ops have."},
    {Reason::kFusedOps, "fused_ops",
     "Another pass has fused something into it that the ops do not have."},
    {Reason::kShapes, "shapes", "The shapes do not fit together; TensorFlow reports it."},
    {Reason::kStock, "stock",
     "TensorFlow's own kernel would serve these shapes, so nothing would be gained."},
    {Reason::kGradient, "gradient", "The graph says how to differentiate this very node."},
    {Reason::kFetched, "fetched", "The value in between is fetched or has to be preserved."},
    {Reason::kConsumers, "consumers", "The value in between is used elsewhere too."},
    {Reason::kControlEdge, "control_edge", "Another op has to wait for the value in between."},
    {Reason::kOtherDevice, "other_device", "The next op is on another device."},
    {Reason::kCast, "cast", "There is a Cast in between."},
    {Reason::kPermutation, "permutation", "The transpose is another one than of length and heads."},
    {Reason::kNotConstant, "not_constant",
     "The factor, or the permutation, is not a constant that is known when the graph is set up."},
    {Reason::kFactor, "factor", "The factor is not one finite number."},
    {Reason::kOrder, "order", "The op cannot do this after what is fused already."},
    {Reason::kBroadcast, "broadcast",
     "The addend has, or may have, a shape that TensorFlow treats otherwise."},
    {Reason::kSubtraction, "subtraction",
     "The mask is subtracted and may be as large as the product: to negate it costs what fusing "
     "it gains."},
    {Reason::k16Bit, "16_bit",
     "No pack is known to have a 16-bit kernel for it, and oneDNN with its own fusions is faster."},
    {Reason::kTaken, "taken", "It is fused with another product."},
};

const Word& Find(Reason reason) {
  for (const Word& word : kWords) {
    if (word.reason == reason) return word;
  }
  return kWords[0];
}

}  // namespace

std::string ReasonsText() {
  std::string text;
  for (const Word& word : kWords) {
    if (word.reason != Reason::kNone) text += std::string(word.name) + '\t' + word.meaning + '\n';
  }
  return text;
}

const char* ReasonName(Reason reason) { return Find(reason).name; }

}  // namespace tf_tvm_ops
