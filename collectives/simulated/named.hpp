// SPDX-License-Identifier: Apache-2.0
// Tells if an error names a rank. Simulations require this of every error about a failed member.
#pragma once

#include <string>

#include "topology/base/index_set.hpp"

namespace lockstep::simulated {

// Returns true if the text names the rank, as in "rank 3" or "ranks 1-3,5".
inline bool names(const std::string& all, int rank) {
  for (const std::string word : {"rank ", "ranks "}) {
    for (std::size_t at = all.find(word); at != std::string::npos; at = all.find(word, at + 1)) {
      const std::size_t begin = at + word.size();
      const std::size_t end = all.find_first_not_of("0123456789-,", begin);
      std::string set = all.substr(begin, end - begin);
      while (!set.empty() && set.back() == ',') set.pop_back();
      const auto members = IndexSet::parse(set);
      if (members && members->contains(rank)) return true;
    }
  }
  return false;
}

}  // namespace lockstep::simulated
