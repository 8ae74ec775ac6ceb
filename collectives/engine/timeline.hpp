// SPDX-License-Identifier: Apache-2.0
// When each collective call of a communicator began and ended on this member, for `lockstep timeline`: kept while it
// lives, and left as a file when it ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/node/call.hpp"
#include "collectives/plan.hpp"

namespace lockstep::timeline {

// By the monotonic clock, which the processes of a host have in common.
std::int64_t now_ns();

// Of one communicator. Used by its engine alone.
class Track {
 public:
  Track(std::string folder, std::string_view name, int rank, int size, int order, std::uint64_t id)
      : folder_(std::move(folder)), name_(name), rank_(rank), size_(size), order_(order), id_(id) {}

  // The last ones are kept, if there are too many.
  void add(std::uint64_t number, std::int64_t begin_ns, std::int64_t end_ns, const Signature& signature,
           const Origin& origin);
  // Throws Error system.
  void write() const;
  std::string to_json(std::string_view host, int process, std::string_view program) const;

 private:
  static constexpr std::size_t most = 1U << 17U;
  struct CallSpan {
    std::uint64_t number;
    std::int64_t begin_ns;
    std::int64_t end_ns;
    Signature signature;
    Origin origin;
  };

  std::string folder_;
  std::string name_;
  int rank_;
  int size_;
  int order_;         // how many of its process were made before it
  std::uint64_t id_;  // that all members have
  std::vector<CallSpan> spans_;
  std::uint64_t added_ = 0;
};

// From now on, communicators of this process leave theirs in that folder. Empty: none has any. Throws Error system
// where nothing can be left in it.
void leave_in(std::string folder);
// Nothing, where none is wanted.
std::unique_ptr<Track> take_track(std::string_view name, int rank, int size, std::uint64_t id);

}  // namespace lockstep::timeline
