// SPDX-License-Identifier: Apache-2.0
// Small programs around a session, one for each way in which a program may start and end MPI;
// tests/topology/session_test.py runs them and judges what they print.
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <iostream>
#include <map>
#include <optional>
#include <stdexcept>
#include <thread>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"
#include "topology/exchange.hpp"
#include "topology/machine/launcher.hpp"
#include "topology/machine/session.hpp"
#include "topology/machine/session_mpi.hpp"

namespace {

using namespace lockstep;

bool mpi_ended() {
  int ended = 0;
  MPI_Finalized(&ended);
  return ended != 0;
}

void plain() {
  {
    const Session session;
    if (session.rank() == 0) std::cout << "size " << session.size() << " started " << session.started_mpi() << "\n";
  }
  if (!mpi_ended()) std::cout << "MPI was not ended\n";
}

// MPI cannot start twice: the second session must say so, and not crash.
void twice() {
  { const Session session; }
  try {
    const Session session;
    std::cout << "a second session began\n";
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
  }
}

// In a program that has started MPI itself, sessions come and go, and MPI stays.
void inside_user_mpi() {
  int got = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SINGLE, &got);
  for (int i = 0; i < 5; ++i) {
    Session session;
    session.exchange().barrier("inside");
  }
  int rank = 0;
  int sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int one = 1;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) std::cout << "MPI still works: " << sum << " ended " << mpi_ended() << "\n";
  MPI_Finalize();
}

// The program ends MPI while its session is still there.
void after_finalize() {
  MPI_Init(nullptr, nullptr);
  Session session = session_over(MPI_COMM_WORLD);
  const int rank = session.rank();
  MPI_Finalize();
  try {
    session.exchange().barrier("too late");
  } catch (const Error& error) {
    if (rank == 0) std::cout << error.what() << "\n";
  }
}

// A session over half of the world, and the user's traffic on that communicator at the same time.
void over_comm() {
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  {
    Session session = session_over(half);
    int size = 0;
    MPI_Comm_size(half, &size);
    int word = -1;
    MPI_Request request = MPI_REQUEST_NULL;
    // Anything of ours on the user's communicator would be caught by this wildcard.
    MPI_Irecv(&word, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, half, &request);
    session.exchange().barrier("beside the user's traffic");
    const int mine = 1000 + rank;
    MPI_Send(&mine, 1, MPI_INT, (session.rank() + 1) % size, 7, half);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    const bool good = word >= 1000 && session.size() == size;
    const auto all = session.exchange().all_gather("good", Writer().put(good).take());
    for (const Bytes& bytes : all) {
      if (!Reader(bytes).get<bool>()) std::cout << "the user's message was lost or mixed\n";
    }
  }
  MPI_Comm_free(&half);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) std::cout << "done\n";
  MPI_Finalize();
}

void thread_level() {
  int got = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SINGLE, &got);
  {
    Session session;
    std::string said = "nothing";
    std::thread([&] {
      try {
        session.exchange().barrier("from a second thread");
      } catch (const Error& error) {
        said = error.what();
      }
    }).join();
    if (session.rank() == 0) std::cout << to_string(session.thread_level()) << ": " << said << "\n";
  }
  MPI_Finalize();
}

// One rank throws out of main: the others must not wait for it.
void throws() {
  Session session;
  if (session.rank() == session.size() - 1) throw Error(Code::usage, "thrown on purpose");
  session.exchange().barrier("the last rank never comes");
}

// What leaves main: an error of Lockstep's, another one, and the first where the program has a handler of its own.
void leaves_main() {
  const Session session;
  throw Error(Code::stall, "nobody catches this");
}
void other_leaves_main() {
  const Session session;
  throw std::runtime_error("nor that");
}
void leaves_main_with_a_handler() {
  constexpr int own = 9;
  std::set_terminate([] { ::_exit(own); });
  leaves_main();
}

// Of three, one is stopped and one does something else before MPI begins.
void begin_hangs() {
  const int rank = launcher_rank(process_environment).value_or(0);
  if (rank == 1) ::raise(SIGSTOP);
  if (rank == 2) std::this_thread::sleep_for(std::chrono::seconds(40));
  if (rank != 0) ::_exit(0);
  const Session never;
}

// One rank never comes to the end of the session.
void end_hangs() {
  SessionOptions options;
  options.settings = Settings::from_environment();
  options.settings->set(Setting::stall_warn, "1s");
  options.settings->set(Setting::timeout, "12s");
  const Session world(options);
  if (world.rank() != 1) return;
  std::this_thread::sleep_for(std::chrono::seconds(40));
  ::_exit(0);
}

// One rank never leaves MPI: MPI_Finalize on the others is ended by its watch. The limit of the environment is for
// that, not for the start, which takes its time on a busy machine; so the last session is one among one member.
void finalize_hangs() {
  SessionOptions patient;
  patient.settings = Settings::from_environment();
  patient.settings->set(Setting::timeout, "300s");
  std::optional<Session> world(std::in_place, patient);
  const bool stays = world->rank() == 1;
  const Session alone = session_over(MPI_COMM_SELF);
  world.reset();
  if (!stays) return;
  std::this_thread::sleep_for(std::chrono::seconds(40));
  ::_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, void (*)()> programs = {{"plain", plain},
                                                      {"twice", twice},
                                                      {"inside", inside_user_mpi},
                                                      {"after_finalize", after_finalize},
                                                      {"over_comm", over_comm},
                                                      {"thread_level", thread_level},
                                                      {"throws", throws},
                                                      {"begin_hangs", begin_hangs},
                                                      {"end_hangs", end_hangs},
                                                      {"finalize_hangs", finalize_hangs}};
  const std::map<std::string, void (*)()> uncaught = {{"leaves_main", leaves_main},
                                                      {"other_leaves_main", other_leaves_main},
                                                      {"leaves_main_with_a_handler", leaves_main_with_a_handler}};
  const std::string name = argc > 1 ? argv[1] : "";
  if (const auto found = uncaught.find(name); found != uncaught.end()) found->second();
  const auto found = programs.find(name);
  if (found == programs.end()) return 1;
  try {
    found->second();
  } catch (const Error& error) {
    std::cerr << error.what() << std::endl;
    end_job(error.exit());
    return static_cast<int>(error.exit());
  }
  return 0;
}
