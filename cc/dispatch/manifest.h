// manifest.json of a pack, checked. The format is described in docs/architecture.md; its writer is
// kernels/manifest.py.
#ifndef TF_TVM_OPS_CC_DISPATCH_MANIFEST_H_
#define TF_TVM_OPS_CC_DISPATCH_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cc/dispatch/measured.h"
#include "cc/dispatch/problem.h"

namespace tf_tvm_ops {

constexpr int kManifestSchema = 1;

struct KernelEntry {
  std::string symbol;
  Problem problem;
  std::string config;  // JSON text
  int64_t workspace_bytes = 0;
  Duels duels;                         // against stock; none if the pack was not tuned
  std::optional<FallbackModel> model;  // of a generic kernel of a tuned pack
};

struct ImageEntry {
  std::string target;
  // The rest is left empty for a target that this version does not know: such an image is never
  // used, and may describe problems that have no words here.
  std::string file;
  int64_t bytes = 0;
  std::string sha256;
  std::vector<KernelEntry> kernels;
};

struct Manifest {
  std::vector<ImageEntry> images;
};

// Checks everything that is used later: types, ranges, missing keys, names that would lead out of
// the folder. Unknown keys are ignored. False with one sentence in *error: what was found where,
// and what was expected. Throws nothing except when out of memory.
bool ParseManifest(const std::string& text, Manifest* manifest, std::string* error);

}  // namespace tf_tvm_ops

#endif  // TF_TVM_OPS_CC_DISPATCH_MANIFEST_H_
