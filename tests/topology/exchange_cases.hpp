// SPDX-License-Identifier: Apache-2.0
// What every kind of exchange has to do, by each of its members.
#pragma once

#include <gtest/gtest.h>

#include "topology/base/bytes.hpp"
#include "topology/base/text.hpp"
#include "topology/exchange.hpp"

namespace lockstep::test {

inline void expect_gathers(Exchange& exchange, int rounds) {
  const auto block = [](int rank) {
    return Bytes(static_cast<std::size_t>(rank * 7 % 5), static_cast<std::byte>(rank));
  };
  for (int round = 0; round < rounds; ++round) {
    const auto all = exchange.all_gather("blocks", block(exchange.rank() + round));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(exchange.size()));
    for (int rank = 0; rank < exchange.size(); ++rank)
      ASSERT_EQ(all[static_cast<std::size_t>(rank)], block(rank + round));
  }
}

inline void expect_broadcasts(Exchange& exchange) {
  for (int root = 0; root < exchange.size(); ++root) {
    const Bytes got = exchange.broadcast("word", to_bytes(text("from ", exchange.rank())), root);
    ASSERT_EQ(to_string(got), text("from ", root));
  }
}

// By colour, of which one in three has none, and key, again and again.
inline void expect_splits(Exchange& exchange) {
  for (const bool has_colours : {true, false, true}) {
    const int colour = !has_colours ? 0 : exchange.rank() % 3 == 2 ? -1 : exchange.rank() % 3;
    const auto part = exchange.split(colour, -exchange.rank());
    ASSERT_EQ(part == nullptr, colour < 0);
    if (!part) continue;
    int last = exchange.size();
    for (const Bytes& bytes : part->all_gather("ranks", Writer().put(exchange.rank()).take())) {
      const int rank = Reader(bytes).get<int>();
      ASSERT_TRUE(!has_colours || rank % 3 == colour);
      ASSERT_LT(rank, last);
      last = rank;
    }
    const auto copy = part->duplicate();
    ASSERT_EQ(copy->rank(), part->rank());
    copy->barrier("copy");
  }
  exchange.barrier("end");
}

}  // namespace lockstep::test
