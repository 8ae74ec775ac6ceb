// SPDX-License-Identifier: Apache-2.0
// Tests the rules that all transports share.
#include "collectives/engine/round_rules.hpp"

#include <gtest/gtest.h>

#include <array>

#include "collectives/engine/local_transport.hpp"
#include "collectives/engine/transport.hpp"
#include "topology/local_exchange.hpp"

namespace lockstep {
namespace {

TEST(RoundRules, NameTheLaneThatIsBusy) {
  const Error error = round_rules::lane_is_busy(3);
  EXPECT_EQ(error.code(), Code::internal);
  EXPECT_EQ(error.detail(), "lane 3 has a round under way");
}

TEST(RoundRules, NameBothLengthsOfAMessage) {
  const Error error = round_rules::mismatch(round_rules::length_mismatch(1, 8, 0, 4));
  EXPECT_EQ(error.code(), Code::mismatch);
  EXPECT_EQ(error.detail(),
            "rank 1 sent 8 bytes to rank 0, which receives 4 -> let both sides of a message have the same count and "
            "type");
}

TEST(RoundRules, RefuseRoundsAfterATransportIsGivenUp) {
  run_local(1, [](Exchange& exchange) {
    const auto transport = local_transport(exchange);
    transport->abandon();
    try {
      transport->post({}, {}, {});
      ADD_FAILURE() << "the round was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.detail(), round_rules::transport_is_given_up().detail());
    }
  });
}

TEST(RoundRules, NumberTheMembersOfALaterTransport) {
  constexpr std::array members = {4, 2, 7};
  EXPECT_EQ(round_rules::rank_among(members, 4), 0);
  EXPECT_EQ(round_rules::rank_among(members, 7), 2);
}

TEST(RoundRules, SplitASleepIntoSecondsAndNanoseconds) {
  const timespec time = round_rules::to_timespec(2'500'000'001);
  EXPECT_EQ(time.tv_sec, 2);
  EXPECT_EQ(time.tv_nsec, 500'000'001);
}

}  // namespace
}  // namespace lockstep
