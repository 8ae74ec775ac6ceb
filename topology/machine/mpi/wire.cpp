// SPDX-License-Identifier: Apache-2.0
// Implements the wire: set-up messages that never block, and an end that waits for no rank.
#include "topology/machine/mpi/wire.hpp"

#include <algorithm>
#include <chrono>
#include <climits>
#include <list>
#include <thread>

#include "topology/base/error.hpp"
#include "topology/base/keep.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/mpi/check.hpp"

namespace lockstep {
namespace {

// Serves all wires of the process, because MPI_THREAD_SERIALIZED is about the process.
std::mutex& mutex_of_process() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

// Holds wires that this process has given up, until all ranks have ended them. Never destroyed: MPI may write to them.
struct RetiredWires {
  std::mutex mutex;
  std::list<std::unique_ptr<Wire>> wires;
};

RetiredWires& ended_wires() {
  static auto& wires = *new RetiredWires;
  return wires;
}

std::atomic<bool> is_finalizing = false;  // MPI_Finalize has called at_finalize()

// Makes MPI_Finalize call the function first. MPI must be running.
void call_at_finalize(MPI_Comm_delete_attr_function* function) {
  static std::once_flag once;
  std::call_once(once, [&] {
    int key = MPI_KEYVAL_INVALID;
    check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, function, &key, nullptr));
    check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr));
  });
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
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found));  // only MPI_COMM_WORLD need have it
  tags_ = tag_layout(found != 0 ? *static_cast<int*>(bound) : 32767);        // 32767 is guaranteed by MPI
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
  // Leaves the communicator to MPI if messages are under way. MPI_Finalize frees the others. Its callback may touch no
  // attribute, and MPI_Comm_free does.
  if (!abandoned_ && !is_finalizing) MPI_Comm_free(&comm_);
}

// Refuses all but the thread that started MPI, if the level is less than MPI_THREAD_SERIALIZED.
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

Wire::MpiAccess Wire::access() {
  if (level_ != ThreadLevel::multiple) return {enter(), {}};
  refuse_if_ended();
  while (waiting_to_clear_ > 0) std::this_thread::yield();  // the lock itself prefers threads that share it
  return {{}, std::shared_lock(together_)};
}

// Throws where MPI would end the process.
void Wire::refuse_if_ended() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended != 0) {
    throw Error(Code::mpi_ended, "a communicator or session is used after MPI_Finalize",
                "use and end them before MPI ends: before the MPI_Finalize of the program, or the end of the session "
                "that started it");
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
  leaving_.push_back({tags_.channel_of(tag), MPI_REQUEST_NULL, std::make_unique<Bytes>(std::move(bytes))});
  SetUpSend& last = leaving_.back();
  check_mpi(
      MPI_Isend(last.bytes->data(), static_cast<int>(last.bytes->size()), MPI_BYTE, target, tag, comm_, &last.request));
}

void Wire::collect_the_gone() {
  const auto is_done = [](auto& each) {
    int done = 0;
    check_mpi(MPI_Test(&each.request, &done, MPI_STATUS_IGNORE));
    return done != 0;
  };
  std::erase_if(leaving_, is_done);
  std::erase_if(dropping_, is_done);
}

bool Wire::flushed(int channel) {
  const Lock lock = enter();
  collect_the_gone();
  return std::ranges::none_of(leaving_, [&](const SetUpSend& each) { return each.channel == channel; });
}

std::optional<Wire::ReceivedMessage> Wire::try_receive(int source, int tag) {
  const Lock lock = enter();
  const SourceTag key{source, tag};
  auto found = arriving_.find(key);
  if (found == arriving_.end()) {
    auto matched = take_aside(source, tag);
    if (!matched) matched = match(source, tag);
    if (!matched) return std::nullopt;
    found = arriving_.emplace(key, receive(*matched)).first;
  }
  int done = 0;
  check_mpi(MPI_Test(&found->second.request, &done, MPI_STATUS_IGNORE));
  if (done == 0) return std::nullopt;
  ReceivedMessage arrived{found->second.source, std::move(*found->second.bytes)};
  arriving_.erase(found);
  return arrived;
}

// Keeps the buffers of a failed exchange, since MPI may use them at any time until it ends. Finished messages need no
// keeping.
void Wire::abandon_leaving(int channel) {
  const std::lock_guard lock(mutex_);
  std::erase_if(leaving_, [&](SetUpSend& each) {
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
    if (tags_.channel_of(each->first.second) == channel) {
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
  while (!arriving_.empty()) abandon(tags_.channel_of(arriving_.begin()->first.second));
  abandon_leftovers();
}

// Returns true if a set-up message was here. Unreceived data may lie in memory that is gone: it is left alone, and so
// is all behind it.
bool Wire::receive_anything() {
  const Lock lock = enter();
  collect_the_gone();
  int here = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &here, &status));
  abandoned_ = abandoned_ || has_aside_ || (here != 0 && !tags_.is_set_up(status.MPI_TAG));
  if (here == 0 || abandoned_) return false;
  int size = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &size));
  Bytes bytes(static_cast<std::size_t>(size));
  check_mpi(MPI_Recv(bytes.data(), size, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm_, MPI_STATUS_IGNORE));
  ++received_;
  return true;
}

void Wire::end_in_silence() {
  abandon_all();
  leave_to_mpi();
  is_silent_ = true;
}

std::shared_ptr<Wire> Wire::make(MPI_Comm owned, ThreadLevel level) {
  return {new Wire(owned, level), [](Wire* wire) { retire(std::unique_ptr<Wire>(wire)); }};
}

// Begins the wire's end without MPI_Comm_free. That is collective, and ranks end their wires in any order.
void Wire::retire(std::unique_ptr<Wire> wire) noexcept {
  if (ended() || wire->is_silent_) return;
  try {
    wire->begin_tally();
  } catch (const std::exception&) {  // a thread that may not call MPI: free_ended() tries again
  }
  const std::lock_guard lock(ended_wires().mutex);
  ended_wires().wires.push_back(std::move(wire));
}

bool Wire::has_ended() {
  const std::lock_guard lock(ended_wires().mutex);
  return !ended_wires().wires.empty();
}

void Wire::free_ended() noexcept {
  std::list<std::unique_ptr<Wire>> wires;
  {
    const std::lock_guard lock(ended_wires().mutex);
    wires.swap(ended_wires().wires);
  }
  wires.remove_if([](const std::unique_ptr<Wire>& wire) {
    try {
      return wire->finish();
    } catch (const std::exception&) {  // a thread that may not call MPI, or an error of MPI: the communicator stays
      return false;
    }
  });
  const std::lock_guard lock(ended_wires().mutex);
  ended_wires().wires.splice(ended_wires().wires.end(), wires);
}

// Waits for the tallies of ranks that are about to call MPI_Finalize, too. A program must not call it with operations
// under way, and some MPI libraries warn of unreceived messages. It does not wait for ever, since a rank may never end
// its session. MPI_Finalize deletes the attributes of MPI_COMM_SELF first, and so calls this.
int Wire::at_finalize(MPI_Comm /*self*/, int /*key*/, void* /*value*/, void* /*state*/) {
  constexpr std::chrono::seconds longest{10};  // a guess: as long as the default of LOCKSTEP_STALL_WARN
  is_finalizing = true;
  const auto end = std::chrono::steady_clock::now() + longest;
  for (free_ended(); has_ended() && std::chrono::steady_clock::now() < end; free_ended()) std::this_thread::yield();
  return MPI_SUCCESS;
}

// Begins to tell every rank how many messages this rank has sent to it. All ranks do so, each when it ends the wire.
void Wire::begin_tally() {
  if (!told_.empty()) return;
  const Lock lock = enter();
  call_at_finalize(at_finalize);
  for (const std::int64_t messages : sent_) told_.push_back({messages, abandoned_ || has_aside_ ? 1 : 0});
  const int code = MPI_Ireduce_scatter_block(told_.data(), &total_, 2, MPI_INT64_T, MPI_SUM, comm_, &tally_);
  abandoned_ = abandoned_ || code != MPI_SUCCESS;
  check_mpi(code);
}

// Receives messages that nobody will ask for. Returns true if all ranks have ended the wire, and all of their messages
// are here or its communicator is left to MPI. Then the wire can be destroyed. Never waits.
bool Wire::finish() {
  begin_tally();
  while (receive_anything()) continue;
  const Lock lock = enter();
  int done = 0;
  check_mpi(MPI_Test(&tally_, &done, MPI_STATUS_IGNORE));
  if (done == 0) return false;
  abandoned_ = abandoned_ || total_.abandoned != 0;
  return abandoned_ || (received_ >= total_.messages && leaving_.empty());
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
