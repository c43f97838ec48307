#include "cc/dispatch/file.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "cc/dispatch/sha256.h"

namespace tf_tvm_ops {
namespace {

std::string ErrnoText() {
  std::array<char, 256> buffer{};
  return strerror_r(errno, buffer.data(), buffer.size());  // the GNU one, which returns the text
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// Passes the file to `sink` piece by piece.
template <typename Sink>
bool ForEachPiece(const std::string& path, std::string* error, Sink sink) {
  const File file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) {
    *error = ErrnoText();
    return false;
  }
  std::array<char, 1 << 16> piece;
  while (std::feof(file.get()) == 0) {
    const size_t bytes = std::fread(piece.data(), 1, piece.size(), file.get());
    if (std::ferror(file.get()) != 0) {
      *error = "it cannot be read: " + ErrnoText();
      return false;
    }
    sink(piece.data(), bytes);
  }
  return true;
}

}  // namespace

bool RealPath(const std::string& path, std::string* real_path, std::string* error) {
  struct Free {
    void operator()(char* text) const { std::free(text); }
  };
  const std::unique_ptr<char, Free> resolved(realpath(path.c_str(), nullptr));
  if (resolved == nullptr) {
    *error = ErrnoText();
    return false;
  }
  *real_path = resolved.get();
  return true;
}

bool FileBytes(const std::string& path, int64_t* bytes, std::string* error) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) {
    *error = ErrnoText();
    return false;
  }
  // Opening a pipe or a device could wait for ever.
  if (!S_ISREG(status.st_mode)) {
    *error = "not a regular file";
    return false;
  }
  *bytes = status.st_size;
  return true;
}

bool ReadFile(const std::string& path, int64_t max_bytes, std::string* text, std::string* error) {
  int64_t bytes = 0;
  if (!FileBytes(path, &bytes, error)) return false;
  if (bytes > max_bytes) {
    *error = "it has " + std::to_string(bytes) + " bytes, more than the " +
             std::to_string(max_bytes) + " allowed";
    return false;
  }
  text->clear();
  text->reserve(static_cast<size_t>(bytes));
  return ForEachPiece(path, error,
                      [&](const char* data, size_t size) { text->append(data, size); });
}

bool HashFile(const std::string& path, std::string* hex_digest, std::string* error) {
  int64_t bytes = 0;
  if (!FileBytes(path, &bytes, error)) return false;
  Sha256 hash;
  if (!ForEachPiece(path, error, [&](const char* data, size_t size) { hash.Update(data, size); })) {
    return false;
  }
  *hex_digest = hash.HexDigest();
  return true;
}

}  // namespace tf_tvm_ops
