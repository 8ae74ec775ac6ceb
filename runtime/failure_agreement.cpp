// SPDX-License-Identifier: Apache-2.0
// Gathers the failures of all processes, and chooses the one that all report.
#include "runtime/failure_agreement.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <tuple>
#include <type_traits>

#include "collectives/communicator/communicator_core.hpp"

namespace lockstep::detail {
namespace {

constexpr std::size_t max_message = 1906;

// Is the contribution of one process on its way.
struct FailureRecord {
  std::uint64_t run = 0;
  int replica = 0;
  RunFailure::Kind kind = RunFailure::Kind::none;
  std::array<char, max_message + 1> message = {};
};
static_assert(std::has_unique_object_representations_v<FailureRecord>, "no byte is left undefined");

}  // namespace

FailureAgreement::~FailureAgreement() {
  if (!request_.pending()) return;
  refuse(Error(Code::peer_failed, "the strategy has ended after a failure"));
  try {
    request_.wait();
  } catch (const Error&) {  // This is the refusal itself.
  }
}

void FailureAgreement::contribute(const RunFailure& mine) {
  if (is_begun_) return;
  FailureRecord record{mine.run, mine.replica, mine.kind};
  mine.message.copy(record.message.data(), max_message);
  mine_.resize(sizeof record);
  all_.resize(sizeof record * static_cast<std::size_t>(health_.size()));
  std::memcpy(mine_.data(), &record, sizeof record);
  request_ = health_.all_gather_async(mine_, all_);
  is_begun_ = true;
}

std::optional<RunFailure> FailureAgreement::wait_for(Duration limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::chrono::microseconds pause{10};
  while (!request_.test()) {
    if (std::chrono::steady_clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(1000));
  }
  return first();
}

RunFailure FailureAgreement::wait() {
  request_.wait();
  is_begun_ = false;
  return first();
}

void FailureAgreement::refuse(const Error& why) noexcept { health_.core()->member().refuse(why); }

RunFailure FailureAgreement::first() const {
  std::vector<RunFailure> failures;
  for (std::size_t at = 0; at < all_.size(); at += sizeof(FailureRecord)) {
    FailureRecord record;
    std::memcpy(&record, &all_[at], sizeof record);
    failures.push_back({record.kind, record.run, record.replica, record.message.data()});
  }
  return *std::ranges::min_element(
      failures, {}, [](const RunFailure& each) { return std::tuple(each.kind, each.run, each.replica); });
}

}  // namespace lockstep::detail
