// SPDX-License-Identifier: Apache-2.0
// What data on a GPU is held against where the MPI library does not know GPUs: its own way and the fastest that it can
// be told to take, on the host's buffers, with copies down and up. The GPU is of the tests' own making.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "bench/bench.hpp"
#include "bench/mpi/forced.hpp"
#include "bench/mpi/mpi_baseline.hpp"
#include "collectives/gpu/memory.hpp"
#include "tests/collectives/communicator/all_ranks.hpp"
#include "tests/collectives/gpu/fake_gpus.hpp"
#include "tests/support/lacks.hpp"

namespace lockstep::test {
namespace {

class GpuBaselines : public NeedsRanks<2> {};

TEST_F(GpuBaselines, OfTheBestMpiAreStaged) {
  const gpu::BackendOverride gpus(std::make_unique<FakeGpus>(1));
  auto& fake = static_cast<FakeGpus&>(gpus.backend());
  Communicator all = all_ranks();
  bench::MpiBaseline mpi({std::chrono::seconds(10), std::chrono::seconds(60)}, Log(LogLevel::off));
  for (const std::string name : {"mpi", "mpi:best"}) {
    bench::BenchOptions options{.subjects = {bench::Subject{}}, .sizes = {4096}};
    options.effort = {.seconds = 0.05, .samples = 10};
    options.gpu = bench::choose_gpu(all);
    int calls = 0;
    int last = 0;
    int least = 1000;  // copies from one call to the next
    options.baselines.emplace_back(name, [&](const bench::Subject& of, bench::Buffers& on) {
      auto made = name == "mpi" ? mpi.candidate(of, on) : mpi.best(of, on);
      if (!made) return made;
      made->once = [&, once = std::move(made->once)] {
        if (++calls > 1) least = std::min(least, fake.copies() - last);
        last = fake.copies();
        once();
      };
      return made;
    });
    bench::BenchRun run;
    bench::run_bench(all, options, run, [](const bench::BenchRun&) {});
    ASSERT_EQ(run.rows.size(), 1U);
    const bench::Row& row = run.rows.front();
    EXPECT_EQ(row.check.wrong, 0U);
    ASSERT_EQ(row.baselines.size(), 1U);
    EXPECT_EQ(row.baselines.front().name, name);
    EXPECT_GT(row.baselines.front().time.median, 0);
    EXPECT_EQ(row.baselines.front().algorithm.empty(), name == "mpi") << "it says which was the fastest";
    EXPECT_GE(calls, 10);
    EXPECT_GE(least, 2) << "one up behind each and one down ahead of the next";
  }
}

class MpiBaselines : public NeedsRanks<2> {};

TEST_F(MpiBaselines, YieldOnlyWhileTheyAreMeasured) {
  if (bench::yields_when_idle() != false || std::getenv("OMPI_MCA_mpi_yield_when_idle") != nullptr)
    GTEST_SKIP() << lacks("needs an Open MPI that does not yield");
  bench::Buffers buffers({.count = 2}, world().size(), world().rank());
  const auto yields_in_call = [&](bool shares_cores) {
    bench::MpiBaseline mpi({std::chrono::seconds(10), std::chrono::seconds(60)}, Log(LogLevel::off), shares_cores);
    EXPECT_EQ(mpi.tells_to_yield(), shares_cores);
    const auto candidate = mpi.candidate({.count = 2}, buffers);
    if (candidate->before) candidate->before();
    candidate->once();
    const bool yields = bench::yields_when_idle() == true;
    if (candidate->after) candidate->after();
    EXPECT_EQ(bench::yields_when_idle(), false);
    return yields;
  };
  EXPECT_TRUE(yields_in_call(true));
  EXPECT_FALSE(yields_in_call(false));
}

}  // namespace
}  // namespace lockstep::test
