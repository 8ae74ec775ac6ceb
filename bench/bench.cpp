// SPDX-License-Identifier: Apache-2.0
#include "bench/bench.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>

#include "bench/compare.hpp"
#include "bench/statistics.hpp"
#include "collectives/communicator/team.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

std::uint64_t free_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kib = 0;
  std::string unit;
  while (file >> name >> kib >> unit) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return ~std::uint64_t{0};
}

// All members alike, or one would end and the others wait.
void refuse_too_large(Communicator& world, const Wish& wish) {
  std::uint64_t needed = 0;
  for (const Subject& each : wish.subjects) {
    for (const std::uint64_t size : wish.sizes) {
      Subject subject = each;
      subject.count = count_of(each.collective, each.type, size, world.size());
      needed = std::max(needed, 2 * Buffers::memory(subject, world.size()));  // and as much for what is staged
    }
  }
  const Topology& topology = world.topology();
  const auto here = static_cast<std::uint64_t>(std::ranges::count_if(world.ranks(), [&](int rank) {
    return topology.member(rank).node == topology.member(world.ranks()[static_cast<std::size_t>(world.rank())]).node;
  }));
  std::array<std::uint64_t, 2> most = {needed * here, ~free_memory()};
  world.all_reduce(most, max);
  if (most[0] <= ~most[1]) return;
  throw Error(Code::out_of_memory,
              text("the largest size needs ", most[0] >> 20U, " MiB on a node, but ", ~most[1] >> 20U, " MiB are free"),
              "give a smaller end (-e), or fewer members on each node");
}

struct Floors {
  double message_us = 0;  // the least that any of two members that need each other can take
};

Floors measure_floors(Communicator& world, const Wish& wish) {
  Floors floors;
  if (world.size() == 1) return floors;
  char mine = 1;
  char theirs = 0;
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  const Candidate one{"message", [&] { world.sendrecv(std::span(&mine, 1), next, std::span(&theirs, 1), before); }};
  Effort effort = wish.effort;
  effort.seconds = std::min(effort.seconds, 0.2);
  floors.message_us = summarize_blocks(measure(world, {&one, 1}, effort, wish.seed).timings[0].blocks).min;
  return floors;
}

class RowMaker {
 public:
  RowMaker(Communicator& world, const Wish& wish, const Subject& subject, const Floors& floors)
      : world_(world), wish_(wish), subject_(subject), floors_(floors), buffers_(subject, world.size(), world.rank()) {}

  Row measure_it(bool& interrupted) {
    row_.collective = to_string(subject_.collective);
    row_.bytes = bytes_of(subject_, world_.size());
    row_.count = subject_.collective == Collective::barrier ? 0 : subject_.count;
    row_.type = to_string(subject_.type);
    if (reduces_data(subject_.collective)) row_.op = to_string(subject_.op);
    if (has_root(subject_.collective)) row_.root = subject_.root;
    row_.in_place = subject_.in_place;
    const detail::Ask ask = buffers_.ask();
    row_.algorithm = world_.team()->prepare(ask).call.plan->algorithm;
    candidates_.push_back({"ours", [this, ask] { world_.team()->run(ask); }});
    if (wish_.check) verify();
    buffers_.fill();
    const std::size_t copy = add_copy();
    std::vector<std::size_t> which;
    for (const auto& [name, make] : wish_.baselines) {
      auto made = make(subject_, buffers_);
      const bool all = world_.all_reduce(made ? 1 : 0, min) == 1;  // what one cannot do, none does
      which.push_back(all ? candidates_.size() : 0);
      if (all) candidates_.push_back(std::move(*made));
    }
    const Measured measured = measure(world_, candidates_, wish_.effort, wish_.seed + row_.bytes);
    interrupted = measured.interrupted;
    note_times(measured, copy);
    for (std::size_t i = 0; i < which.size(); ++i) {
      if (which[i] == 0) continue;
      row_.baselines.push_back({.name = wish_.baselines[i].first,
                                .algorithm = {},
                                .time = summarize_blocks(measured.timings[which[i]].blocks),
                                .ratio = ratio_of(measured, which[i])});
    }
    for (const auto& [name, run] : wish_.earlier) add_earlier(name, run);
    if (wish_.check && row_.check.wrong == 0) verify();
    return std::move(row_);
  }

 private:
  void verify() {
    buffers_.fill();
    candidates_.front().once();
    std::uint64_t bits = 0;
    std::uint64_t wrong = buffers_.count_wrong(bits);
    wrong = world_.all_reduce(wrong, sum);
    const Collective collective = subject_.collective;
    const bool alike = collective == Collective::all_reduce || collective == Collective::all_gather ||
                       collective == Collective::broadcast;
    const std::uint64_t least = world_.all_reduce(bits, min);
    const std::uint64_t most = world_.all_reduce(bits, max);
    row_.check.wrong = std::max(row_.check.wrong, wrong);
    if (alike && least != most) row_.check.ranks_equal = false;
    const std::uint64_t all = world_.all_reduce(bits * (2 * static_cast<std::uint64_t>(world_.rank()) + 1), bit_xor);
    row_.check.hash = hex(all);
  }

  static std::string hex(std::uint64_t value) {
    std::array<char, 17> digits{};
    for (std::size_t i = 0; i < 16; ++i) digits[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15U];
    return digits.data();
  }

  // Copying as many bytes as a block has, by all members at once: what the memory can do for data of this size.
  std::size_t add_copy() {
    const std::size_t bytes = subject_.collective == Collective::barrier ? 0 : row_.bytes;
    if (bytes == 0) return 0;
    from_.assign(bytes, std::byte{1});
    to_.assign(bytes, std::byte{0});
    candidates_.push_back({"copy", [this] {
                             std::memcpy(to_.data(), from_.data(), from_.size());
                             asm volatile("" : : "r"(to_.data()) : "memory");
                           }});
    return candidates_.size() - 1;
  }

  void note_times(const Measured& measured, std::size_t copy) {
    row_.time = summarize_blocks(measured.timings.front().blocks);
    row_.noise = measured.noise;
    if (row_.time.median > 0) row_.algbw = static_cast<double>(row_.bytes) / row_.time.median / 1e3;
    row_.busbw = row_.algbw * bus_factor(subject_.collective, world_.size());
    Limit limit{.us = floors_.message_us, .binding = "lat"};
    if (copy != 0) {
      double traffic = 0;
      for (int rank = 0; rank < world_.size(); ++rank)
        traffic = std::max(traffic, least_traffic(subject_, world_.size(), rank));
      const double copied = 2 * static_cast<double>(row_.bytes);
      const double us = summarize_blocks(measured.timings[copy].blocks).median * traffic / copied;
      if (us > limit.us) limit = {.us = us, .binding = "mem"};
    }
    if (limit.us > 0) row_.limit = limit;
    name_slowest(measured.timings.front().rank_medians);
  }

  void name_slowest(const std::vector<double>& medians) {
    const auto slowest = std::ranges::max_element(medians);
    std::vector<double> sorted = medians;
    std::ranges::sort(sorted);
    const double middle = quantile(sorted, 0.5);
    constexpr double telling = 5;
    const double percent = middle > 0 ? 100 * (*slowest / middle - 1) : 0;
    if (medians.size() < 2 || percent < telling) return;
    row_.slowest_rank = static_cast<int>(slowest - medians.begin());
    row_.slowest_percent = percent;
  }

  void add_earlier(const std::string& name, const Run& run) {
    const auto same = [&](const Row& row) {
      return row.collective == row_.collective && row.bytes == row_.bytes && row.type == row_.type &&
             row.op == row_.op && row.root == row_.root && row.in_place == row_.in_place && row.cold == row_.cold;
    };
    const auto found = std::ranges::find_if(run.rows, same);
    if (found == run.rows.end() || found->time.median <= 0 || row_.time.median <= 0) return;
    // Not measured in turns: both intervals count.
    const auto spread = [](const Summary& time) {
      return std::max(std::log(time.ci.high / time.median), std::log(time.median / std::max(time.ci.low, 1e-9)));
    };
    const double both = std::hypot(spread(found->time), spread(row_.time));
    const double ratio = found->time.median / row_.time.median;
    row_.baselines.push_back(
        {.name = name,
         .algorithm = found->algorithm,
         .time = found->time,
         .ratio = {.value = ratio, .ci = {ratio * std::exp(-both), ratio * std::exp(both)}, .blocks = 0}});
    if (!found->check.hash.empty() && !row_.check.hash.empty()) row_.check.same = found->check.hash == row_.check.hash;
  }

  Communicator& world_;
  const Wish& wish_;
  Subject subject_;
  Floors floors_;
  Buffers buffers_;
  std::vector<Candidate> candidates_;
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
  Row row_;
};

}  // namespace

std::optional<Candidate> copy_candidate(const Subject& subject, Buffers& buffers) {
  const std::size_t bytes = std::min(buffers.input_count(), buffers.output_count()) * size_of(subject.type);
  if (subject.in_place || bytes == 0) return std::nullopt;
  return Candidate{"memcpy", [from = buffers.input(), to = buffers.output(), bytes] {
                     std::memcpy(to, from, bytes);
                     asm volatile("" : : "r"(to) : "memory");
                   }};
}

void run_bench(Communicator& world, const Wish& wish, Run& run, const std::function<void(const Run&)>& show) {
  refuse_too_large(world, wish);
  const Floors floors = measure_floors(world, wish);
  if (floors.message_us > 0) run.limits.push_back({"message to a neighbour, us", text(floors.message_us)});
  for (const Subject& each : wish.subjects) {
    std::vector<std::uint64_t> sizes = wish.sizes;
    if (each.collective == Collective::barrier) sizes = {0};
    std::size_t last = ~std::size_t{0};
    for (const std::uint64_t size : sizes) {
      Subject subject = each;
      subject.count = count_of(each.collective, each.type, size, world.size());
      const bool nothing = subject.count == 0 && each.collective != Collective::barrier;
      if (nothing || subject.count == last) continue;
      last = subject.count;
      bool interrupted = false;
      run.rows.push_back(RowMaker(world, wish, subject, floors).measure_it(interrupted));
      run.interrupted = interrupted;
      show(run);
      if (interrupted || run.rows.back().check.wrong > 0 || !run.rows.back().check.ranks_equal) return;
    }
  }
}

void conclude(Run& run) {
  const auto wrong =
      std::ranges::count_if(run.rows, [](const Row& row) { return row.check.wrong > 0 || !row.check.ranks_equal; });
  const auto noisy = std::ranges::count_if(run.rows, [](const Row& row) { return row.noise.noisy; });
  if (wrong > 0) {
    run.exit_code = 2;
    run.verdict = text("wrong data in ", wrong, wrong == 1 ? " row" : " rows");
  } else if (run.rows.empty()) {
    run.exit_code = 7;
    run.verdict = "nothing was measured";
  } else if (run.interrupted) {
    run.exit_code = 7;
    run.verdict = "ended early; the rows above are whole";
  } else if (2 * noisy > static_cast<std::ptrdiff_t>(run.rows.size())) {
    run.exit_code = 7;
    run.verdict = text(noisy, " of ", run.rows.size(), " rows were disturbed by other work on the machine");
  } else {
    run.verdict = text("all results right in ", run.rows.size(), run.rows.size() == 1 ? " row" : " rows");
  }
}

}  // namespace lockstep::bench
