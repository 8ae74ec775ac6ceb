// SPDX-License-Identifier: Apache-2.0
// Gives channels to new exchanges. It finds free ones, lets one thread of a process choose, and clears away messages
// left on them.
#include <algorithm>
#include <thread>

#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"
#include "topology/base/progress_hooks.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/mpi/mpi_exchange.hpp"

namespace lockstep {

std::uint64_t MpiExchange::seed() const {
  const ThreadAddress& first = members_.front();
  return (sequence_ >> 32U << 32U) + (static_cast<std::uint64_t>(first.process) << 12U) +
         static_cast<std::uint64_t>(first.thread) * 0x9e3779b97f4a7c15U;
}

// Lets the first thread of a process choose for all of them.
std::unique_lock<std::mutex> MpiExchange::try_choosing() {
  const auto first = std::ranges::find(members_, me().process, &ThreadAddress::process);
  if (first - members_.begin() != rank()) return {};
  return std::unique_lock(wire_->channels().choosing(), std::try_to_lock);
}

Bytes MpiExchange::channels_in_use() {
  IndexSet used;
  for (const int channel : wire_->channels().in_use()) used.insert(channel);
  return Writer().put(used).put(wire_->channels().generation()).take();
}

// Returns the lowest channels that no member has in use. Their generation is new to all members, so that set-up
// messages of earlier exchanges are recognised. Data is dropped when the channel is opened.
ChannelBlock MpiExchange::free_block(const std::vector<Bytes>& used, int threads) const {
  IndexSet all;
  ChannelBlock block{.threads = threads};
  for (const Bytes& bytes : used) {
    Reader reader(bytes);
    all.insert(reader.get_set());
    block.generation = std::max(block.generation, reader.get<std::uint32_t>() + 1);
  }
  const int number = block.channels();
  for (int free = 0; free < number;) {
    const bool is_free = !all.contains(block.channel + free);
    block.channel += is_free ? 0 : free + 1;
    free = is_free ? free + 1 : 0;
  }
  const int limit = wire_->comm().tags().channels;
  if (block.channel + number > limit) {
    throw Error(
        Code::mpi,
        text("no room for another communicator in MPI's tags: their limit here is ", limit, " channels, of which ",
             all.size(), " belong to communicators that are live; this one needs ", number, " side by side"),
        "end communicators that are no longer used, or have fewer threads in a process: t of them take t * t channels");
  }
  wire_->channels().set_generation(block.generation);
  return block;
}

void MpiExchange::gives_up(int member, std::size_t bytes) {
  auto& shortest = given_up_.try_emplace(member, bytes).first->second;
  shortest = std::min(shortest, bytes);
}

// Notes messages that members may not have received, of this exchange or of the one before it on these channels.
void MpiExchange::note_unreceived() {
  std::vector<UnreceivedMessages> by_thread(static_cast<std::size_t>(block_.threads));
  for (int member = 0; member < size(); ++member) {
    const auto earlier = inherited_.find(member);
    const auto given_up = given_up_.find(member);
    const bool is_sent = failed_ || sent_to_[static_cast<std::size_t>(member)] != 0;
    if (!is_sent && earlier == inherited_.end()) continue;
    std::size_t shortest = SIZE_MAX;
    if (earlier != inherited_.end()) shortest = earlier->second;
    if (given_up != given_up_.end()) shortest = std::min(shortest, given_up->second);
    const ThreadAddress& to = members_[static_cast<std::size_t>(member)];
    by_thread[static_cast<std::size_t>(to.thread)].emplace(to.process, shortest);
  }
  for (int thread = 0; thread < block_.threads; ++thread)
    wire_->clearing().note_unreceived(channel(me().thread, thread), by_thread[static_cast<std::size_t>(thread)]);
}

// Sends a marker to every member that may have unreceived messages of this one's on these channels, and returns those
// members. Each marker is on its way before the others wait for it.
Bytes MpiExchange::opening() {
  std::vector<UnreceivedMessages> by_thread;
  by_thread.reserve(static_cast<std::size_t>(block_.threads));
  for (int thread = 0; thread < block_.threads; ++thread)
    by_thread.push_back(wire_->clearing().take_unreceived(channel(me().thread, thread)));
  IndexSet marked;
  for (int member = 0; member < size(); ++member) {
    const ThreadAddress& to = members_[static_cast<std::size_t>(member)];
    const auto earlier = by_thread[static_cast<std::size_t>(to.thread)].extract(to.process);
    if (earlier.empty()) continue;
    inherited_.emplace(member, earlier.mapped());
    marked.insert(member);
  }
  for (int thread = 0; thread < block_.threads; ++thread)
    wire_->clearing().note_unreceived(channel(me().thread, thread), by_thread[static_cast<std::size_t>(thread)]);
  for (const auto& [member, given_up] : inherited_)
    wire_->clearing().send_marker(channel_to(member), process_of(member), generation(), given_up);
  return Writer().put(marked).take();
}

void MpiExchange::open(const std::vector<Bytes>& openings) {
  try {
    clear_channels(openings);
  } catch (const std::exception& error) {
    wire_->comm().leave_to_mpi();
    fail(error.what());
    throw;
  }
}

// Drops messages that the other members sent on these channels before their markers.
void MpiExchange::clear_channels(const std::vector<Bytes>& openings) {
  std::vector<AwaitedMarker> waiting;
  for (int member = 0; member < size(); ++member) {
    const IndexSet marked = Reader(openings.at(static_cast<std::size_t>(member))).get_set();
    if (marked.contains(rank())) waiting.emplace_back(channel_from(member), process_of(member), generation());
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int turns = 0;; ++turns) {
    std::erase_if(waiting, [&](AwaitedMarker& each) { return wire_->clearing().is_clear(each); });
    if (waiting.empty() && flushed()) return;
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (wait_limits().limit > Duration{} && waited > wait_limits().limit)
      throw Error(Code::stall,
                  text("waited ", format_duration(wait_limits().limit), " for MPI to bring ", waiting.size(),
                       " messages that open the channel of a new communicator"),
                  "check that MPI still delivers messages; LOCKSTEP_TIMEOUT sets the limit");
    run_progress_hooks(0);
    constexpr int yields = 2000;  // polls before the first sleep; a guess
    if (turns < yields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

// Keeps the threads' numbers, since members of other splits, which are other threads, may have the same channels.
std::unique_ptr<Exchange> MpiExchange::make_split(const std::vector<int>& ranks, const std::vector<Bytes>& used) {
  std::vector<ThreadAddress> members;
  members.reserve(ranks.size());
  for (const int rank : ranks) members.push_back(members_.at(static_cast<std::size_t>(rank)));
  const auto rank = static_cast<int>(std::ranges::find(members, me()) - members.begin());
  return std::make_unique<MpiExchange>(wire_, free_block(used, block_.threads), std::move(members), rank, wait_limits(),
                                       log());
}

// Opens new exchanges of this process. Their members are in the order of the processes.
void MpiExchange::open_together(const std::vector<std::unique_ptr<MpiExchange>>& made) {
  Writer mine;
  mine.put(static_cast<std::uint64_t>(made.size()));
  for (const auto& each : made) mine.put(std::span<const std::byte>(each->opening()));
  std::vector<Bytes> openings;
  for (const Bytes& each : all_gather("channels of threads are open", mine.take())) {
    Reader reader(each);
    for (std::size_t left = reader.get_count(sizeof(std::uint64_t)); left > 0; --left)
      openings.push_back(reader.get_bytes());
  }
  for (const auto& each : made) each->open(openings);
}

MpiExchange::ThreadExchanges MpiExchange::of_threads(int mine, bool is_able) {
  const auto begin = std::chrono::steady_clock::now();
  for (unsigned attempt = 0;; ++attempt) {
    auto choosing = try_choosing();
    const Bytes told = Writer()
                           .put(mine)
                           .put(is_able)
                           .put(choosing.owns_lock())
                           .put(std::span<const std::byte>(channels_in_use()))
                           .take();
    ThreadExchanges made;
    std::vector<Bytes> used;
    std::vector<ThreadAddress> members;
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
      wait_to_choose(attempt, std::chrono::steady_clock::now() - begin);
      continue;
    }
    const ChannelBlock block = free_block(used, *std::ranges::max_element(made.numbers));
    const auto first =
        static_cast<int>(std::ranges::find(members, me().process, &ThreadAddress::process) - members.begin());
    std::vector<std::unique_ptr<MpiExchange>> exchanges;
    for (int thread = 0; thread < mine; ++thread) {
      const int rank = first + thread;
      exchanges.push_back(
          std::make_unique<MpiExchange>(wire_, block, members, rank, wait_limits(),
                                        log().speaking_as(text("member ", rank, " of ", members.size()))));
    }
    open_together(exchanges);
    for (auto& each : exchanges) made.exchanges.push_back(std::move(each));
    return made;
  }
}

}  // namespace lockstep
