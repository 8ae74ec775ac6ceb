// SPDX-License-Identifier: Apache-2.0
// Names the members of a communicator by host and process, for errors and for `lockstep stat`.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/base/index_set.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// Tells where a member runs. Process 0 is unknown, as in a topology that was described and not found.
struct MemberPlace {
  std::string_view host;
  int process = 0;
};

constexpr std::size_t default_processes = 8;  // Limits the processes named in one sentence.

// Returns "ranks 3-5 (processes 4711,4712 on node03 and 88 on node04)"; hosts alone for more processes than `most`.
// Names no place if a process is unknown. `noun` names one member.
std::string member_names(const IndexSet& ranks, const std::vector<MemberPlace>& places,
                         std::size_t most = default_processes, std::string_view noun = "rank");

// Looks up the places of a communicator's members. A default object knows none.
class Members {
 public:
  Members() = default;
  // `ranks` holds the topology's rank of each member, and `noun` names one.
  Members(std::shared_ptr<const Topology> topology, std::vector<int> ranks, std::string noun = "rank")
      : topology_(std::move(topology)), ranks_(std::move(ranks)), noun_(std::move(noun)) {}

  bool are_known() const { return topology_ != nullptr; }
  // Returns a place that refers to the topology's own text. It is empty for an unknown rank.
  MemberPlace place_of(int rank) const;
  // Returns "rank 3 (process 4711 on node03)", or "rank 3" if the place is unknown.
  std::string name_of(int rank) const { return name_of(IndexSet{rank}); }
  std::string name_of(const IndexSet& ranks) const;
  // Returns "rank 3" or "ranks 3-5", without places.
  std::string number_of(const IndexSet& ranks) const;
  std::string number_of(int rank) const { return number_of(IndexSet{rank}); }

 private:
  std::shared_ptr<const Topology> topology_;
  std::vector<int> ranks_;
  std::string noun_ = "rank";
};

}  // namespace lockstep
