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

// Where a member runs. Process 0: nobody knows, as in a topology that was described and not found.
struct MemberPlace {
  std::string_view host;
  int process = 0;
};

// Returns "ranks 3-5 (processes 4711,4712 on node03 and 88 on node04)"; hosts alone for more processes than `most`.
std::string member_names(const IndexSet& ranks, const std::vector<MemberPlace>& places, std::size_t most = 8);

class Members {
 public:
  Members() = default;
  // `ranks`: the topology's rank of each member.
  Members(std::shared_ptr<const Topology> topology, std::vector<int> ranks)
      : topology_(std::move(topology)), ranks_(std::move(ranks)) {}

  bool are_known() const { return topology_ != nullptr; }
  // Refers to the topology's own text.
  MemberPlace place_of(int rank) const;
  // "rank 3 (process 4711 on node03)"; "rank 3" if nobody knows.
  std::string name_of(int rank) const { return name_of(IndexSet{rank}); }
  std::string name_of(const IndexSet& ranks) const;

 private:
  std::shared_ptr<const Topology> topology_;
  std::vector<int> ranks_;
};

}  // namespace lockstep
