// SPDX-License-Identifier: Apache-2.0
// Beside the lanes, one connection between two members: words, and messages that members who name each other send
// (rounds across), which match by their marks in whatever order they are wanted. Short ones are kept here until then;
// of a long one only its length comes, and the data when it is wanted.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/tcp/lane_stream.hpp"

namespace lockstep::tcp {

class WordStream {
 public:
  void open(Descriptor socket) { socket_ = std::move(socket); }
  const Descriptor& socket() const { return socket_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  void close() { socket_.close(); }
  bool has_unsent() const { return !leaving_.empty(); }
  bool has_heard_farewell() const { return has_heard_farewell_; }

  void say(Bytes word);
  void say_farewell() { put({Kind::farewell, 0, 0, 0}, {}); }
  void send(const Sending& sending);
  void want(const Want& want);

  struct Outcome {
    bool is_over = false;
    int error = 0;
  };
  // As far as it goes. What was said goes to `words`.
  Outcome receive(std::vector<Bytes>& words);
  Outcome flush();
  // A message that is wanted has another length.
  struct OtherLength {
    std::uint64_t sent;
    std::uint64_t wanted;
  };
  const std::optional<OtherLength>& other_length() const { return other_length_; }
  // The memory of what is posted is not used any more: what is half sent is sent to its end from a copy.
  void forget();
  // For who takes it over: what is not gone yet.
  std::pair<Descriptor, Bytes> take();

 private:
  enum class Kind : std::uint32_t { word, whole, offer, grant, data, farewell };
  struct Frame {
    Kind kind;
    std::uint32_t number;  // of a message that is offered
    std::uint64_t mark;
    std::uint64_t bytes;
  };
  struct Leaving {
    Frame frame;
    Bytes own;
    const std::byte* from = nullptr;  // instead: the caller's
    Left* left = nullptr;
    std::size_t payload() const { return from != nullptr ? frame.bytes : own.size(); }
    const std::byte* data() const { return from != nullptr ? from : own.data(); }
  };
  // What nobody has wanted yet: here, or with who offers it.
  struct Early {
    Frame frame;
    Bytes here;
  };
  struct Numbered {
    std::uint32_t number;
    Sending sending;
  };
  struct Granted {
    std::uint32_t number;
    Want want;  // without memory: given up
  };

  void put(const Frame& frame, Bytes own) { leaving_.push_back({frame, std::move(own)}); }
  void begin_body();
  void end_body(std::vector<Bytes>& words);
  void arrived(Early early);
  void give(const Want& want, Early& early);
  void grant(std::uint32_t number);

  Descriptor socket_;
  Queue<Leaving> leaving_;
  std::size_t sent_ = 0;  // of the first one, with its frame
  Bytes frame_;           // as far as it has come
  Frame coming_{};
  bool in_body_ = false;
  Bytes body_;
  std::byte* into_ = nullptr;  // the caller's, instead
  std::size_t received_ = 0;   // of the body
  std::vector<Want> wants_;
  std::vector<Early> early_;
  std::vector<Numbered> offered_;
  std::vector<Granted> granted_;
  std::uint32_t last_number_ = 0;
  std::optional<OtherLength> other_length_;
  bool has_heard_farewell_ = false;
  bool is_wrong_ = false;  // what came is none of these
};

}  // namespace lockstep::tcp
