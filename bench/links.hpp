// SPDX-License-Identifier: Apache-2.0
// Finds slow links. It compares measured pairs with others of their kind. It judges members first, by the best that
// each reaches with any other. Then it judges pairs, by the best that their two members reach with others. So one slow
// cable of a node marks the node, and not half of all pairs. It works on values only.
#pragma once

#include <string>
#include <vector>

#include "bench/row.hpp"

namespace lockstep::bench {

// Holds the limits beyond which a link is slow.
struct LinkBounds {
  double bandwidth = 0.6;     // slow if below this part of the typical bandwidth
  double latency = 2;         // slow if above this multiple of the typical latency
  double latency_us = 2.5;    // and also above it by this many microseconds
  bool network_only = false;  // ranks share cores: within nodes a measurement shows only their turns
};

// Names a member that is slow with its best partner of a kind.
struct SlowMember {
  int member = 0;
  std::string kind;
  std::string why;  // the reason, a clause
};

// Holds the judgement of all links.
struct LinkVerdict {
  std::vector<SlowMember> members;
  std::size_t slow_pairs = 0;  // slow pairs that no slow member explains
  bool comparable = false;     // true if some kind has three members or more
};

// Judges the links, and sets their `slow` and `why`.
LinkVerdict judge_links(std::vector<PairLink>& links, const LinkBounds& bounds = {});

// Returns true if the link is slow because one of its two members is.
bool is_explained(const PairLink& link);

// Returns the hosts, in order of rank, without those of slow members. It also removes, one by one, the hosts with the
// most slow pairs.
std::vector<std::string> good_hosts(const std::vector<PairLink>& links, const LinkVerdict& verdict,
                                    const std::vector<std::string>& hosts);

// Returns matrices of latency and bandwidth, a summary for each kind, and the slow links by name.
std::string links_text(const std::vector<PairLink>& links, const LinkVerdict& verdict,
                       const std::vector<std::string>& hosts);

}  // namespace lockstep::bench
