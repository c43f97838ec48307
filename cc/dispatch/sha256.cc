#include "cc/dispatch/sha256.h"

#include <algorithm>
#include <cstring>

namespace tf_tvm_ops {
namespace {

// FIPS 180-4, 5.3.3: the first 32 bits of the fractional parts of the square roots of the first 8
// primes.
constexpr std::array<uint32_t, 8> kInitialState{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

// FIPS 180-4, 4.2.2: the same of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRound{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t RotateRight(uint32_t value, int bits) { return value >> bits | value << (32 - bits); }

uint32_t ReadBigEndian(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | static_cast<uint32_t>(bytes[3]);
}

}  // namespace

Sha256::Sha256() : state_(kInitialState) {}

void Sha256::Compress(const uint8_t* block) {
  std::array<uint32_t, 64> w;
  for (size_t t = 0; t < 16; ++t) w[t] = ReadBigEndian(block + 4 * t);
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t s0 = RotateRight(w[t - 15], 7) ^ RotateRight(w[t - 15], 18) ^ w[t - 15] >> 3;
    const uint32_t s1 = RotateRight(w[t - 2], 17) ^ RotateRight(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t s1 = RotateRight(e, 6) ^ RotateRight(e, 11) ^ RotateRight(e, 25);
    const uint32_t choice = (e & f) ^ (~e & g);
    const uint32_t t1 = h + s1 + choice + kRound[t] + w[t];
    const uint32_t s0 = RotateRight(a, 2) ^ RotateRight(a, 13) ^ RotateRight(a, 22);
    const uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + s0 + majority;
  }
  const std::array<uint32_t, 8> step{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < step.size(); ++i) state_[i] += step[i];
}

void Sha256::Update(const void* data, size_t bytes) {
  const auto* next = static_cast<const uint8_t*>(data);
  size_t pending = total_bytes_ % kBlockBytes;
  total_bytes_ += bytes;
  if (pending > 0) {
    const size_t taken = std::min(bytes, kBlockBytes - pending);
    std::memcpy(pending_.data() + pending, next, taken);
    pending += taken;
    next += taken;
    bytes -= taken;
    if (pending < kBlockBytes) return;
    Compress(pending_.data());
  }
  for (; bytes >= kBlockBytes; next += kBlockBytes, bytes -= kBlockBytes) Compress(next);
  if (bytes > 0) std::memcpy(pending_.data(), next, bytes);
}

std::string Sha256::HexDigest() {
  // The message is followed by one bit, zeros, and its length in bits as 64-bit big-endian, such
  // that whole blocks result.
  const uint64_t bits = total_bytes_ * 8;
  constexpr uint8_t kOne = 0x80;
  constexpr uint8_t kZero = 0;
  Update(&kOne, 1);
  while (total_bytes_ % kBlockBytes != kBlockBytes - 8) Update(&kZero, 1);
  std::array<uint8_t, 8> length;
  for (size_t i = 0; i < length.size(); ++i) length[i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  Update(length.data(), length.size());

  static constexpr char kHex[] = "0123456789abcdef";
  std::string digest;
  digest.reserve(64);
  for (const uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) digest.push_back(kHex[word >> shift & 15]);
  }
  return digest;
}

}  // namespace tf_tvm_ops
