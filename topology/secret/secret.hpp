// SPDX-License-Identifier: Apache-2.0
// A key that processes of one user share, and proofs of having it. The key itself is never sent.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "topology/base/bytes.hpp"
#include "topology/base/environment.hpp"

namespace lockstep {

// Proves that its maker has the key: HMAC-SHA-256.
using Mac = std::array<std::byte, 32>;

// Holds a SHA-256. digest_of() throws Error internal if OpenSSL refuses.
using Digest = std::array<std::byte, 32>;
Digest digest_of(std::span<const std::byte> bytes);

// True if both have the same bytes. It takes equally long for any two of one length, so time does not help a
// guesser.
bool is_same(std::span<const std::byte> one, std::span<const std::byte> other);

// Fills the bytes from the kernel's random numbers, for nonces and keys. Throws Error system.
void fill_random(std::span<std::byte> bytes);

// Holds a key, and wipes it from memory at the end. Each copy wipes its own.
class Secret {
 public:
  // Takes a key of 16 bytes or more; fewer are an Error usage. `source` names its origin in messages.
  Secret(Bytes key, std::string source);
  ~Secret();
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;

  // Returns the proof for these bytes.
  Mac mac(std::span<const std::byte> words) const;
  const std::string& source() const { return source_; }

 private:
  Bytes key_;
  std::string source_;
};

// Reads a key of 16 to 4096 bytes, without line ends at its end. The file must belong to this user, and nobody else
// may read or write it. Throws Error file otherwise.
Secret read_secret(const std::string& path);

// Reads the key at `path`. Without a path it is lockstep/key in XDG_CONFIG_HOME or ~/.config, which is made if there
// is none. Throws Error file, also if others may write to that folder.
Secret secret_of_user(const std::string& path = {}, const Environment& environment = process_environment);

}  // namespace lockstep
