// SPDX-License-Identifier: Apache-2.0
// Calls that prove a key. What is called and what is answered carries an HMAC over all of it, over a nonce of the
// server's and over a number that the client never uses twice: so both sides prove the key to each other without
// sending it, what is changed on its way is seen, and a call that somebody sends again is not run again. A call's proof
// goes before its arguments, and has their digest: the server reads no arguments of a client without the key. Pure.
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

// Which call an answer belongs to; and the lowest number of those whose answer the client still waits for.
struct CallIdentity {
  Nonce client{};
  std::uint64_t number = 0;
  std::uint64_t lowest = 0;
};

// Numbers, each of them once, as ranges; what is below a lowest one is forgotten, and refused.
class ReplayWindow {
 public:
  // Whether it is new.
  bool take(std::uint64_t number, std::uint64_t lowest);
  std::size_t ranges() const { return ranges_.size(); }

 private:
  std::uint64_t lowest_ = 0;
  std::map<std::uint64_t, std::uint64_t> ranges_;  // first, last
};

class ServerSeal {
 public:
  explicit ServerSeal(std::shared_ptr<const Secret> key);

  // Told to whoever asks; it proves nothing by itself.
  const Nonce& nonce() const { return nonce_; }
  struct VerifiedCall {
    CallIdentity identity;
    Digest arguments;
  };
  // Checks what ClientSeal::seal() made. Nothing: it does not prove the key, or is not new.
  std::optional<VerifiedCall> open(std::string_view method, std::span<const std::byte> proof);
  Bytes seal(const CallIdentity& identity, std::string_view method, std::span<const std::byte> answer) const;

 private:
  std::shared_ptr<const Secret> key_;
  Nonce nonce_;
  std::mutex mutex_;
  std::map<Nonce, ReplayWindow> used_;  // of clients that have proven the key
};

class ClientSeal {
 public:
  explicit ClientSeal(std::shared_ptr<const Secret> key);

  const std::string& source() const { return key_->source(); }
  // From the beginning of a call to its end.
  CallIdentity begin();
  void end(const CallIdentity& identity);
  // Returns the proof of a call with these arguments.
  Bytes seal(const CallIdentity& identity, const Nonce& server, std::string_view method,
             std::span<const std::byte> arguments) const;
  // Nothing: the answer does not prove the key, or belongs to another call.
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
