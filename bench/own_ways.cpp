// SPDX-License-Identifier: Apache-2.0
// Makes a communicator with other options, or symmetric buffers, for each variant.
#include "bench/own_ways.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <tuple>

#include "collectives/communicator/communicator_core.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

// Returns a candidate that keeps `owner` alive.
template <class Owner>
BenchCandidate running(std::string_view name, Communicator& on, const detail::CallRequest& request, Owner owner) {
  const std::string algorithm = on.core()->binder().prepare(request).call.plan->algorithm;
  return {
      .name = std::string(name), .once = [&on, request, owner] { on.core()->run(request); }, .algorithm = algorithm};
}

// Makes a communicator of the same members with other options.
std::shared_ptr<Communicator> another(Communicator& world, const CommunicatorOptions& options) {
  return std::make_shared<Communicator>(world.core()->factory().split(0, world.rank(), options));
}

// Makes candidates on such a communicator.
CandidateMaker on_another(Communicator& world, const std::string& name, bool only_reductions,
                          const CommunicatorOptions& options) {
  const std::shared_ptr<Communicator> other = another(world, options);
  return [other, name, only_reductions](const Subject& subject, Buffers& buffers) -> std::optional<BenchCandidate> {
    if (subject.collective == Collective::sendrecv || (only_reductions && !reduces(subject.collective)))
      return std::nullopt;
    return running(name, *other, buffers.request(), other);
  };
}

// Copies a buffer, from its first to its last byte, to symmetric memory.
class SymmetricCopy {
 public:
  SymmetricCopy(Communicator& world, const std::byte* begin, std::size_t bytes)
      : begin_(begin), memory_(world.allocate<std::byte>(bytes)) {
    if (bytes > 0) std::memcpy(memory_.data(), begin, bytes);
  }
  void* at(const void* original) { return memory_.data() + (static_cast<const std::byte*>(original) - begin_); }

 private:
  const std::byte* begin_;
  SymmetricBuffer<std::byte> memory_;
};

std::optional<BenchCandidate> on_symmetric(const std::shared_ptr<Communicator>& world, const Subject& subject,
                                           Buffers& buffers) {
  const auto in = buffers.input_bytes();
  const auto out = buffers.output_bytes();
  if (subject.collective == Collective::sendrecv || subject.collective == Collective::barrier) return std::nullopt;
  detail::CallRequest request = buffers.request();
  // In place one of the two lies within the other.
  const std::byte* const begin = subject.in_place ? std::min<const std::byte*>(in.data(), out.data()) : in.data();
  const std::byte* const end = subject.in_place
                                   ? std::max<const std::byte*>(in.data() + in.size(), out.data() + out.size())
                                   : in.data() + in.size();
  const auto first = std::make_shared<SymmetricCopy>(*world, begin, static_cast<std::size_t>(end - begin));
  const auto second = subject.in_place ? first : std::make_shared<SymmetricCopy>(*world, out.data(), out.size());
  if (request.input.data != nullptr) request.input.data = first->at(request.input.data);
  if (request.output.data != nullptr) request.output.data = second->at(request.output.data);
  return running("symmetric", *world, request, std::tuple(world, first, second));
}

}  // namespace

CandidateMaker own_way(Communicator& world, std::string_view name) {
  CommunicatorOptions options = world.options();
  options.name = text(options.name, '/', name);
  // Calls with ordinary buffers would make a communicator ask for symmetric memory less often.
  if (name == "symmetric")
    return [other = another(world, options)](const Subject& subject, Buffers& buffers) {
      return on_symmetric(other, subject, buffers);
    };
  if (name == "messages") options.node_memory = false;
  if (name == "checked") options.checksums = true;
  if (name == "reproducible") options.order = Order::reproducible;
  if (name == "as_is") options.wire = WireFormat::as_is;
  return on_another(world, std::string(name), name == "reproducible" || name == "as_is", options);
}

}  // namespace lockstep::bench
