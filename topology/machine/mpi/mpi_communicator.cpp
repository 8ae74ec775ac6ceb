// SPDX-License-Identifier: Apache-2.0
// Decides which threads may call MPI.
#include "topology/machine/mpi/mpi_communicator.hpp"

#include <thread>

#include "topology/base/error.hpp"
#include "topology/machine/mpi/check.hpp"

namespace lockstep {
namespace {

// Serves all communicators of the process, because MPI_THREAD_SERIALIZED is about the process.
std::mutex& mutex_of_process() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

// Throws where MPI would end the process.
void refuse_if_mpi_has_ended() {
  if (!mpi_has_ended()) return;
  throw Error(Code::mpi_ended, "a communicator or session is used after MPI_Finalize",
              "use and end them before MPI ends: before the MPI_Finalize of the program, or the end of the session "
              "that started it");
}

bool may_call_mpi(ThreadLevel level) {
  int main_thread = 1;
  if (level < ThreadLevel::serialized) MPI_Is_thread_main(&main_thread);
  return main_thread != 0;
}

}  // namespace

MpiCommunicator::MpiCommunicator(MPI_Comm owned, ThreadLevel level)
    : comm_(owned), level_(level), mutex_(level == ThreadLevel::multiple ? own_ : mutex_of_process()) {
  const Lock lock = enter();
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
  check_mpi(MPI_Comm_rank(comm_, &rank_));
  check_mpi(MPI_Comm_size(comm_, &size_));
  void* bound = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found));  // only MPI_COMM_WORLD need have it
  tags_ = tag_layout(found != 0 ? *static_cast<int*>(bound) : 32767);        // 32767 is guaranteed by MPI
  if (size_ > 1) outside_.emplace([this] { progress(); });  // a look among one rank makes no progress in MPICH
}

MpiCommunicator::~MpiCommunicator() {
  outside_.reset();
  if (mpi_has_ended()) return;
  const Lock lock(mutex_);
  if (!is_left_to_mpi_) MPI_Comm_free(&comm_);
}

MpiCommunicator::Lock MpiCommunicator::enter() {
  refuse_if_mpi_has_ended();
  if (!may_call_mpi(level_)) {
    throw Error(Code::thread_level, "called from a second thread, but MPI was started for one thread only",
                "start MPI with MPI_THREAD_SERIALIZED or more, or make the call from the thread that started it");
  }
  return Lock(mutex_);
}

MpiCommunicator::Access MpiCommunicator::access() {
  if (level_ != ThreadLevel::multiple) return {enter(), {}};
  refuse_if_mpi_has_ended();
  while (waiting_to_be_alone_ > 0) std::this_thread::yield();  // the lock itself prefers threads that share it
  return {{}, std::shared_lock(together_)};
}

// A look for a message that nobody sends makes progress in every MPI library. One that finds a message need not.
void MpiCommunicator::progress() {
  if (mpi_has_ended() || !may_call_mpi(level_)) return;
  Lock alone(mutex_, std::defer_lock);
  if (level_ != ThreadLevel::multiple && !alone.try_lock()) return;
  int here = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, tags_.unused(), comm_, &here, MPI_STATUS_IGNORE);
}

std::unique_lock<std::shared_mutex> MpiCommunicator::keep_others_out() {
  ++waiting_to_be_alone_;
  std::unique_lock alone(together_);
  --waiting_to_be_alone_;
  return alone;
}

}  // namespace lockstep
