// SPDX-License-Identifier: Apache-2.0
// Forwards the public functions to the core, and chooses the options of new communicators.
#include "collectives/communicator/communicator.hpp"

#include <utility>

#include "collectives/communicator/communicator_core.hpp"
#include "collectives/planner.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

namespace detail {

node::SymmetricPart allocate_symmetric(CommunicatorCore* core, std::size_t count, std::size_t element_bytes,
                                       Origin origin) {
  if (!core)
    throw Error(Code::usage, "resize() of symmetric memory that no communicator allocated", "take it from allocate()");
  return core->factory().allocate(count, element_bytes, origin);
}

}  // namespace detail

int StreamCollectives::rank() const { return core_->member().rank(); }
int StreamCollectives::size() const { return core_->member().size(); }

detail::CallRequest StreamCollectives::ordered(detail::CallRequest request) const {
  request.stream = stream_;
  return request;
}

void StreamCollectives::run(const detail::CallRequest& request) { core_->run(ordered(request)); }
Request StreamCollectives::begin(const detail::CallRequest& request) { return {core_, core_->start(ordered(request))}; }
PreparedCall StreamCollectives::prepare(const detail::CallRequest& request) {
  return {core_, core_->binder().prepare(ordered(request))};
}

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

int Communicator::rank() const { return checked_core().member().rank(); }
int Communicator::size() const { return checked_core().member().size(); }
const std::string& Communicator::name() const { return checked_core().member().options().name; }
Order Communicator::order() const { return checked_core().member().options().order; }
const Topology& Communicator::topology() const { return *checked_core().member().topology(); }
const std::vector<int>& Communicator::ranks() const { return checked_core().member().planner().group().ranks(); }
const CommunicatorOptions& Communicator::options() const { return checked_core().member().options(); }
void Communicator::set_timeout(TimeSpan timeout) { checked_core().set_timeout(timeout); }
bool Communicator::failed() const {
  return core_ && (core_->member().is_closed() || core_->member().engine().failed());
}

void Communicator::run(const detail::CallRequest& request) { checked_core().run(request); }
Request Communicator::begin(const detail::CallRequest& request) { return {core_, checked_core().start(request)}; }
PreparedCall Communicator::prepare(const detail::CallRequest& request) {
  return {core_, checked_core().binder().prepare(request)};
}

Request Communicator::messages(std::initializer_list<PeerMessage> sends, std::initializer_list<PeerMessage> receives,
                               Origin origin) {
  return {core_, checked_core().exchange(sends, receives, origin)};
}

void Communicator::run_messages(std::initializer_list<PeerMessage> sends, std::initializer_list<PeerMessage> receives,
                                Origin origin) {
  checked_core().run_exchange(sends, receives, origin);
}

void Communicator::refuse_moved() {
  throw Error(Code::usage, "a communicator was used after it had been moved away", "use the one that it was moved to");
}

std::optional<Communicator> Communicator::split(int colour, int key, std::string name, Origin origin) {
  CommunicatorOptions options = checked_core().member().options();
  options.name = name.empty() ? text(options.name, '/', colour) : std::move(name);
  options.member = CommunicatorOptions().member;
  auto core = checked_core().factory().split(colour, key, std::move(options), origin);
  if (!core) return std::nullopt;
  return Communicator(std::move(core));
}

Communicator Communicator::shrink(std::string name) {
  CommunicatorOptions options = checked_core().member().options();
  if (!name.empty()) options.name = std::move(name);
  options.member = CommunicatorOptions().member;
  return Communicator(checked_core().factory().shrink(std::move(options)));
}

Communicator Communicator::reproducible(std::string name, Origin origin) {
  CommunicatorOptions options = checked_core().member().options();
  options.name = name.empty() ? text(options.name, "/reproducible") : std::move(name);
  options.order = Order::reproducible;
  return duplicate(std::move(options), origin);
}

Communicator Communicator::duplicate(CommunicatorOptions options, Origin origin) {
  return Communicator(checked_core().factory().split(0, rank(), std::move(options), origin));
}

}  // namespace lockstep
