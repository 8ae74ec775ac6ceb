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

// Returns "ranks 3-5 (processes 4711,4712 on node03 and 88 on node04)"; hosts alone for more processes than `most`.
// Names no place if a process is unknown.
std::string member_names(const IndexSet& ranks, const std::vector<MemberPlace>& places, std::size_t most = 8);

// Looks up the places of a communicator's members. A default object knows none.
class Members {
 public:
  Members() = default;
  // `ranks` holds the topology's rank of each member.
  Members(std::shared_ptr<const Topology> topology, std::vector<int> ranks)
      : topology_(std::move(topology)), ranks_(std::move(ranks)) {}

  bool are_known() const { return topology_ != nullptr; }
  // Returns a place that refers to the topology's own text. It is empty for an unknown rank.
  MemberPlace place_of(int rank) const;
  // Returns "rank 3 (process 4711 on node03)", or "rank 3" if the place is unknown.
  std::string name_of(int rank) const { return name_of(IndexSet{rank}); }
  std::string name_of(const IndexSet& ranks) const;

 private:
  std::shared_ptr<const Topology> topology_;
  std::vector<int> ranks_;
};

}  // namespace lockstep
