// What the dispatcher makes of a CPU's features, a line for each set of them; and what becomes of
// an image whose code needs tile registers on this machine.
#include <cstdio>
#include <string>
#include <utility>

#include "cc/dispatch/cpu_features.h"
#include "cc/dispatch/image.h"
#include "cc/dispatch/manifest.h"

namespace {

using tf_tvm_ops::CpuFeatures;

void Print(const char* title, const CpuFeatures& features) {
  std::string line = title;
  for (const std::string& target : tf_tvm_ops::CpuTargetsWith(features)) line += " " + target;
  std::puts(line.c_str());
}

}  // namespace

int main() {
  CpuFeatures features;
  Print("nothing:", features);
  features.x86_64_v3 = features.x86_64_v4 = features.avx512_bf16 = true;
  Print("vectors:", features);
  features.amx_tile = features.amx_bf16 = true;
  Print("not saved:", features);
  features.tiles_saved = true;
  Print("bf16 tiles:", features);
  features.amx_fp16 = true;
  Print("all tiles:", features);
  features.amx_bf16 = false;
  Print("fp16 tiles:", features);
  features.amx_tile = false;
  Print("no tiles:", features);

  const std::string refused = tf_tvm_ops::PrepareCpuTarget("cpu:x86-64-v4-amx-bf16");
  std::printf("tiles %s\n", refused.empty() ? "given" : "refused");
  std::printf("vectors %s\n",
              tf_tvm_ops::PrepareCpuTarget("cpu:x86-64-v4").empty() ? "given" : "refused");
  tf_tvm_ops::ImageEntry entry;
  entry.target = "cpu:x86-64-v4-amx-bf16";
  entry.file = "absent.so";
  tf_tvm_ops::Image image("/nowhere", std::move(entry));
  std::printf("image %s\n", image.Ready() ? "open" : "failed");
  return 0;
}
