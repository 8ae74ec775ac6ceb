// SPDX-License-Identifier: Apache-2.0
// A transport moves the messages of a round, and the control messages beside the data. It costs one virtual call per
// round; nothing here ever blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "topology/base/bytes.hpp"

namespace lockstep {

struct SendDescriptor {
  int peer;
  const void* data;
  std::size_t bytes;
};

struct ReceiveDescriptor {
  int peer;
  void* data;
  std::size_t bytes;
};

// Says which messages belong together: those of one lane match in the order of their posting, if their call tags are
// equal. A collective's call tag is a hash of all calls so far, so that messages of different calls never match.
// Not all members take part in an exchange, so they cannot agree on a lane. Rounds with `is_exchange` match all rounds
// of exchanges with the same call tag, whatever their lanes; these call tags come from message tags.
// Their lanes are numbered from lanes() on.
struct RoundTag {
  int lane = 0;
  std::uint32_t call_tag = 0;
  bool is_exchange = false;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;  // among the members of this communicator
  virtual int size() const = 0;
  // Lanes 0..lanes()-1 (and beyond, for rounds of exchanges) may each have one posted round at a time.
  virtual int lanes() const = 0;
  // Returns a limit, at least 32. Call tags of exchanges are smaller, and the transport tells all of them apart.
  virtual std::uint32_t exchange_tags() const = 0;
  // Differs from those of earlier transports whose messages could still be met here.
  virtual std::uint32_t generation() const { return 0; }

  // Begins all messages of one round. The memory stays as it is until done(lane) says so. Does not allocate when a
  // round of as many messages was posted on the lane before.
  virtual void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
                    std::span<const ReceiveDescriptor> receives) = 0;
  // Whether all messages of the lane's round are through. Throws Error mismatch when one arrived with another length
  // than expected.
  virtual bool done(int lane) = 0;
  // After a failure: gives up what is posted, such that its memory is not used any more. False: some of it is on its
  // way, beyond recall, so the memory must stay until the program ends.
  virtual bool abandon() = 0;

  // Small messages beside the data, in order for each pair, never lost, for any purpose of the engine.
  virtual void tell(int peer, Bytes bytes) = 0;
  // Whether what was told to this member gets there without this one's help.
  virtual bool is_said(int /*peer*/) { return true; }
  struct SmallMessage {
    int peer;
    Bytes bytes;
  };
  virtual std::optional<SmallMessage> hear() = 0;

  // Sleeps until something may have arrived, at most for so long; may return early.
  virtual void sleep(std::int64_t nanoseconds) = 0;
  // Whether one thread may sleep while another one is at anything else here.
  virtual bool sleeps_beside() const { return false; }
  virtual void tell_all(const Bytes& bytes) {
    for (int i = 1; i < size(); ++i) tell((rank() + i) % size(), bytes);
  }
  // What is known of a member: silent, its host or the way there was given up, and it may live; ended, it has left or
  // its process has ended, and all that it ever said can be heard.
  enum class Fate : std::uint8_t { here, silent, ended };
  virtual Fate fate(int /*peer*/) { return Fate::here; }
  // Makes a new transport among these members, in this order, without asking them: all of them make it, with the same
  // number, also when this one has been given up.
  virtual bool can_regroup() const { return false; }
  // It has been given up, and what is told and heard from now on is of those that are left.
  virtual void begin_regrouping() {}
  virtual std::unique_ptr<Transport> regroup(std::span<const int> /*members*/, std::uint64_t /*number*/) {
    return nullptr;
  }
  // Tells the members that could wait for this one that it is about to leave; its silence is no failure after that.
  // Sends nothing if `last_words` is empty. Does not block.
  virtual void leave(const Bytes& last_words) {
    if (!last_words.empty()) tell_all(last_words);
  }
};

}  // namespace lockstep
