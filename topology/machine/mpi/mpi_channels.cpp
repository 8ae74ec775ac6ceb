// SPDX-License-Identifier: Apache-2.0
// Channels for new exchanges: which are free, and who chooses.
#include <algorithm>

#include "topology/base/error.hpp"
#include "topology/machine/mpi/mpi_exchange.hpp"

namespace lockstep {

std::uint64_t MpiExchange::seed() const {
  const Address& first = members_.front();
  return (sequence_ >> 32U << 32U) + (static_cast<std::uint64_t>(first.process) << 12U) +
         static_cast<std::uint64_t>(first.thread) * 0x9e3779b97f4a7c15U;
}

// The first thread of a process chooses for all of them.
std::unique_lock<std::mutex> MpiExchange::try_choosing() {
  const auto first = std::ranges::find(members_, me().process, &Address::process);
  if (first - members_.begin() != rank()) return {};
  return std::unique_lock(wire_->choosing(), std::try_to_lock);
}

Bytes MpiExchange::channels_in_use() {
  IndexSet used;
  for (const int channel : wire_->channels()) used.insert(channel);
  return Writer().put(used).put(wire_->generation()).take();
}

// The lowest channels that no member has in use. Their generation is new to all of them, so that a message left over
// from an exchange that had a channel before is recognised by its sequence.
Lane MpiExchange::free_lane(const std::vector<Bytes>& used, int threads) const {
  IndexSet all;
  Lane lane{.threads = threads};
  for (const Bytes& bytes : used) {
    Reader reader(bytes);
    all.insert(reader.get_set());
    lane.generation = std::max(lane.generation, reader.get<std::uint32_t>() + 1);
  }
  const int number = lane.channels();
  for (int free = 0; free < number;) {
    const bool is_free = !all.contains(lane.channel + free);
    lane.channel += is_free ? 0 : free + 1;
    free = is_free ? free + 1 : 0;
  }
  if (lane.channel + number - 1 > wire_->largest_channel()) {
    throw Error(Code::mpi,
                text("the channels of MPI's tags are used up: ", number, " more of ", wire_->largest_channel() + 1),
                "destroy communicators that are no longer used, or have fewer members in a process");
  }
  wire_->set_generation(lane.generation);
  return lane;
}

// Threads keep their numbers: members of other splits, which are other threads, may have the same channels.
std::unique_ptr<Exchange> MpiExchange::make_split(const std::vector<int>& ranks, const std::vector<Bytes>& used) {
  std::vector<Address> members;
  members.reserve(ranks.size());
  for (const int rank : ranks) members.push_back(members_.at(static_cast<std::size_t>(rank)));
  const auto rank = static_cast<int>(std::ranges::find(members, me()) - members.begin());
  return std::make_unique<MpiExchange>(wire_, free_lane(used, lane_.threads), std::move(members), rank, patience(),
                                       log());
}

MpiExchange::OfThreads MpiExchange::of_threads(int mine, bool is_able) {
  const auto begin = std::chrono::steady_clock::now();
  for (unsigned attempt = 0;; ++attempt) {
    auto choosing = try_choosing();
    const Bytes told = Writer()
                           .put(mine)
                           .put(is_able)
                           .put(choosing.owns_lock())
                           .put(std::span<const std::byte>(channels_in_use()))
                           .take();
    OfThreads made;
    std::vector<Bytes> used;
    std::vector<Address> members;
    bool all_choose = true;
    for (const Bytes& each : all_gather("threads of each process", told)) {
      Reader reader(each);
      const int threads = reader.get<int>();
      for (int thread = 0; thread < threads; ++thread)
        members.push_back({process_of(static_cast<int>(made.numbers.size())), thread});
      made.numbers.push_back(threads);
      made.all_able = reader.get<bool>() && made.all_able;
      all_choose = reader.get<bool>() && all_choose;
      used.push_back(reader.get_bytes());
    }
    if (!all_choose) {
      choosing = {};
      wait_to_choose(attempt, begin);
      continue;
    }
    const Lane lane = free_lane(used, *std::ranges::max_element(made.numbers));
    const auto first = static_cast<int>(std::ranges::find(members, me().process, &Address::process) - members.begin());
    for (int thread = 0; thread < mine; ++thread) {
      const int rank = first + thread;
      made.exchanges.push_back(std::make_unique<MpiExchange>(
          wire_, lane, members, rank, patience(), log().speaking_as(text("member ", rank, " of ", members.size()))));
    }
    return made;
  }
}

}  // namespace lockstep
