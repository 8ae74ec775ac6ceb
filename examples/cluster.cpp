// SPDX-License-Identifier: Apache-2.0
// Runs the tasks of a cluster without mpirun. Each process reads its task from TF_CONFIG, waits for all other tasks,
// and ends with them. Worker 0 calls a function of every other task by its name.
//
//   export TF_CONFIG='{"cluster": {"worker": ["localhost:12345"], "ps": ["localhost:23456"]}, "task": {"type": "ps",
//   "index": 0}}' cluster & export TF_CONFIG='{"cluster": {"worker": ["localhost:12345"], "ps": ["localhost:23456"]},
//   "task": {"type": "worker", "index": 0}}' cluster
#include <lockstep.hpp>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

namespace {

std::chrono::seconds seconds_from(int count, char** words, int which, int otherwise) {
  return std::chrono::seconds(count > which ? std::atoi(words[which]) : otherwise);
}

void run(int argc, char** argv) {
  using namespace lockstep;
  const auto resolver = find_resolver(nullptr, Log());
  const auto me = resolver ? resolver->task() : std::nullopt;
  if (!me)
    throw Error(Code::cluster, resolver ? "TF_CONFIG does not say which task this is" : "there is no cluster",
                "set TF_CONFIG, as the head of examples/cluster.cpp shows");
  const ClusterSpec cluster = resolver->cluster_spec();
  check_roles(cluster, me);

  Server server(cluster, me->type, me->index, {.lost_after = seconds_from(argc, argv, 2, 30)});
  server.functions().add("square", [](double x) { return x * x; });
  server.start();
  std::cout << me->type << ' ' << me->index << " is at " << server.target() << std::endl;
  server.wait_for_all(seconds_from(argc, argv, 1, 60));
  if (me->type == "evaluator" || !is_chief(cluster, *me)) {
    server.join();
    std::cout << "all is over" << std::endl;
    return;
  }
  for (const auto& [job, tasks] : cluster.jobs()) {
    for (const auto& [index, address] : tasks) {
      if (Task{job, index} == *me || job == "evaluator") continue;  // evaluators come and go
      const auto client = rpc::Client::create("grpc", address);
      const auto square = client->call_blocking<double>("square", 7.0);
      std::cout << job << ' ' << index << " says that 7 x 7 is " << square << std::endl;
    }
  }
  std::this_thread::sleep_for(seconds_from(argc, argv, 3, 0));
  server.shut_down_all();
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
