// SPDX-License-Identifier: Apache-2.0
// Ends wires without waiting for any rank.
#include "topology/machine/mpi/wire.hpp"

#include <atomic>
#include <chrono>
#include <list>
#include <mutex>
#include <thread>

#include "topology/base/progress_hooks.hpp"
#include "topology/machine/mpi/check.hpp"

namespace lockstep {
namespace {

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

Wire::Wire(MPI_Comm owned, ThreadLevel level) : comm_(owned, level) {}

// Leaves the communicator to MPI if messages are under way. MPI_Finalize frees the others. Its callback may touch no
// attribute, and MPI_Comm_free does.
Wire::~Wire() {
  if (mpi_has_ended()) return;
  abandon_all();
  if (is_finalizing) comm_.leave_to_mpi();
}

void Wire::abandon_all() {
  set_up_.abandon_all();
  if (arrived_.has_aside()) comm_.leave_to_mpi();
}

void Wire::end_in_silence() {
  abandon_all();
  comm_.leave_to_mpi();
  is_silent_ = true;
}

std::shared_ptr<Wire> Wire::make(MPI_Comm owned, ThreadLevel level) {
  return {new Wire(owned, level), [](Wire* wire) { retire(std::unique_ptr<Wire>(wire)); }};
}

// Begins the wire's end without MPI_Comm_free. That is collective, and ranks end their wires in any order.
void Wire::retire(std::unique_ptr<Wire> wire) noexcept {
  if (mpi_has_ended() || wire->is_silent_) return;
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
  stop_outside_progress();
  const auto end = std::chrono::steady_clock::now() + longest;
  for (free_ended(); has_ended() && std::chrono::steady_clock::now() < end; free_ended()) std::this_thread::yield();
  return MPI_SUCCESS;
}

// Begins to tell every rank how many messages this rank has sent to it. All ranks do so, each when it ends the wire.
void Wire::begin_tally() {
  if (!final_counts_.empty()) return;
  const auto lock = comm_.enter();
  call_at_finalize(at_finalize);
  const bool is_abandoned = comm_.is_left_to_mpi() || arrived_.has_aside();
  for (const std::int64_t messages : set_up_.sent()) final_counts_.push_back({messages, is_abandoned ? 1 : 0});
  const int code =
      MPI_Ireduce_scatter_block(final_counts_.data(), &total_, 2, MPI_INT64_T, MPI_SUM, comm_.get(), &tally_);
  if (code != MPI_SUCCESS) comm_.leave_to_mpi();
  check_mpi(code);
}

// Receives messages that nobody will ask for. Returns true if all ranks have ended the wire, and all of their messages
// are here or its communicator is left to MPI. Then the wire can be destroyed. Never waits.
bool Wire::finish() {
  begin_tally();
  const auto lock = comm_.enter();
  do set_up_.forget_finished();
  while (arrived_.drop_one());
  int done = 0;
  check_mpi(MPI_Test(&tally_, &done, MPI_STATUS_IGNORE));
  if (done == 0) return false;
  if (total_.abandoned != 0) comm_.leave_to_mpi();
  return comm_.is_left_to_mpi() || (arrived_.set_up_count() >= total_.messages && set_up_.is_all_sent());
}

}  // namespace lockstep
