// SPDX-License-Identifier: Apache-2.0
// Measures what a program pays before and around its calls: the set-up of a session and its world, a second session, a
// split, the memory of a communicator, and the three forms of a small call. The ranks run the three forms in turns. The
// set-up of the first session happens once in a process, so its row has one sample for each launch.
#include <malloc.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <functional>
#include <iostream>
#include <lockstep.hpp>
#include <lockstep_mpi.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "topology/base/text.hpp"

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

constexpr int rounds = 31;  // of the candidates, which take turns

// Returns text such as "0.28 us [0.27, 0.30]": the median and the quartiles.
std::string spread_text(std::vector<double> values, std::string_view unit) {
  std::ranges::sort(values);
  const auto at = [&](std::size_t quarter) {
    return with_decimals(values[(values.size() - 1) * quarter / 4], 3);  // of 3 digits, since some are under 1
  };
  return text(at(2), unit, " [", at(1), ", ", at(3), ']');
}

double microseconds(const std::function<void()>& what, int times = 1) {
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i) what();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / times;
}

// Returns the private memory of this process and its share of shared memory, in KiB.
double kept_kib() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Pss:")) return std::strtod(line.c_str() + 4, nullptr);
  }
  return 0;
}

class StartBench {
 public:
  explicit StartBench(Communicator& world) : world_(world) {}

  // Returns the slowest rank's value.
  double slowest(double mine) { return world_.all_reduce(mine, max); }
  void say(std::string_view what, const std::string& value) const {
    if (world_.rank() == 0)
      std::cout << what << std::string(44 - std::min<std::size_t>(43, what.size()), ' ') << value << std::endl;
  }

  // Runs the ways in turns, and prints a row for each. A sample is the slowest rank's mean of `times` calls.
  void in_turns(const std::vector<std::pair<std::string, std::function<void()>>>& ways, int times) {
    std::vector<std::vector<double>> taken(ways.size());
    for (const auto& [name, way] : ways) microseconds(way, times / 4 + 1);
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < ways.size(); ++i) {
        world_.barrier();
        taken[i].push_back(slowest(microseconds(ways[i].second, times)));
      }
    }
    std::vector<double> ratios(rounds);
    for (std::size_t i = 0; i < ways.size(); ++i) {
      for (std::size_t round = 0; round < rounds; ++round) ratios[round] = taken[i][round] / taken[0][round];
      say(ways[i].first,
          text(spread_text(taken[i], " us"), i == 0 ? "" : text(", times the first: ", spread_text(ratios, ""))));
    }
  }

  void calls(std::size_t bytes) {
    const std::size_t count = bytes / sizeof(float);
    std::vector<float> in(count, 1);
    std::vector<float> out(count);
    PreparedCall prepared = world_.plan_all_reduce(in, out, sum);
    const int times = bytes < 4096 ? 2000 : 500;
    in_turns({{text("all_reduce of ", bytes, " B, plain"), [&] { world_.all_reduce(in, out, sum); }},
              {"    prepared, run", [&] { prepared.run(); }},
              {"    begun and awaited", [&] { world_.all_reduce_async(in, out, sum).wait(); }},
              {"    prepared, begun and awaited", [&] { prepared.start().wait(); }}},
             times);
  }

  void forms(std::size_t bytes) {
    const auto n = static_cast<std::size_t>(world_.size());
    const std::size_t count = bytes / sizeof(float);
    std::vector<float> one(count, 1);
    std::vector<float> all(count * n);
    SymmetricBuffer<float> shared_in = world_.allocate<float>(count);
    SymmetricBuffer<float> shared_out = world_.allocate<float>(count);
    PreparedCall gather = world_.plan_gather(one, all, 0);
    PreparedCall scatter = world_.plan_scatter(all, one, 0);
    PreparedCall spread = world_.plan_all_gather(one, all);
    PreparedCall symmetric = world_.plan_all_reduce(shared_in, shared_out, sum);
    Batch batch(world_);
    batch.all_reduce(std::span(one), sum).all_reduce(std::span(all), sum);
    constexpr int times = 500;
    const auto and_barrier = [this](const std::function<void()>& call) {
      return [this, call] {
        call();
        world_.barrier();
      };
    };
    in_turns({{text("gather of ", bytes, " B and a barrier, plain"), and_barrier([&] { world_.gather(one, all, 0); })},
              {"    prepared, run", and_barrier([&] { gather.run(); })}},
             times);
    in_turns(
        {{text("scatter of ", bytes, " B and a barrier, plain"), and_barrier([&] { world_.scatter(all, one, 0); })},
         {"    prepared, run", and_barrier([&] { scatter.run(); })}},
        times);
    in_turns({{text("all_gather of ", bytes, " B, plain"), [&] { world_.all_gather(one, all); }},
              {"    prepared, run", [&] { spread.run(); }}},
             times);
    in_turns(
        {{text("symmetric all_reduce of ", bytes, " B, plain"), [&] { world_.all_reduce(shared_in, shared_out, sum); }},
         {"    prepared, run", [&] { symmetric.run(); }}},
        times);
    in_turns({{text("two all_reduces of ", bytes, " B, plain"),
               [&] {
                 world_.all_reduce(std::span(one), sum);
                 world_.all_reduce(std::span(all), sum);
               }},
              {"    as one batch, run", [&] { batch.run(); }}},
             times);
  }

  void splits() {
    std::deque<Communicator> kept;
    in_turns({{"split of all ranks", [&] { kept.push_back(*world_.split(0, world_.rank())); }}}, 10);
    kept.clear();
  }

  void sessions() {
    std::deque<Session> kept;
    in_turns({{"a second session_over", [&] { kept.push_back(session_over(MPI_COMM_WORLD)); }},
              {"a second session_over and its world",
               [&] {
                 kept.push_back(session_over(MPI_COMM_WORLD));
                 kept.back().world();
               }}},
             1);
  }

  // Prints what a process keeps for a communicator after a large call, and after other communicators were used a while.
  void memory() {
    constexpr int many = 16;
    std::vector<float> data(std::size_t{256} * 1024 / sizeof(float), 1);
    const auto use = [&](Communicator& made) {
      made.all_reduce(data, sum);
      made.barrier();
    };
    const auto kept_each = [&](double before) {
      world_.barrier();
      const double each = slowest((kept_kib() - before) / many);
      world_.barrier();
      return with_decimals(each, 1);
    };
    std::deque<Communicator> kept;
    kept.push_back(world_.duplicate());
    for (int i = 0; i < 20; ++i) {  // Places in slots rotate, so these two get all of their memory now.
      use(world_);
      use(kept.back());
    }
    world_.barrier();
    const double before = kept_kib();
    world_.barrier();
    for (int i = 0; i < many; ++i) {
      kept.push_back(world_.duplicate());
      use(kept.back());
    }
    const std::string used = kept_each(before);
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    for (int i = 0; i < 2; ++i) {
      use(world_);
      use(kept.front());
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
    }
    const std::string idle = kept_each(before);
    kept.clear();
    say("memory of a used communicator",
        text(used, " KiB for each process; idle: ", idle, "; after its end: ", kept_each(before)));
  }

 private:
  Communicator& world_;
};

int measure(const std::vector<std::string>& which) {
  const auto begin = Clock::now();
  Session session = session_over(MPI_COMM_WORLD);
  const auto connected = Clock::now();
  Communicator& world = session.world();
  const auto made = Clock::now();
  StartBench bench(world);
  const auto wants = [&](std::string_view name) {
    return which.empty() || std::ranges::find(which, name) != which.end();
  };
  const double first = bench.slowest(std::chrono::duration<double, std::milli>(connected - begin).count());
  const double second = bench.slowest(std::chrono::duration<double, std::milli>(made - connected).count());
  const double both = bench.slowest(std::chrono::duration<double, std::milli>(made - begin).count());
  if (wants("start"))
    bench.say("set-up beyond MPI_Init's own time", text(with_decimals(both, 3), " ms: session ",
                                                        with_decimals(first, 3), ", world ", with_decimals(second, 3)));
  if (wants("calls")) {
    for (const std::size_t bytes : {8U, 512U, 8192U}) bench.calls(bytes);
  }
  if (wants("forms")) bench.forms(64);
  if (wants("split")) bench.splits();
  if (wants("session")) bench.sessions();
  if (wants("memory")) bench.memory();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  int code = 0;
  try {
    code = measure({argv + 1, argv + argc});
  } catch (const Error& error) {
    std::cerr << error.what() << std::endl;
    end_job(error.exit());
    return 1;
  }
  MPI_Finalize();
  return code;
}
