// SPDX-License-Identifier: Apache-2.0
// Measures the memory of data that the processes of a node share: the sum of their proportional shares of pages (Pss),
// less that before they load. All of them read every row through shuffle and batch. It prints the sum and its ratio to
// the data. The argument is the data's size in MiB (default: 256). The exit code is 3 if the ratio exceeds 1.1.
//   mpirun -n 4 build/bench/shared_memory
#include <cstdint>
#include <fstream>
#include <iostream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "bench/number_text.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/shared_on_node.hpp"
#include "runtime/start.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace {

using namespace lockstep;
using bench::number_text::counted;

constexpr double most = 1.1;
constexpr std::int64_t numbers_in_row = 1024;
constexpr std::int64_t mebibyte = 1 << 20;

// Returns this process's share of its pages, in bytes. Throws Error file if the system does not tell.
std::int64_t proportional_set_size() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string word; rollup >> word;) {
    std::int64_t kib = 0;
    if (word == "Pss:" && rollup >> kib) return kib * 1024;
  }
  throw Error(Code::file, "/proc/self/smaps_rollup has no Pss", "run on Linux 4.14 or newer");
}

// Returns the sum over all processes while none of them changes its memory.
std::int64_t memory_of_all(Communicator& processes) {
  processes.barrier();
  std::int64_t bytes = proportional_set_size();
  processes.all_reduce(std::span(&bytes, 1), sum);
  return bytes;
}

int nodes_of(const Topology& topology) {
  std::set<int> all;
  for (int rank = 0; rank < topology.size(); ++rank) all.insert(topology.member(rank).node);
  return static_cast<int>(all.size());
}

// Returns rows whose first numbers are their own.
Tensor<float> make_rows(std::int64_t rows) {
  Tensor<float> all({rows, numbers_in_row}, 1.F);
  for (std::int64_t i = 0; i < rows; ++i) all[static_cast<std::size_t>(i * numbers_in_row)] = static_cast<float>(i);
  return all;
}

// Reads every row. Throws Error corrupt if one is missing.
void read_all(const SharedTensor<float>& rows) {
  const std::int64_t number = rows.shape()[0];
  double total = 0;
  for (const Tensor<float>& batch : data::from_tensor_slices(rows).shuffle(number, {.seed = 1}).batch(64)) {
    for (std::int64_t i = 0; i < batch.shape()[0]; ++i) total += batch[static_cast<std::size_t>(i * numbers_in_row)];
  }
  const auto expected = static_cast<double>(number) * static_cast<double>(number - 1) / 2;
  if (total != expected) throw Error(Code::corrupt, text("the sum of rows is ", total, " instead of ", expected));
}

int measure(std::int64_t mebibytes) {
  Session session = start();
  MultiWorkerMirroredStrategy strategy(session);
  Communicator& processes = strategy.channel(Channel::checkpoints);
  read_all(SharedTensor<float>(make_rows(64)));
  const std::int64_t before = memory_of_all(processes);
  const std::int64_t number = mebibytes * mebibyte / (numbers_in_row * std::int64_t{sizeof(float)});
  const SharedTensor<float> rows = strategy.shared_on_node([&] { return make_rows(number); });
  read_all(rows);
  const std::int64_t taken = memory_of_all(processes) - before;
  processes.barrier();  // All have measured before one of them frees its share.
  const int nodes = nodes_of(session.topology());
  const auto data = static_cast<double>(rows.size() * sizeof(float)) * nodes;
  const double ratio = static_cast<double>(taken) / data;
  if (session.rank() == 0)
    std::cout << text(counted(static_cast<std::size_t>(session.size()), "rank"), " on ",
                      counted(static_cast<std::size_t>(nodes), "node"), ", ", mebibytes,
                      " MiB of rows for each node: ", taken / mebibyte, " MiB of memory (Pss), ratio ", ratio,
                      ", limit ", most, '\n');
  return static_cast<int>(ratio <= most ? Exit::success : Exit::gate);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return measure(argc > 1 ? std::stol(argv[1]) : 256);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(Exit::usage);
  }
}
