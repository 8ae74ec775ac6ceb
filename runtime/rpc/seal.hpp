// SPDX-License-Identifier: Apache-2.0
// Proves a key in calls and answers. Both carry an HMAC over their content, the server's nonce, and a number that the
// client never reuses. So both sides prove the key without sending it, altered content is noticed, and a repeated call
// is not run again. A call's proof precedes its arguments and holds their digest: the server reads no arguments of a
// client without the key. Pure.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "topology/base/bytes.hpp"
#include "topology/secret/secret.hpp"

namespace lockstep::rpc::detail {

using Nonce = std::array<std::byte, 16>;

// Identifies the call of an answer. `lowest` is the lowest number of a call that has no answer yet.
struct CallIdentity {
  Nonce client{};
  std::uint64_t number = 0;
  std::uint64_t lowest = 0;
};

// Remembers the numbers of calls, each once, as ranges. It forgets numbers below the lowest one, and refuses them.
class ReplayWindow {
 public:
  // Returns true and remembers the number if it is new.
  bool take(std::uint64_t number, std::uint64_t lowest);
  // Returns the number of ranges in memory.
  std::size_t ranges() const { return ranges_.size(); }

 private:
  std::uint64_t lowest_ = 0;
  std::map<std::uint64_t, std::uint64_t> ranges_;  // Maps the first number of a range to its last.
};

// Checks calls and signs answers for a server. Any thread may call it.
class ServerSeal {
 public:
  explicit ServerSeal(std::shared_ptr<const Secret> key);

  // Returns the server's nonce. It is public, and proves nothing by itself.
  const Nonce& nonce() const { return nonce_; }
  struct VerifiedCall {
    CallIdentity identity;
    Digest arguments;
  };
  // Checks a proof of ClientSeal::seal(). Returns nothing if it doesn't prove the key, or the call is not new.
  std::optional<VerifiedCall> open(std::string_view method, std::span<const std::byte> proof);
  // Returns the answer with its proof.
  Bytes seal(const CallIdentity& identity, std::string_view method, std::span<const std::byte> answer) const;

 private:
  std::shared_ptr<const Secret> key_;
  Nonce nonce_;
  std::mutex mutex_;
  std::map<Nonce, ReplayWindow> used_;  // Holds clients that have proven the key.
};

// Signs calls and checks answers for a client. Any thread may call it.
class ClientSeal {
 public:
  explicit ClientSeal(std::shared_ptr<const Secret> key);

  // Returns the origin of the key, for messages.
  const std::string& source() const { return key_->source(); }
  // Give a call its number, and release it when the call has ended.
  CallIdentity begin();
  void end(const CallIdentity& identity);
  // Returns the proof of a call with these arguments.
  Bytes seal(const CallIdentity& identity, const Nonce& server, std::string_view method,
             std::span<const std::byte> arguments) const;
  // Returns the answer without its proof. Returns nothing if the answer doesn't prove the key, or belongs to another
  // call.
  std::optional<Bytes> open(const CallIdentity& identity, const Nonce& server, std::string_view method,
                            std::span<const std::byte> answer) const;

 private:
  std::shared_ptr<const Secret> key_;
  Nonce nonce_;
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::set<std::uint64_t> open_;
};

}  // namespace lockstep::rpc::detail
