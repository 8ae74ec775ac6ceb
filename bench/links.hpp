// SPDX-License-Identifier: Apache-2.0
// Which links are slow? Measured pairs are judged against others of their kind: first members, by the best that each
// reaches with anybody, then pairs, by what their two members reach with others. So one slow cable of a node marks the
// node and not half of all pairs. Values only.
#pragma once

#include <string>
#include <vector>

#include "bench/row.hpp"

namespace lockstep::bench {

struct LinkBounds {
  double bandwidth = 0.6;     // slow below this part of what is typical
  double latency = 2;         // slow above so many times what is typical,
  double latency_us = 2.5;    // and so much beyond it
  bool network_only = false;  // ranks share cores: within nodes it is their turns that are measured
};

struct SlowMember {
  int member = 0;
  std::string kind;
  std::string why;  // a clause
};

struct LinkVerdict {
  std::vector<SlowMember> members;
  std::size_t slow_pairs = 0;  // that no slow member explains
  bool comparable = false;     // some kind has three members or more
};

// Sets `slow` and `why` of the links.
LinkVerdict judge_links(std::vector<PairLink>& links, const LinkBounds& bounds = {});

// Slow because one of its two members is.
bool is_explained(const PairLink& link);

// Hosts that are left when slow members' and, one by one, those with the most slow pairs are taken away; in order of
// rank.
std::vector<std::string> good_hosts(const std::vector<PairLink>& links, const LinkVerdict& verdict,
                                    const std::vector<std::string>& hosts);

// Matrices of latency and bandwidth, a summary for each kind, and the slow ones by name.
std::string links_text(const std::vector<PairLink>& links, const LinkVerdict& verdict,
                       const std::vector<std::string>& hosts);

}  // namespace lockstep::bench
