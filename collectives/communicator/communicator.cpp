// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/communicator.hpp"

#include "topology/base/text.hpp"

namespace lockstep {

Communicator::Communicator(Exchange& exchange, std::shared_ptr<const Topology> topology, std::vector<int> ranks,
                           TransportMaker maker, CommunicatorOptions options)
    : core_(std::make_shared<detail::CommunicatorCore>(exchange.duplicate(), std::move(topology), std::move(ranks),
                                                       std::move(maker), std::move(options))) {}

Communicator::~Communicator() {
  if (core_) core_->close();
}

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this == &other) return *this;
  if (core_) core_->close();
  core_ = std::move(other.core_);
  return *this;
}

void Communicator::refuse_moved() {
  throw Error(Code::usage, "a communicator was used after it had been moved away", "use the one that it was moved to");
}

std::optional<Communicator> Communicator::split(int colour, int key, std::string name, Origin origin) {
  CommunicatorOptions options = here().options();
  options.name = name.empty() ? text(options.name, '/', colour) : std::move(name);
  auto core = here().split(colour, key, std::move(options), origin);
  if (!core) return std::nullopt;
  return Communicator(std::move(core));
}

Communicator Communicator::shrink(std::string name) {
  CommunicatorOptions options = here().options();
  if (!name.empty()) options.name = std::move(name);
  return Communicator(here().shrink(std::move(options)));
}

Communicator Communicator::reproducible(std::string name, Origin origin) {
  CommunicatorOptions options = here().options();
  options.name = name.empty() ? text(options.name, "/reproducible") : std::move(name);
  options.order = Order::reproducible;
  return duplicate(std::move(options), origin);
}

Communicator Communicator::duplicate(CommunicatorOptions options, Origin origin) {
  return Communicator(here().split(0, rank(), std::move(options), origin));
}

}  // namespace lockstep
