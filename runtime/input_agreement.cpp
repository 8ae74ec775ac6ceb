// SPDX-License-Identifier: Apache-2.0
// Exchanges the states of loops over distributed data sets, in the input channel.
#include "runtime/input_agreement.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>

#include "runtime/replica_threads.hpp"
#include "topology/base/bytes.hpp"

namespace lockstep::detail {
namespace {

// Gathers some numbers of each process.
template <std::size_t n>
std::vector<std::array<std::int64_t, n>> numbers_of_all(Communicator& channel,
                                                        const std::array<std::int64_t, n>& mine) {
  std::vector<std::int64_t> all(n * static_cast<std::size_t>(channel.size()));
  channel.all_gather(mine, all);
  std::vector<std::array<std::int64_t, n>> of_each(static_cast<std::size_t>(channel.size()));
  std::memcpy(of_each.data(), all.data(), all.size() * sizeof(std::int64_t));
  return of_each;
}

std::string length_text(std::int64_t length) {
  return length == data::infinite ? "infinitely many" : length < 0 ? "an unknown number of" : text(length);
}

}  // namespace

void require_equal_pipelines(Strategy& strategy, const std::string& pipeline) {
  Communicator& channel = strategy.channel(Channel::input);
  if (channel.size() == 1) return;
  const auto all = numbers_of_all<1>(channel, {static_cast<std::int64_t>(hash(to_bytes(pipeline)))});
  const auto other = std::ranges::find_if(all, [&](const auto& each) { return each != all[0]; });
  if (other == all.end()) return;
  throw Error(Code::mismatch,
              text("processes loop over different data sets: process 0 and process ", other - all.begin(),
                   " differ; this one's is ", pipeline),
              "let all processes distribute the same pipeline, with the same parameters and seeds");
}

std::int64_t agree_on_start(Strategy& strategy, const LoopStart& mine) {
  Communicator& channel = strategy.channel(Channel::input);
  if (channel.size() == 1 && mine.failure) std::rethrow_exception(mine.failure);
  if (channel.size() == 1) return mine.length;
  const auto all = numbers_of_all<3>(
      channel, {mine.length, static_cast<std::int64_t>(mine.beginning), mine.failure != nullptr ? 1 : 0});
  if (std::ranges::any_of(all, [](const auto& each) { return each[2] != 0; }))
    fail_together(strategy, mine.failure, text("process ", channel.rank(), " begins a loop over ", mine.pipeline));
  std::int64_t longest = mine.length;
  for (std::size_t process = 0; process < all.size(); ++process) {
    const auto [length, beginning, failed] = all[process];
    if (mine.has_one_sequence && length != all[0][0])
      throw Error(
          Code::mismatch,
          text("processes loop over data sets of different lengths: process 0 has ", length_text(all[0][0]),
               " batches and process ", process, " has ", length_text(length), "; this one's is ", mine.pipeline),
          "give all processes the same data, or use distribute_from()");
    if (mine.has_one_sequence && beginning != all[0][1])
      throw Error(
          Code::mismatch,
          text("process 0 and process ", process, " have caches with elements in different orders in ", mine.pipeline),
          "let all processes fill the cache in loops over the distributed data set, from one file or none");
    if (longest == data::unknown_length || length == data::unknown_length)
      longest = data::unknown_length;
    else
      longest = longest == data::infinite || length == data::infinite ? data::infinite : std::max(longest, length);
  }
  return longest;
}

data::Opening share_opening(Strategy& strategy, const data::Opening& mine) {
  Communicator& channel = strategy.channel(Channel::input);
  if (channel.size() == 1) return mine;
  Writer writer;
  save(mine, writer);
  const Bytes opening = writer.take();
  std::vector<std::uint8_t> bytes(opening.size());
  std::memcpy(bytes.data(), opening.data(), bytes.size());
  channel.broadcast(bytes, 0);
  Reader reader(std::as_bytes(std::span(bytes)));
  return load(mine, reader);
}

std::vector<int> replicas_of_processes(Strategy& strategy) {
  std::vector<int> replicas;
  for (const auto& [each] : numbers_of_all<1>(strategy.channel(Channel::input), {strategy.num_local_replicas()}))
    replicas.push_back(static_cast<int>(each));
  return replicas;
}

void fail_for_all(Strategy& strategy, const std::exception_ptr& failure, const std::string& place) {
  if (strategy.num_local_replicas() == strategy.num_replicas_in_sync()) std::rethrow_exception(failure);
  strategy.run([&](ReplicaContext& replica) {
    if (replica.local_id() == 0) throw std::runtime_error(text(place, ": ", message_of(failure)));
  });
  throw Error(Code::internal, "a failure that no replica has reported");
}

void fail_together(Strategy& strategy, const std::exception_ptr& mine, const std::string& place) {
  if (mine) fail_for_all(strategy, mine, place);
  strategy.run([](ReplicaContext& replica) { static_cast<void>(replica.all_reduce(0, max)); });
  throw Error(Code::internal, "a failure that no process has reported");
}

StepAgreement::~StepAgreement() {
  if (reducer_ != nullptr) reducer_->stop_carrying(*this);
  try {
    request_.wait();
  } catch (const Error&) {  // The loop has ended; the next call of the channel reports its failure.
  }
}

void StepAgreement::travel_with(GradientReducer& reducer) {
  if (reducer_ != nullptr) reducer_->stop_carrying(*this);
  if (request_.pending()) {
    request_.wait();
    has_travelled_ = true;
  }
  reducer_ = &reducer;
  reducer.carry(*this);
}

void StepAgreement::begin(const State& mine) {
  mine_ = {mine.with_data, mine.ended, mine.failed, mine.rows};
  is_begun_ = true;
  has_travelled_ = false;
  if (reducer_ == nullptr) send();
}

void StepAgreement::send() {
  sums_ = mine_;
  request_ = strategy_.channel(Channel::input).all_reduce_async(sums_, sum);
}

StepAgreement::State StepAgreement::finish() {
  is_begun_ = false;
  if (reducer_ != nullptr && !has_travelled_) send();  // There was no backward pass since begin().
  request_.wait();
  return {sums_[0], sums_[1], sums_[2], sums_[3]};
}

void StepAgreement::give(std::span<std::int64_t> counts) {
  if (is_begun_) std::ranges::copy(mine_, counts.begin());
}

void StepAgreement::take(std::span<const std::int64_t> sums) {
  std::ranges::copy(sums, sums_.begin());
  has_travelled_ = is_begun_;
}

}  // namespace lockstep::detail
