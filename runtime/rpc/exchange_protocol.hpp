// SPDX-License-Identifier: Apache-2.0
// Defines the messages between the members of an exchange and its server.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "topology/base/bytes.hpp"

namespace lockstep::exchange_protocol {

inline constexpr const char* gather_name = "lockstep.gather";
inline constexpr const char* fail_name = "lockstep.fail";
inline constexpr const char* missing_name = "lockstep.missing";
inline constexpr const char* give_up_name = "lockstep.give_up";
inline constexpr const char* stay_name = "lockstep.stay";
inline constexpr const char* leave_name = "lockstep.leave";

// Is the type of bytes in remote calls.
using Block = std::vector<std::uint8_t>;
// Holds the name of the round, the members' numbers in the family, this member's rank, the name of the step, and its
// bytes.
using GatherRequest = std::tuple<std::string, std::vector<int>, int, std::string, Block>;
// Holds the family, the member's number, its label, its process, and the number of losses that it knows.
using PresenceRequest = std::tuple<std::string, int, std::string, Block, int>;
// Tells if the exchange is over for this member. It lists all members that left without a farewell: number, label, and
// how the process ended, if known.
using LossReply = std::pair<bool, std::vector<std::tuple<int, std::string, std::string>>>;
// Holds an error's number and text; or 0, and the bytes of all members.
using GatherReply = std::tuple<int, std::string, std::vector<Block>>;

inline Block block_of(std::span<const std::byte> bytes) {
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {begin, begin + bytes.size()};
}
inline Bytes bytes_of(const Block& block) {
  const auto* const begin = reinterpret_cast<const std::byte*>(block.data());
  return {begin, begin + block.size()};
}

}  // namespace lockstep::exchange_protocol
