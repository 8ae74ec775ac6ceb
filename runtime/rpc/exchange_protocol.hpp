// SPDX-License-Identifier: Apache-2.0
// What members and the exchange server of an exchange say to each other.
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

using Block = std::vector<std::uint8_t>;
// The room, the members' numbers in the whole family, which of them this is, what is done, and its bytes.
using GatherRequest = std::tuple<std::string, std::vector<int>, int, std::string, Block>;
// The family, which member this is, how it is called, its process, and of how many lost ones it knows.
using PresenceRequest = std::tuple<std::string, int, std::string, Block, int>;
// Whether all is over here, and all members of the family that went without a farewell, with their labels, and how
// their processes ended, if that is known.
using LossReply = std::pair<bool, std::vector<std::tuple<int, std::string, std::string>>>;
// The number of an error and its words; or 0, and everybody's bytes.
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
