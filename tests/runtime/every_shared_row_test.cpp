// SPDX-License-Identifier: Apache-2.0
// Data that the processes of a node share, under every strategy and layout.
#include <atomic>
#include <chrono>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <thread>

#include "collectives/communicator/local.hpp"
#include "runtime/distributed_dataset.hpp"
#include "runtime/shared_on_node.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/support/files_of_no_bytes.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

using Array = Tensor<std::int64_t>;

// The columns of /proc/self/maps for an address.
struct Mapping {
  std::string access;
  std::uint64_t inode = 0;
};
Mapping mapping_of(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    Mapping found;
    std::string skipped;
    words >> std::hex >> begin >> dash >> end >> found.access >> skipped >> skipped >> std::dec >> found.inode;
    const auto place = reinterpret_cast<std::uintptr_t>(address);
    if (begin <= place && place < end) return found;
  }
  return {};
}

std::vector<detail::LoadedTensor> load() {
  const auto make = [] { return row<std::int64_t>({3, 4}); };
  return detail::load_tensors<Array>(make);
}
bool are_loaded(const std::vector<detail::LoadedTensor>& all) {
  std::int64_t values[2] = {};
  if (all.size() == 1 && all[0].shape == TensorShape{2}) std::memcpy(values, all[0].elements.get(), sizeof values);
  return values[0] == 3 && values[1] == 4;
}

class SharedRows : public EveryLayout {
 protected:
  Communicator& processes() { return strategy->channel(Channel::checkpoints); }
  template <class T>
  std::vector<T> of_all(T mine) {
    std::vector<T> all(static_cast<std::size_t>(processes().size()));
    processes().all_gather(std::span(&mine, 1), all);
    return all;
  }
  int total(int mine) {
    processes().all_reduce(std::span(&mine, 1), sum);
    return mine;
  }
  int nodes() {
    std::set<int> all;
    for (const int rank : processes().ranks()) all.insert(processes().topology().member(rank).node);
    return static_cast<int>(all.size());
  }
  // The same by another channel, whose nodes may share no memory, or which waits for a short time only.
  std::vector<detail::LoadedTensor> share(bool node_memory, TimeSpan timeout, const detail::LoadTensors& load) {
    CommunicatorOptions options = processes().options();
    options.node_memory = node_memory;
    options.timeout = timeout;
    Communicator channel = processes().duplicate(options);
    const Log log(LogLevel::warn, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
    return detail::share_on_node(channel, log, {DataType::i64}, load);
  }
  std::vector<detail::LoadedTensor> load_counted() {
    ++loads;
    return load();
  }

  int loads = 0;
  std::vector<std::string> lines;
};

TEST_P(SharedRows, AreLoadedOnceOnEachNode) {
  const auto shared = strategy->shared_on_node([&] {
    ++loads;
    Array x({5, 2});
    std::iota(x.begin(), x.end(), 10);
    return std::tuple(std::move(x), std::pair(row({1.F, 2.F, 3.F, 4.F, 5.F}), Tensor<bool>(TensorShape{0, 3})));
  });
  const bool node_memory = processes().options().node_memory;
  EXPECT_EQ(total(loads), node_memory ? nodes() : processes().size());
  const auto& [x, rest] = shared;
  EXPECT_EQ(x.tensor().copy(), Array({5, 2}, {10, 11, 12, 13, 14, 15, 16, 17, 18, 19}));
  EXPECT_EQ(rest.first.rows(3, 2).copy(), row({4.F, 5.F}));
  EXPECT_EQ(rest.second.shape(), (TensorShape{0, 3}));
  const Mapping mapping = mapping_of(x.data());
  const std::vector<std::uint64_t> inodes = of_all(mapping.inode);
  if (processes().size() == 1 || nodes() > 1 || !node_memory) return;
  EXPECT_EQ(mapping.access, "r--s") << "no process can change them";
  EXPECT_EQ(std::set(inodes.begin(), inodes.end()).size(), 1U) << "all processes have the same memory";
}

TEST_P(SharedRows, AreASourceThatKeepsThem) {
  auto shared = std::make_optional(strategy->shared_on_node([] {
    Array x(TensorShape{40});
    std::iota(x.begin(), x.end(), 0);
    return x;
  }));
  const std::weak_ptr<const std::int64_t> memory = shared->elements();
  {
    const auto dataset = strategy->distribute(data::from_tensor_slices(*shared).shuffle(40).batch(16));
    shared.reset();
    std::int64_t sum_of_rows = 0;
    for (const auto& batch : dataset)
      for (const std::int64_t each : strategy->gather(batch, 0)) sum_of_rows += each;
    EXPECT_EQ(sum_of_rows, 40 * 39 / 2);
    EXPECT_FALSE(memory.expired());
  }
  EXPECT_TRUE(memory.expired()) << "the last data set frees them";
}

TEST_P(SharedRows, WhoseLoaderThrowsAreAnErrorOnAll) {
  const auto fail = [&]() -> Array {
    if (first() == 0) throw std::runtime_error("no such file");
    return {};
  };
  if (processes().size() == 1) {
    EXPECT_THROW((void)strategy->shared_on_node(fail), std::runtime_error) << "a single process gets its own exception";
    return;
  }
  EXPECT_PRED2(holds, refusal([&] { (void)strategy->shared_on_node(fail); }, Code::remote),
               "the loader of shared_on_node() threw in process 0: no such file");
  const auto refuse = [&]() -> Array { throw Error(Code::file, "digits has 3 bytes", "write it again"); };
  EXPECT_PRED2(holds, refusal([&] { (void)strategy->shared_on_node(refuse); }, Code::file),
               "process 0: digits has 3 bytes -> write it again");
  EXPECT_EQ(strategy->shared_on_node([] { return Array(7); })[0], 7) << "and all go on";
}

TEST_P(SharedRows, OfTwoTypesAreAMismatch) {
  if (is_in_one_process()) GTEST_SKIP() << lacks("two processes, of which one loads another type");
  end_calls();
  const auto load = [&] {
    if (first() == 0)
      (void)strategy->shared_on_node([] { return Array(1); });
    else
      (void)strategy->shared_on_node([] { return Tensor<float>(1.F); });
  };
  EXPECT_PRED2(holds, refusal(load, Code::mismatch), "process 0 and process 1 differ");
  EXPECT_EQ(strategy->shared_on_node([] { return Array(7); })[0], 7) << "and all go on";
  end_calls();
  const auto leave_out = [&] {
    if (first() == 0)
      (void)strategy->distribute(data::range(9).batch(3)).open();
    else
      (void)strategy->shared_on_node([] { return Array(1); });
  };
  refusal(leave_out, Code::mismatch);
  end_calls();
}

TEST_P(SharedRows, AreLoadedByEachProcessIfNodesShareNoMemory) {
  EXPECT_TRUE(are_loaded(share(false, {}, [&] { return load_counted(); })));
  EXPECT_EQ(loads, 1);
  if (processes().size() == 1 || nodes() > 1) return;
  const bool is_first = first() == 0;
  EXPECT_EQ(lines.size(), is_first ? 1U : 0U);
  if (is_first) {
    EXPECT_PRED2(holds, lines[0],
                 text(of_all(0).size(), " processes have copies of their own; process 0: LOCKSTEP_NODE"));
  } else {
    of_all(0);
  }
}

TEST_P(SharedRows, AreLoadedByEachProcessIfTheFirstGetsNoMemory) {
  std::optional<FilesOfNoBytes> limit;
  const auto all = share(true, {}, [&] {
    if (loads == 0 && first() == 0) limit.emplace();
    return load_counted();
  });
  limit.reset();
  EXPECT_TRUE(are_loaded(all));
  EXPECT_EQ(loads, 1);
  if (first() == 0 && processes().size() > 1 && nodes() == 1) {
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_PRED2(holds, lines[0], "process 1: ");
    EXPECT_PRED2(holds, lines[0], "File too large");
  }
}

TEST_P(SharedRows, MayTakeLongerThanACallMayWait) {
  if (is_in_one_process()) GTEST_SKIP() << lacks("a process that waits for another one's loader");
  EXPECT_TRUE(are_loaded(share(true, std::chrono::seconds(1), [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return load_counted();
  })));
}

TEST(SharedRowsOfThreads, AreLoadedOnce) {
  std::atomic<int> loads = 0;
  run_members(local_topology(3), [&](Communicator& world) {
    EXPECT_TRUE(are_loaded(detail::share_on_node(world, Log(LogLevel::off), {DataType::i64}, [&] {
      ++loads;
      return load();
    })));
  });
  EXPECT_EQ(loads, 1);
}

// An exception may have no text, and a loader may return too few tensors.
TEST(SharedRowsOfThreads, AreAnErrorOnAllWhateverTheLoaderDoes) {
  using Loaded = std::vector<detail::LoadedTensor>;
  run_members(local_topology(3), [&](Communicator& world) {
    const auto message = [&](const detail::LoadTensors& load, Code code) {
      return refusal([&] { detail::share_on_node(world, Log(LogLevel::off), {DataType::i64}, load); }, code);
    };
    EXPECT_PRED2(holds, message([]() -> Loaded { throw std::runtime_error(""); }, Code::remote),
                 "threw in process 0: an exception without a text");
    EXPECT_PRED2(holds, message([] { return Loaded(); }, Code::internal), "the loader returned 0 tensors of 1");
  });
}

INSTANTIATE_TEST_SUITE_P(All, SharedRows, testing::ValuesIn(layouts()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
