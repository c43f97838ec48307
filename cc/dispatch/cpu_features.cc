#include "cc/dispatch/cpu_features.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace tf_tvm_ops {
namespace {

// Targets whose code uses tile registers.
constexpr char kAmxPrefix[] = "cpu:x86-64-v4-amx-";

#if defined(__x86_64__)

constexpr bool Bit(uint64_t word, int bit) { return ((word >> bit) & 1) != 0; }

// The register sets that the operating system has enabled (XCR0).
uint64_t EnabledStates() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || !Bit(ecx, 27)) return 0;  // OSXSAVE
  // xgetbv, which compilers offer only where they may assume that the CPU has it.
  __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(eax), "=d"(edx) : "c"(0));
  return (static_cast<uint64_t>(edx) << 32) | eax;
}

constexpr int kTileConfig = 17;
constexpr int kTileData = 18;

#if defined(__linux__) && defined(SYS_arch_prctl)

// Of Linux's asm/prctl.h, since 5.16.
constexpr int kGetSupportedStates = 0x1021;
constexpr int kRequestState = 0x1023;

bool LinuxGivesTiles() {
  uint64_t states = 0;
  return syscall(SYS_arch_prctl, kGetSupportedStates, &states) == 0 && Bit(states, kTileData);
}

int RequestTiles() { return syscall(SYS_arch_prctl, kRequestState, kTileData) == 0 ? 0 : errno; }

#else

bool LinuxGivesTiles() { return false; }
int RequestTiles() { return ENOSYS; }

#endif

CpuFeatures Detect() {
  CpuFeatures features;
  // The compiler's run-time check takes literals only; it includes whether the operating system
  // saves the vector registers.
  features.x86_64_v3 = __builtin_cpu_supports("x86-64-v3") != 0;
  features.x86_64_v4 = __builtin_cpu_supports("x86-64-v4") != 0;
  features.avx512_bf16 = __builtin_cpu_supports("avx512bf16") != 0;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    features.amx_bf16 = Bit(edx, 22);
    features.amx_tile = Bit(edx, 24);
    if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) {
      features.amx_fp16 = Bit(eax, 21);
    }
  }
  if (features.amx_tile) {
    const uint64_t states = EnabledStates();
    features.tiles_saved = Bit(states, kTileConfig) && Bit(states, kTileData) && LinuxGivesTiles();
  }
  return features;
}

#else

CpuFeatures Detect() { return {}; }
int RequestTiles() { return ENOSYS; }

#endif

}  // namespace

std::vector<std::string> KnownCpuTargets() {
  return {"cpu:x86-64-v4-amx-fp16", "cpu:x86-64-v4-amx-bf16", "cpu:x86-64-v4-bf16", "cpu:x86-64-v4",
          "cpu:x86-64-v3"};
}

std::vector<std::string> CpuTargetsWith(const CpuFeatures& features) {
  std::vector<std::string> targets;
  const bool bf16 = features.x86_64_v4 && features.avx512_bf16;
  const bool tiles = features.x86_64_v4 && features.amx_tile && features.tiles_saved;
  if (tiles && features.amx_fp16) targets.emplace_back("cpu:x86-64-v4-amx-fp16");
  if (tiles && bf16 && features.amx_bf16) targets.emplace_back("cpu:x86-64-v4-amx-bf16");
  if (bf16) targets.emplace_back("cpu:x86-64-v4-bf16");
  if (features.x86_64_v4) targets.emplace_back("cpu:x86-64-v4");
  if (features.x86_64_v3) targets.emplace_back("cpu:x86-64-v3");
  return targets;
}

std::vector<std::string> SupportedCpuTargets() { return CpuTargetsWith(Detect()); }

std::string PrepareCpuTarget(const std::string& target) {
  if (target.rfind(kAmxPrefix, 0) != 0) return {};
  static const int refused = RequestTiles();
  if (refused == 0) return {};
  return std::string("Linux does not let this process use tile registers (AMX): ") +
         std::strerror(refused);
}

}  // namespace tf_tvm_ops
