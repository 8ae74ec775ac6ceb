// SPDX-License-Identifier: Apache-2.0
// A key that processes of one user share, and proofs of having it. The key itself is never sent.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "topology/base/bytes.hpp"
#include "topology/base/environment.hpp"

namespace lockstep {

// A proof that who made it has the key: HMAC-SHA-256.
using Mac = std::array<std::byte, 32>;

// SHA-256 of anything.
using Digest = std::array<std::byte, 32>;
Digest digest_of(std::span<const std::byte> bytes);

// Takes as long for any two of one length, so that time tells nobody how much of a guess was right.
bool is_same(std::span<const std::byte> one, std::span<const std::byte> other);

// From the kernel, for nonces and keys.
void fill_random(std::span<std::byte> bytes);

class Secret {
 public:
  // At least 16 bytes; `source` is for messages. Throws Error usage for fewer.
  Secret(Bytes key, std::string source);
  ~Secret();
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;

  Mac mac(std::span<const std::byte> words) const;
  const std::string& source() const { return source_; }

 private:
  Bytes key_;
  std::string source_;
};

// The contents of a file that nobody but its owner, who is this user, may read. Throws Error file otherwise.
Secret read_secret(const std::string& path);

// The file's; without a name, that of lockstep/key in XDG_CONFIG_HOME or ~/.config, which is made if there is none.
Secret secret_of_user(const std::string& path = {}, const Environment& environment = process_environment);

}  // namespace lockstep
