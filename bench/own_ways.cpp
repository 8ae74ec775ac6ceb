// SPDX-License-Identifier: Apache-2.0
#include "bench/own_ways.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "collectives/communicator/team.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

// `owner` is what must live as long as the candidate.
template <class Owner>
Candidate running(std::string_view name, Communicator& on, const detail::Ask& ask, Owner owner) {
  const std::string algorithm = on.team()->prepare(ask).call.plan->algorithm;
  return {.name = std::string(name), .once = [&on, ask, owner] { on.team()->run(ask); }, .algorithm = algorithm};
}

// The same members with other options.
MakeCandidate on_another(Communicator& world, const std::string& name, bool only_reductions,
                         const CommunicatorOptions& options) {
  const auto other = std::make_shared<Communicator>(world.team()->split(0, world.rank(), options));
  return [other, name, only_reductions](const Subject& subject, Buffers& buffers) -> std::optional<Candidate> {
    if (subject.collective == Collective::exchange || (only_reductions && !reduces(subject.collective)))
      return std::nullopt;
    return running(name, *other, buffers.ask(), other);
  };
}

// What lies from the first to the last byte of a buffer, in symmetric memory.
class Twin {
 public:
  Twin(Communicator& world, const std::byte* begin, std::size_t bytes)
      : begin_(begin), memory_(world.allocate<std::byte>(bytes)) {
    if (bytes > 0) std::memcpy(memory_.data(), begin, bytes);
  }
  void* at(const void* original) { return memory_.data() + (static_cast<const std::byte*>(original) - begin_); }

 private:
  const std::byte* begin_;
  Symmetric<std::byte> memory_;
};

std::optional<Candidate> on_symmetric(Communicator& world, const Subject& subject, Buffers& buffers) {
  const auto in = buffers.input_bytes();
  const auto out = buffers.output_bytes();
  if (subject.collective == Collective::exchange || subject.collective == Collective::barrier) return std::nullopt;
  detail::Ask ask = buffers.ask();
  // In place one of them lies in the other.
  const std::byte* const begin = subject.in_place ? std::min<const std::byte*>(in.data(), out.data()) : in.data();
  const std::byte* const end = subject.in_place
                                   ? std::max<const std::byte*>(in.data() + in.size(), out.data() + out.size())
                                   : in.data() + in.size();
  const auto first = std::make_shared<Twin>(world, begin, static_cast<std::size_t>(end - begin));
  const auto second = subject.in_place ? first : std::make_shared<Twin>(world, out.data(), out.size());
  if (ask.input.data != nullptr) ask.input.data = first->at(ask.input.data);
  if (ask.output.data != nullptr) ask.output.data = second->at(ask.output.data);
  return running("symmetric", world, ask, std::pair(first, second));
}

}  // namespace

MakeCandidate own_way(Communicator& world, std::string_view name) {
  if (name == "symmetric")
    return [&world](const Subject& subject, Buffers& buffers) { return on_symmetric(world, subject, buffers); };
  CommunicatorOptions options = world.team()->options();
  options.name = text(options.name, '/', name);
  if (name == "messages") options.node_memory = false;
  if (name == "unwatched") options.is_watched = false;
  if (name == "checked") options.checksums = true;
  if (name == "reproducible") options.order = Order::reproducible;
  if (name == "as_is") options.wire = WireFormat::as_is;
  return on_another(world, std::string(name), name == "reproducible" || name == "as_is", options);
}

}  // namespace lockstep::bench
