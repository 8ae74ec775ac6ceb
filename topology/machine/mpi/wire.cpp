// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/mpi/wire.hpp"

#include <algorithm>
#include <climits>
#include <thread>

#include "topology/base/error.hpp"
#include "topology/base/keep.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/mpi/check.hpp"

namespace lockstep {
namespace {

// MPI_THREAD_SERIALIZED is about the process, and a process may have several wires.
std::mutex& mutex_of_process() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

}  // namespace

Wire::Wire(MPI_Comm owned, ThreadLevel level)
    : comm_(owned), level_(level), mutex_(level == ThreadLevel::multiple ? own_ : mutex_of_process()) {
  const Lock lock = enter();
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
  check_mpi(MPI_Comm_rank(comm_, &rank_));
  check_mpi(MPI_Comm_size(comm_, &size_));
  void* bound = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(comm_, MPI_TAG_UB, &bound, &found));
  tags_ = tag_layout(found != 0 ? *static_cast<int*>(bound) : 32767);  // what MPI guarantees
  sent_.resize(static_cast<std::size_t>(size_));
}

bool Wire::ended() {
  int is_over = 0;
  MPI_Finalized(&is_over);
  return is_over != 0;
}

Wire::~Wire() {
  if (ended()) return;
  abandon_all();
  const Lock lock(mutex_);
  // With messages under way the communicator is left to MPI.
  if (!abandoned_) MPI_Comm_free(&comm_);
}

// With less than MPI_THREAD_SERIALIZED only the thread that started MPI may call it.
Wire::Lock Wire::enter() {
  refuse_if_ended();
  int main_thread = 1;
  if (level_ < ThreadLevel::serialized) MPI_Is_thread_main(&main_thread);
  if (main_thread == 0) {
    throw Error(Code::thread_level, "called from a second thread, but MPI was started for one thread only",
                "start MPI with MPI_THREAD_SERIALIZED or more, or make the call from the thread that started it");
  }
  return Lock(mutex_);
}

Wire::Turn Wire::turn() {
  if (level_ != ThreadLevel::multiple) return enter();
  refuse_if_ended();
  return {};
}

// MPI would end the process.
void Wire::refuse_if_ended() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended != 0) {
    throw Error(Code::mpi_ended, "a communicator is used, or ends, after its session ended MPI",
                "let communicators and requests end before the session does");
  }
}

void Wire::send(int target, int tag, Bytes bytes) {
  if (bytes.size() > INT_MAX)
    throw Error(Code::usage, text("a set-up message of ", bytes.size(), " bytes"), "keep it under 2 GiB");
  const Lock lock = enter();
  if (leaving_.size() >= collect_at_) {
    collect_the_gone();
    collect_at_ = std::max<std::size_t>(16, 2 * leaving_.size());
  }
  ++sent_[static_cast<std::size_t>(target)];
  leaving_.push_back({channel_of(tag), MPI_REQUEST_NULL, std::make_unique<Bytes>(std::move(bytes))});
  Leaving& last = leaving_.back();
  check_mpi(
      MPI_Isend(last.bytes->data(), static_cast<int>(last.bytes->size()), MPI_BYTE, target, tag, comm_, &last.request));
}

void Wire::collect_the_gone() {
  std::erase_if(leaving_, [](Leaving& each) {
    int done = 0;
    check_mpi(MPI_Test(&each.request, &done, MPI_STATUS_IGNORE));
    return done != 0;
  });
}

bool Wire::flushed(int channel) {
  const Lock lock = enter();
  collect_the_gone();
  return std::ranges::none_of(leaving_, [&](const Leaving& each) { return each.channel == channel; });
}

std::optional<Wire::Arrived> Wire::try_receive(int source, int tag) {
  const Lock lock = enter();
  const Key key{source, tag};
  auto found = arriving_.find(key);
  if (found == arriving_.end()) {
    int here = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    const int from = source < 0 ? MPI_ANY_SOURCE : source;
    check_mpi(MPI_Improbe(from, tag, comm_, &here, &message, &status));
    if (here == 0) return std::nullopt;
    int size = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &size));
    Arriving arriving{MPI_REQUEST_NULL, status.MPI_SOURCE, std::make_unique<Bytes>(static_cast<std::size_t>(size))};
    check_mpi(MPI_Imrecv(arriving.bytes->data(), size, MPI_BYTE, &message, &arriving.request));
    ++received_;
    found = arriving_.emplace(key, std::move(arriving)).first;
  }
  int done = 0;
  check_mpi(MPI_Test(&found->second.request, &done, MPI_STATUS_IGNORE));
  if (done == 0) return std::nullopt;
  Arrived arrived{found->second.source, std::move(*found->second.bytes)};
  arriving_.erase(found);
  return arrived;
}

// MPI may still use the buffers of an exchange that failed at any time until it ends. What is gone already needs no
// keeping.
void Wire::abandon_leaving(int channel) {
  const std::lock_guard lock(mutex_);
  std::erase_if(leaving_, [&](Leaving& each) {
    if (each.channel != channel) return false;
    int done = 0;
    if (!ended()) MPI_Test(&each.request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return true;
    keep_for_ever(std::move(each.bytes));
    return abandoned_ = true;
  });
}

void Wire::abandon_arriving(int channel) {
  const std::lock_guard lock(mutex_);
  for (auto each = arriving_.begin(); each != arriving_.end();) {
    if (channel_of(each->first.second) == channel) {
      keep_for_ever(std::move(each->second.bytes));
      abandoned_ = true;
      each = arriving_.erase(each);
    } else {
      ++each;
    }
  }
}

void Wire::abandon_all() {
  while (!leaving_.empty()) abandon(leaving_.front().channel);
  while (!arriving_.empty()) abandon(channel_of(arriving_.begin()->first.second));
}

// The sum of what all have sent to us, or nothing when somebody does not come or has left messages to MPI. Others may
// still wait for a message of theirs to be received.
std::optional<std::int64_t> Wire::number_sent_to_us(std::chrono::steady_clock::time_point end) {
  struct Told {
    std::int64_t messages;
    std::int64_t abandoned;
  };
  auto told = std::make_unique<std::vector<Told>>();
  for (const std::int64_t messages : sent_) told->push_back({messages, abandoned_ ? 1 : 0});
  auto sum = std::make_unique<Told>();
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const Lock lock = enter();
    check_mpi(MPI_Ireduce_scatter_block(told->data(), sum.get(), 2, MPI_INT64_T, MPI_SUM, comm_, &request));
  }
  for (int done = 0; done == 0;) {
    {
      const Lock lock = enter();
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    }
    if (done == 0 && std::chrono::steady_clock::now() > end) {
      keep_for_ever(std::move(told));
      keep_for_ever(std::move(sum));
      return std::nullopt;
    }
    if (done == 0 && !receive_anything()) std::this_thread::yield();
  }
  if (sum->abandoned != 0) return std::nullopt;
  return sum->messages;
}

// Whether a set-up message was here. Data that nobody has received may lie in memory that is no more: it is left alone,
// and so is all behind it.
bool Wire::receive_anything() {
  const Lock lock = enter();
  collect_the_gone();
  int here = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &here, &status));
  abandoned_ = abandoned_ || (here != 0 && status.MPI_TAG >= tags_.data(0, 0, 0));
  if (here == 0 || abandoned_) return false;
  int size = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &size));
  Bytes bytes(static_cast<std::size_t>(size));
  check_mpi(MPI_Recv(bytes.data(), size, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm_, MPI_STATUS_IGNORE));
  ++received_;
  return true;
}

void Wire::receive_the_rest(std::chrono::nanoseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  const std::optional<std::int64_t> expected = number_sent_to_us(end);
  if (!expected) return leave_to_mpi();
  while (!abandoned_ && (received_ < *expected || !leaving_.empty())) {
    if (!receive_anything()) std::this_thread::yield();
    if (std::chrono::steady_clock::now() > end) return leave_to_mpi();
  }
}

void Wire::leave_to_mpi() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

std::vector<int> Wire::channels() {
  const std::lock_guard lock(mutex_);
  return channels_;
}

void Wire::take_channel(int channel) {
  const std::lock_guard lock(mutex_);
  channels_.push_back(channel);
}

void Wire::give_back_channel(int channel) {
  const std::lock_guard lock(mutex_);
  const auto one = std::ranges::find(channels_, channel);  // several threads may be members of one exchange
  if (one != channels_.end()) channels_.erase(one);
}

}  // namespace lockstep
