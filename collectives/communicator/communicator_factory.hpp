// SPDX-License-Identifier: Apache-2.0
// Makes new objects together with the other members: other communicators, and memory for collectives.
//
// A CommunicatorCore owns it. New communicators are made over the exchange of the old one, and own a part of it that
// they split off.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator/communicator_member.hpp"

namespace lockstep::detail {

class CommunicatorCore;

// Makes objects of the members of one communicator. All members make the same calls in the same order.
class CommunicatorFactory {
 public:
  // `members` must outlive the factory. `maker` makes the transports of new communicators.
  CommunicatorFactory(CommunicatorMember& member, TransportMaker maker) : member_(member), maker_(std::move(maker)) {}

  // Makes a communicator of the members with the same colour, ordered by key, then by rank. All members call it.
  // Returns null if this member's colour is negative.
  std::shared_ptr<CommunicatorCore> split(int colour, int key, CommunicatorOptions options,
                                          Origin origin = Origin::here());
  // Does the same inside another call of the communicator.
  std::shared_ptr<CommunicatorCore> split_inside(int colour, int key, CommunicatorOptions options);
  // Makes a communicator of the members that survive a failure; they all call it, once. Throws Error usage if the
  // transport cannot continue without a member.
  std::shared_ptr<CommunicatorCore> shrink(CommunicatorOptions options);
  // Allocates symmetric memory of count * element_bytes bytes; all members call it, and each owns its part.
  node::SymmetricPart allocate(std::size_t count, std::size_t element_bytes, Origin origin);

 private:
  // Returns the memory that all members share; null if they are on several nodes, or share none.
  node::Room* room_of_all() const;
  std::shared_ptr<CommunicatorCore> smaller(const std::vector<int>& members, std::uint64_t number,
                                            const CommunicatorOptions& options,
                                            const std::function<std::optional<std::string>()>& futility_check);

  CommunicatorMember& member_;
  TransportMaker maker_;
  bool has_shrunk_ = false;
};

}  // namespace lockstep::detail
