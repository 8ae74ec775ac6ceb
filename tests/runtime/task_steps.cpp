// SPDX-License-Identifier: Apache-2.0
// A program for tests of what happens to the members of a cluster: steps that end with an all_reduce, each of them said
// on standard output.
//   task_steps STEPS MILLISECONDS [PURPOSE]
//   task_steps burst MESSAGES: rank 0 sends and then waits elsewhere, before rank 1 receives
//   task_steps role: the duties of this process are said
//   task_steps strategy: a strategy that is given no session
//   task_steps outlive RANK: that one ends itself in a step, and each of the others goes on alone with its variables
//   task_steps die RANK: that one ends itself among steps; when, and when the others hear of it, is said in
//   microseconds
#include <lockstep.hpp>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

namespace {

using lockstep::text;

void burst(lockstep::Communicator& world, int messages) {
  auto other = world.split(0);
  std::vector<char> bytes(7000, 'x');
  if (world.rank() == 0) {
    for (int i = 0; i < messages; ++i) world.send(bytes, 1);
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (int i = 0; i < messages; ++i) world.recv(bytes, 0);
  }
  other->barrier();
}

long long now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

[[noreturn]] void die() {
  std::cout << text("died at ", now_us(), '\n') << std::flush;
  ::raise(SIGKILL);
  std::abort();
}

void steps_of(lockstep::Communicator& world, int dies) {
  std::vector<int> numbers(1000);
  for (int step = 1;; ++step) {
    if (step == 50 && world.rank() == dies) die();
    world.all_reduce(numbers, lockstep::sum);
  }
}

void wait_for_death(lockstep::Communicator& world, int dies) {
  try {
    steps_of(world, dies);
  } catch (const lockstep::Error& error) {
    std::cout << text("rank ", world.rank(), " heard at ", now_us(), ": ", error.what(), '\n') << std::flush;
    throw;
  }
}

void say_role(const lockstep::TaskSession& session) {
  const lockstep::Role& role = session.role();
  std::cout << role.type << ' ' << role.index << " of a session of " << session.size()
            << (role.trains ? ", trains" : "") << (role.saves ? ", saves" : "") << (role.serves ? ", serves" : "")
            << (role.evaluates ? ", evaluates" : "") << std::endl;
}

// Makes two of them, one after the other.
void run_strategies() {
  for (int i = 0; i < 2; ++i) {
    lockstep::MultiWorkerMirroredStrategy strategy;
    std::cout << strategy.num_replicas_in_sync() << ": " << strategy.reduce("SUM", strategy.run([] { return 1; }))
              << std::endl;
  }
}

// Every step adds 1 for each worker. Those that are left take the variable into two replicas of their own.
void outlive(lockstep::Session& session, int dies) {
  lockstep::MultiWorkerMirroredStrategy strategy(session);
  lockstep::Variable variable = [&] {
    const lockstep::Scope scope = strategy.scope();
    return lockstep::Variable(0.F, {.name = "w", .aggregation = lockstep::Aggregation::sum});
  }();
  try {
    for (int step = 1;; ++step) {
      strategy.run([&] {
        if (step == 3 && session.rank() == dies) die();
        variable.assign_add(1.F);
      });
    }
  } catch (const lockstep::ReplicaError& error) {
    std::cout << error.what() << std::endl;
  }
  lockstep::MirroredStrategy own(2);
  own.adopt(strategy);
  own.run([&] { variable.assign_add(1.F); });
  std::cout << "w is " << variable.read().item() << " in " << variable.strategy().describe() << std::endl;
}

void run(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "strategy") return run_strategies();
  const int steps = argc > 1 ? std::atoi(argv[1]) : 1;
  const std::chrono::milliseconds pause(argc > 2 ? std::atoi(argv[2]) : 0);
  lockstep::StartOptions options;
  if (argc > 3) options.session.purpose = argv[3];
  lockstep::TaskSession session = lockstep::start(argc, argv, std::move(options));
  if (argc > 1 && std::string_view(argv[1]) == "role") return say_role(session);
  lockstep::Communicator& world = session.world();
  if (std::string_view(argv[1]) == "burst") return burst(world, std::atoi(argv[2]));
  if (std::string_view(argv[1]) == "outlive") return outlive(session, std::atoi(argv[2]));
  if (std::string_view(argv[1]) == "die") return wait_for_death(world, std::atoi(argv[2]));
  std::cout << "rank " << world.rank() << " of " << world.size() << std::endl;
  for (int step = 1; step <= steps; ++step) {
    std::this_thread::sleep_for(pause);
    std::vector<int> number(1000, step);
    world.all_reduce(number, lockstep::sum);
    if (number[999] != step * world.size()) throw std::logic_error("a wrong sum");
    std::cout << "step " << step << std::endl;
  }
  std::cout << "done" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const lockstep::Error& error) {
    std::cerr << error.what() << std::endl;
    return static_cast<int>(exit_of(error.code()));
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
