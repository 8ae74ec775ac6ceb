// SPDX-License-Identifier: Apache-2.0
// Records when each collective call of a communicator began and ended on this member, for `lockstep timeline`. The
// record is kept in memory, and written to a file when the communicator ends.
//
// A StatusPublisher owns the track. One thread at a time writes it, inside the engine's guard.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/node/call.hpp"
#include "collectives/plan.hpp"

namespace lockstep::timeline {

// Returns the monotonic time in nanoseconds. All processes of a host share this clock.
std::int64_t now_ns();

// Records the calls of one communicator. Only its engine uses it.
class Track {
 public:
  // The file goes to `folder`. `order` is the number of tracks that the process took before; it makes the name unique.
  Track(std::string folder, std::string_view name, int rank, int size, int order, std::uint64_t id)
      : folder_(std::move(folder)), name_(name), rank_(rank), size_(size), order_(order), id_(id) {}

  // Records one call. Beyond 131,072 calls the oldest one is overwritten.
  void add(std::uint64_t number, std::int64_t begin_ns, std::int64_t end_ns, const Signature& signature,
           const Origin& origin);
  // Writes the record to a file in the folder. Throws Error system.
  void write() const;
  // Returns the record as JSON.
  std::string to_json(std::string_view host, int process, std::string_view program) const;

 private:
  // Bounds the number of calls, a guess.
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
  // Counts the tracks that the process took before this one.
  int order_;
  // Identifies the communicator, the same on all members.
  std::uint64_t id_;
  std::vector<CallSpan> spans_;
  std::uint64_t added_ = 0;
};

// Sets the folder for the timelines of communicators made from now on. An empty name turns them off. Throws Error
// system if the folder cannot be written to.
void set_folder(std::string folder);
// Returns a record for a new communicator; null if no folder is set.
std::unique_ptr<Track> take_track(std::string_view name, int rank, int size, std::uint64_t id);

}  // namespace lockstep::timeline
