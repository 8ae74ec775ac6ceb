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

int StreamCollectives::rank() const { return core_->members().rank(); }
int StreamCollectives::size() const { return core_->members().size(); }

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

int Communicator::rank() const { return here().members().rank(); }
int Communicator::size() const { return here().members().size(); }
const std::string& Communicator::name() const { return here().members().options().name; }
Order Communicator::order() const { return here().members().options().order; }
const Topology& Communicator::topology() const { return *here().members().topology(); }
const std::vector<int>& Communicator::ranks() const { return here().members().planner().group().ranks(); }
const CommunicatorOptions& Communicator::options() const { return here().members().options(); }
void Communicator::set_timeout(Duration timeout) { here().set_timeout(timeout); }
bool Communicator::failed() const {
  return core_ && (core_->members().is_closed() || core_->members().engine().failed());
}

void Communicator::run(const detail::CallRequest& request) { here().run(request); }
Request Communicator::begin(const detail::CallRequest& request) { return {core_, here().start(request)}; }
PreparedCall Communicator::prepare(const detail::CallRequest& request) {
  return {core_, here().binder().prepare(request)};
}

Request Communicator::messages(std::initializer_list<PeerMessage> sends, std::initializer_list<PeerMessage> receives,
                               Origin origin) {
  return {core_, here().exchange(sends, receives, origin)};
}

std::shared_ptr<std::byte> Communicator::gpu_memory(std::size_t count, std::size_t element_bytes, int device,
                                                    Origin origin) const {
  return here().allocate_on_gpu(count, element_bytes, device, origin);
}

void Communicator::refuse_moved() {
  throw Error(Code::usage, "a communicator was used after it had been moved away", "use the one that it was moved to");
}

std::optional<Communicator> Communicator::split(int colour, int key, std::string name, Origin origin) {
  CommunicatorOptions options = here().members().options();
  options.name = name.empty() ? text(options.name, '/', colour) : std::move(name);
  auto core = here().factory().split(colour, key, std::move(options), origin);
  if (!core) return std::nullopt;
  return Communicator(std::move(core));
}

Communicator Communicator::shrink(std::string name) {
  CommunicatorOptions options = here().members().options();
  if (!name.empty()) options.name = std::move(name);
  return Communicator(here().factory().shrink(std::move(options)));
}

Communicator Communicator::reproducible(std::string name, Origin origin) {
  CommunicatorOptions options = here().members().options();
  options.name = name.empty() ? text(options.name, "/reproducible") : std::move(name);
  options.order = Order::reproducible;
  return duplicate(std::move(options), origin);
}

Communicator Communicator::duplicate(CommunicatorOptions options, Origin origin) {
  return Communicator(here().factory().split(0, rank(), std::move(options), origin));
}

}  // namespace lockstep
