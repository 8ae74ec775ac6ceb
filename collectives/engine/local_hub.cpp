// SPDX-License-Identifier: Apache-2.0
// Implements the bell by the kernel's futex, and makes rings and hubs of subsets on demand.
#include "collectives/engine/local_hub.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

#include "collectives/engine/round_rules.hpp"

namespace lockstep::local {
namespace {

// The kernel reads the atomic itself as its futex word.
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// Calls the kernel, since the C library has no function for it.
long futex(std::atomic<std::uint32_t>& word, int what, std::uint32_t value, const timespec* longest) {
  return syscall(SYS_futex, &word, what, value, longest, nullptr, 0);
}

}  // namespace

void WakeBell::wake() {
  rings_.fetch_add(1, std::memory_order_release);
  futex(rings_, FUTEX_WAKE_PRIVATE, 1, nullptr);
}

void WakeBell::wait(std::uint32_t before, std::int64_t nanoseconds) {
  const timespec longest = round_rules::to_timespec(nanoseconds);
  futex(rings_, FUTEX_WAIT_PRIVATE, before, &longest);  // for any result, the caller looks again
}

void MessageBox::put(Transport::ReceivedControl heard) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(std::move(heard));
  count_.fetch_add(1, std::memory_order_seq_cst);
}

std::optional<Transport::ReceivedControl> MessageBox::take() {
  if (count_.load(std::memory_order_relaxed) == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  std::optional<Transport::ReceivedControl> heard(std::move(messages_.front()));
  messages_.pop_front();
  count_.fetch_sub(1, std::memory_order_relaxed);
  return heard;
}

LocalHub::LocalHub(int size)
    : endpoints_(static_cast<std::size_t>(size)),
      rings_(static_cast<std::size_t>(size) * static_cast<std::size_t>(size)) {}

LocalHub::~LocalHub() {
  for (std::atomic<MessageRing*>& ring : rings_) delete ring.load(std::memory_order_relaxed);
}

std::shared_ptr<LocalHub> LocalHub::side(std::span<const int> members, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const std::pair key{std::vector<int>(members.begin(), members.end()), number};
  SubgroupHub& side = sides_[key];
  if (!side.hub) side.hub = std::make_shared<LocalHub>(static_cast<int>(members.size()));
  auto taken = side.hub;
  if (++side.takers == members.size()) sides_.erase(key);
  return taken;
}

MessageRing& LocalHub::ring_to_send(int sender, int receiver) {
  std::atomic<MessageRing*>& ring = slot(sender, receiver);
  MessageRing* known = ring.load(std::memory_order_relaxed);
  if (known == nullptr) {
    known = std::make_unique<MessageRing>().release();  // the hub owns it from here on
    ring.store(known, std::memory_order_seq_cst);
  }
  return *known;
}

}  // namespace lockstep::local
