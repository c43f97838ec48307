#include "cc/dispatch/manifest.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "cc/dispatch/cpu_features.h"
#include "cc/dispatch/cuda_targets.h"
#include "cc/dispatch/kernel.h"

namespace tf_tvm_ops {
namespace {

namespace json = tvm::ffi::json;

// Extents beyond this are no kernel's; the same bound as MAX_EXTENT in kernels/problem.py.
constexpr int64_t kMaxExtent = 1 << 24;
constexpr int64_t kMaxWorkspaceBytes = int64_t{1} << 30;
constexpr int64_t kMaxImageBytes = int64_t{1} << 40;
constexpr size_t kMaxNameLength = 255;
// A manifest is about five levels deep. The parser recurses, so that a file of brackets would
// otherwise overflow the stack.
constexpr int kMaxDepth = 64;

// Leaves ParseManifest as *error.
class ManifestError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A value and where it stands ("images[0].kernels[3].problem"), which is put into words only for a
// message. Refers to its parent, which must outlive it.
class Node {
 public:
  explicit Node(json::Value value) : value_(std::move(value)) {}

  // Throws ManifestError, as do all below, if the value is not of the kind asked for.
  Node Member(const char* key) const {
    std::optional<json::Value> value = AsObject().Get(tvm::ffi::String(key));
    if (!value.has_value()) Fail(std::string("the key '") + key + "' is missing");
    return Node(this, key, 0, *std::move(value));
  }

  // The value of a key that may be missing.
  std::optional<Node> Optional(const char* key) const {
    std::optional<json::Value> value = AsObject().Get(tvm::ffi::String(key));
    if (!value.has_value()) return std::nullopt;
    return Node(this, key, 0, *std::move(value));
  }

  template <typename Visit>
  void ForEach(Visit visit) const {
    const auto array = value_.as<json::Array>();
    if (!array.has_value()) Expected("an array");
    int64_t index = 0;
    for (const json::Value& element : *array) visit(Node(this, nullptr, index++, element));
  }

  int64_t AsInteger(int64_t min, int64_t max) const {
    // A bool is no integer here, so neither is anything that could be converted to one.
    if (value_.type_index() == tvm::ffi::TypeIndex::kTVMFFIInt) {
      const auto number = value_.cast<int64_t>();
      if (number >= min && number <= max) return number;
    }
    Expected("an integer from " + std::to_string(min) + " to " + std::to_string(max));
  }

  // A number that is finite and not negative.
  double AsReal() const {
    double number = -1;
    if (value_.type_index() == tvm::ffi::TypeIndex::kTVMFFIInt) {
      number = static_cast<double>(value_.cast<int64_t>());
    } else if (value_.type_index() == tvm::ffi::TypeIndex::kTVMFFIFloat) {
      number = value_.cast<double>();
    }
    if (!(number >= 0 && number <= std::numeric_limits<double>::max())) {
      Expected("a number that is not negative");
    }
    return number;
  }

  template <size_t n>
  std::array<double, n> AsReals() const {
    std::array<double, n> numbers{};
    size_t count = 0;
    ForEach([&](const Node& number) {
      if (count < n) numbers[count] = number.AsReal();
      ++count;
    });
    if (count != n) Expected("an array of " + std::to_string(n) + " numbers");
    return numbers;
  }

  std::string AsString() const {
    const auto text = value_.as<tvm::ffi::String>();
    if (!text.has_value()) Expected("a string");
    return *text;
  }

  std::string AsObjectText() const {
    AsObject();
    return json::Stringify(value_);
  }

  bool is_null() const { return value_.type_index() == tvm::ffi::TypeIndex::kTVMFFINone; }

  template <typename Enum>
  Enum AsEnum() const {
    Enum value{};
    if (!Parse(AsString(), &value)) Expected("a value that this version of tf_tvm_ops knows");
    return value;
  }

  [[noreturn]] void Expected(const std::string& what) const {
    constexpr size_t kMaxShown = 60;
    std::string given = json::Stringify(value_);
    // The writer escapes slashes, which is allowed but hard to read.
    for (size_t at = 0; (at = given.find("\\/", at)) != std::string::npos; ++at) given.erase(at, 1);
    if (given.size() > kMaxShown) given = given.substr(0, kMaxShown) + "...";
    Fail("expected " + what + ", got " + given);
  }

 private:
  Node(const Node* parent, const char* key, int64_t index, json::Value value)
      : value_(std::move(value)), parent_(parent), key_(key), index_(index) {}

  [[noreturn]] void Fail(const std::string& what) const {
    const std::string place = Place();
    throw ManifestError(place.empty() ? what : place + ": " + what);
  }

  std::string Place() const {
    if (parent_ == nullptr) return {};
    const std::string outer = parent_->Place();
    if (key_ == nullptr) return outer + "[" + std::to_string(index_) + "]";
    return outer.empty() ? key_ : outer + "." + key_;
  }

  json::Object AsObject() const {
    const auto object = value_.as<json::Object>();
    if (!object.has_value()) Expected("an object");
    return *object;
  }

  json::Value value_;
  const Node* parent_ = nullptr;
  const char* key_ = nullptr;  // null for an element of an array
  int64_t index_ = 0;
};

bool IsAlphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// A C identifier: it becomes part of a name that is looked up in the image.
bool IsSymbol(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameLength &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return IsAlphanumeric(c) || c == '_'; });
}

// A file of the pack's own folder, of the kind that tvm-ffi loads. Without '/', and not starting
// with a dot, it cannot lead out of the folder.
bool IsImageFile(const std::string& name) {
  constexpr std::string_view kSuffix = ".so";
  return name.size() > kSuffix.size() && name.size() <= kMaxNameLength && name[0] != '.' &&
         name.compare(name.size() - kSuffix.size(), kSuffix.size(), kSuffix) == 0 &&
         name.find("..") == std::string::npos && std::all_of(name.begin(), name.end(), [](char c) {
           return IsAlphanumeric(c) || c == '_' || c == '-' || c == '.' || c == '+';
         });
}

bool IsSha256(const std::string& digest) {
  return digest.size() == 64 && std::all_of(digest.begin(), digest.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string CheckedString(const Node& node, bool (*is_valid)(const std::string&),
                          const char* expected) {
  std::string text = node.AsString();
  if (!is_valid(text)) node.Expected(expected);
  return text;
}

Problem ReadProblem(const Node& node) {
  Problem problem;
  problem.dtype = node.Member("dtype").AsEnum<DType>();
  problem.lhs_contiguous = node.Member("lhs").AsEnum<LhsContiguous>();
  problem.rhs_contiguous = node.Member("rhs").AsEnum<RhsContiguous>();
  const Node m = node.Member("m");
  const Node n = node.Member("n");
  const Node k = node.Member("k");
  if (m.is_null() && n.is_null() && k.is_null()) return problem.Generic();
  if (m.is_null() || n.is_null() || k.is_null()) {
    node.Expected("m, n and k to be all integers, or all null for a generic kernel");
  }
  problem.m = m.AsInteger(1, kMaxExtent);
  problem.n = n.AsInteger(1, kMaxExtent);
  problem.k = k.AsInteger(1, kMaxExtent);
  return problem;
}

Outcome ReadOutcome(const Node& node) {
  if (node.is_null()) return Outcome::kStockFailed;
  const double gain = node.Member("stock_us").AsReal() - node.Member("kernel_us").AsReal();
  const double noise = node.Member("noise_us").AsReal();
  if (gain > noise) return Outcome::kWon;
  return -gain > noise ? Outcome::kLost : Outcome::kTied;
}

Duel ReadDuel(const Node& node) {
  Duel duel;
  duel.matrices = node.Member("matrices").AsInteger(1, INT64_MAX);
  duel.epilogue = node.Member("epilogue").AsEnum<Epilogue>();
  duel.onednn = ReadOutcome(node.Member("onednn"));
  duel.eigen = ReadOutcome(node.Member("eigen"));
  return duel;
}

FallbackModel ReadModel(const Node& node) {
  constexpr size_t kFeatures = TimeModel::kFeatures;
  FallbackModel model;
  model.kernel.weights = node.Member("kernel").AsReals<kFeatures>();
  model.onednn.weights = node.Member("onednn").AsReals<kFeatures>();
  model.eigen.weights = node.Member("eigen").AsReals<kFeatures>();
  model.pass = node.Member("pass").AsReals<2>();
  return model;
}

KernelEntry ReadKernel(const Node& node) {
  KernelEntry kernel;
  kernel.symbol =
      CheckedString(node.Member("symbol"), IsSymbol, "a symbol of letters, digits and underscores");
  kernel.problem = ReadProblem(node.Member("problem"));
  kernel.config = node.Member("config").AsObjectText();
  kernel.workspace_bytes = node.Member("workspace_bytes").AsInteger(0, kMaxWorkspaceBytes);
  if (const std::optional<Node> timings = node.Optional("timings")) {
    timings->ForEach([&](const Node& timing) { kernel.duels.Add(ReadDuel(timing)); });
  }
  if (const std::optional<Node> model = node.Optional("model")) kernel.model = ReadModel(*model);
  return kernel;
}

ImageEntry ReadImage(const Node& node, const std::vector<std::string>& known_targets) {
  ImageEntry image;
  image.target = node.Member("target").AsString();
  if (std::find(known_targets.begin(), known_targets.end(), image.target) == known_targets.end()) {
    return image;
  }
  image.file = CheckedString(node.Member("file"), IsImageFile,
                             "the plain name of a .so file inside the pack, without '/' or '..'");
  image.bytes = node.Member("bytes").AsInteger(1, kMaxImageBytes);
  image.sha256 = CheckedString(node.Member("sha256"), IsSha256, "64 lower-case hex digits");
  node.Member("kernels").ForEach(
      [&](const Node& kernel) { image.kernels.push_back(ReadKernel(kernel)); });
  return image;
}

void CheckVersion(const Node& root, const char* key, int64_t supported) {
  const Node version = root.Member(key);
  const int64_t given = version.AsInteger(0, INT32_MAX);
  if (given == supported) return;
  throw ManifestError(std::string(key) + " " + std::to_string(given) + " where this version of " +
                      "tf_tvm_ops reads " + std::to_string(supported) +
                      ": install the version that the pack was made with, or make it again");
}

// The deepest nesting of brackets outside strings.
int Depth(const std::string& text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

bool ParseManifest(const std::string& text, Manifest* manifest, std::string* error) {
  try {
    if (Depth(text) > kMaxDepth) throw ManifestError("it is nested too deeply");
    tvm::ffi::String syntax_error;
    json::Value value = json::Parse(text, &syntax_error);
    if (!syntax_error.empty()) throw ManifestError("not JSON: " + std::string(syntax_error));
    const Node root(std::move(value));
    CheckVersion(root, "schema", kManifestSchema);
    CheckVersion(root, "abi", kKernelAbi);
    std::vector<std::string> known_targets = KnownCpuTargets();
    for (std::string& target : KnownCudaTargets()) known_targets.push_back(std::move(target));
    manifest->images.clear();
    root.Member("images").ForEach(
        [&](const Node& image) { manifest->images.push_back(ReadImage(image, known_targets)); });
    return true;
  } catch (const tvm::ffi::Error& e) {
    *error = e.message();
  } catch (const std::exception& e) {
    *error = e.what();
  }
  return false;
}

}  // namespace tf_tvm_ops
