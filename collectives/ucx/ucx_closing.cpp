// SPDX-License-Identifier: Apache-2.0
// Lets ended transports send their last messages, and closes or keeps their workers.
#include "collectives/ucx/ucx_closing.hpp"

#include <algorithm>
#include <thread>

#include "topology/base/keep.hpp"

namespace lockstep::ucx {
namespace {

// Limits a wait in which others should answer; sending goes on later while this thread waits.
constexpr std::chrono::milliseconds sending_takes{50};
constexpr std::chrono::milliseconds ending_takes{500};
constexpr std::chrono::seconds others_take{5};

}  // namespace

ClosingTransport::ClosingTransport(std::unique_ptr<Worker> words, std::unique_ptr<Worker> data,
                                   std::list<UcxControlMessage> telling, std::vector<MessageToken> theirs,
                                   std::vector<bool> has_left)
    : telling_(std::move(telling)),
      theirs_(std::move(theirs)),
      has_left_(std::move(has_left)),
      words_(std::move(words)),
      data_(std::move(data)) {
  words_->receive_by([this](const Worker::Arrival& arrival) {
    const auto head = opened(arrival.head, theirs_);
    if (head && head->call_tag == farewell) has_left_[head->source] = true;
    return false;
  });
  words_->flush();
  if (!data_) return;
  data_->receive_by([](const Worker::Arrival& /*arrival*/) { return false; });
  data_->flush();
}

void ClosingTransport::progress() {
  words_->progress();
  if (data_) data_->progress();
  if (!sent_at_ && is_sent()) sent_at_ = std::chrono::steady_clock::now();
}

bool ClosingTransport::is_over() const {
  return sent_at_ && std::ranges::all_of(has_left_, [](bool has_left) { return has_left; });
}

bool ClosingTransport::is_in_vain(Time now) const {
  if (!sent_at_) return false;
  if (now - *sent_at_ > others_take) return true;
  for (std::size_t peer = 0; peer < has_left_.size(); ++peer) {
    if (!has_left_[peer] && words_->why_dead(static_cast<int>(peer)).empty()) return false;
  }
  return true;
}

void ClosingTransports::add(std::unique_ptr<ClosingTransport> one) {
  const auto begin = std::chrono::steady_clock::now();
  while (!one->is_sent() && std::chrono::steady_clock::now() - begin < sending_takes) {
    one->progress();
    move();  // other processes may be in the same place, and need them
    std::this_thread::yield();
  }
  const std::lock_guard lock(mutex_);
  all_.push_back(std::move(one));
  hook_.busy();
}

bool ClosingTransports::move() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return true;
  const auto now = std::chrono::steady_clock::now();
  for (const auto& each : all_) each->progress();
  all_.remove_if([](const auto& each) { return each->is_over(); });
  all_.remove_if([now](auto& each) {
    if (!each->is_in_vain(now)) return false;
    keep_forever(std::shared_ptr<ClosingTransport>(std::move(each)));
    return true;
  });
  if (all_.empty()) hook_.idle();
  return !all_.empty();
}

ClosingTransports::~ClosingTransports() {
  const auto begin = std::chrono::steady_clock::now();
  while (move() && std::chrono::steady_clock::now() - begin < ending_takes)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  const std::lock_guard lock(mutex_);  // a thread that waits elsewhere may still call move()
  for (auto& each : all_) keep_forever(std::shared_ptr<ClosingTransport>(std::move(each)));
  all_.clear();
}

}  // namespace lockstep::ucx
