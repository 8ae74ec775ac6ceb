// SPDX-License-Identifier: Apache-2.0
// Chooses the backend of a strategy's reductions.
#include "runtime/communication.hpp"

#include <algorithm>

#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

std::string_view to_string(CommunicationImplementation implementation) {
  switch (implementation) {
    case CommunicationImplementation::automatic:
      return "AUTO";
    case CommunicationImplementation::ring:
      return "RING";
    case CommunicationImplementation::nccl:
      return "NCCL";
  }
  return "unknown";
}

std::string_view to_string(Channel channel) {
  switch (channel) {
    case Channel::training:
      return "training";
    case Channel::input:
      return "input";
    case Channel::checkpoints:
      return "checkpoints";
    case Channel::health:
      return "health";
  }
  return "unknown";
}

CommunicationOptions CommunicationOptions::merged(const CommunicationOptions& others) const {
  CommunicationOptions all = *this;
  if (others.bytes_per_pack != 0) all.bytes_per_pack = others.bytes_per_pack;
  if (others.timeout != Duration{}) all.timeout = others.timeout;
  if (!others.tag.empty()) all.tag = others.tag;
  if (others.implementation != CommunicationImplementation::automatic) all.implementation = others.implementation;
  return all;
}

const CommunicationOptions& CommunicationOptions::checked() const {
  if (bytes_per_pack < 0)
    throw Error(Code::usage, text("communication options with bytes_per_pack ", bytes_per_pack),
                "give the bytes of a pack, or 0 for one pack");
  if (timeout < Duration{})
    throw Error(Code::usage,
                text("communication options with a timeout of ", std::chrono::duration<double>(timeout).count(), " s"),
                "give a positive time, or zero for LOCKSTEP_TIMEOUT");
  return *this;
}

CommunicationChoice choose_communication(CommunicationImplementation wished, const std::vector<std::string>& devices,
                                         bool has_nccl, Order order) {
  const auto gpus = static_cast<std::size_t>(std::ranges::count(devices, "GPU"));
  if (wished == CommunicationImplementation::ring) {
    if (order == Order::reproducible)
      return {CommunicationBackend::own,
              "a ring adds in an order of its own, which the order `reproducible` is not; `fast` lets it", false};
    return {CommunicationBackend::ring, "asked for"};
  }
  if (gpus > 0 && gpus < devices.size())
    return {CommunicationBackend::one_device,
            text("replicas are on ", gpus, " GPUs and on ", devices.size() - gpus,
                 " processors, so values go to the first replica and back"),
            wished == CommunicationImplementation::automatic};
  if (gpus > 0) {
    if (has_nccl) return {CommunicationBackend::nccl, "all replicas are on GPUs"};
    return {CommunicationBackend::own, "all replicas are on GPUs, but there is no NCCL to use",
            wished != CommunicationImplementation::nccl};
  }
  if (wished == CommunicationImplementation::nccl)
    return {CommunicationBackend::own, "Enabled NCCL communication but no GPUs detected", false};
  return {CommunicationBackend::own, "no replica is on a GPU; algorithms by size, topology and measurements"};
}

std::vector<std::pair<std::size_t, std::size_t>> plan_packs_of_bytes(const std::vector<std::size_t>& bytes,
                                                                     std::int64_t bytes_per_pack) {
  std::vector<std::pair<std::size_t, std::size_t>> packs;
  std::size_t in_pack = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (packs.empty() || (bytes_per_pack > 0 && in_pack > static_cast<std::size_t>(bytes_per_pack))) {
      packs.emplace_back(i, i);
      in_pack = 0;
    }
    packs.back().second = i + 1;
    in_pack += bytes[i];
  }
  return packs;
}

}  // namespace lockstep
