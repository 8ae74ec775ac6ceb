// SPDX-License-Identifier: Apache-2.0
// Draws rounds of operations from a seed, runs them, and checks each result.
#include "bench/soak.hpp"

#include <array>
#include <chrono>
#include <cmath>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "bench/measure.hpp"
#include "collectives/communicator/communicator_core.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using Random = std::mt19937_64;

// Draws the same numbers on every platform. The C++ standard does not specify the draws of its distributions.
std::uint64_t below(Random& random, std::uint64_t end) { return end == 0 ? 0 : random() % end; }
double part(Random& random) { return static_cast<double>(random() >> 11U) * 0x1p-53; }

Random random_of(std::uint64_t seed, std::uint64_t what) {
  std::seed_seq all{seed & 0xffffffffU, seed >> 32U, what & 0xffffffffU, what >> 32U};
  return Random(all);
}

// Holds one way to split the world. Every member has its own part of it, or none.
struct SoakCommunicator {
  std::string name;
  std::optional<Communicator> part;
};

std::vector<SoakCommunicator> cuts_of(Communicator& world, Random random) {
  std::vector<SoakCommunicator> cuts;
  cuts.push_back({"a duplicate of the world", world.duplicate()});
  cuts.push_back({"the world in reproducible order", world.reproducible()});
  cuts.push_back({"odd and even ranks", world.split(world.rank() % 2)});
  cuts.push_back({"the world backwards", world.split(0, -world.rank())});
  constexpr int most_parts = 3;
  std::vector<int> colours;
  colours.reserve(static_cast<std::size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank)
    colours.push_back(static_cast<int>(below(random, most_parts + 1)) - 1);
  cuts.push_back({"a random part", world.split(colours[static_cast<std::size_t>(world.rank())])});
  return cuts;
}

struct RandomOperation {
  std::size_t cut;
  Subject subject;
  std::uint64_t root;
  bool blocking;
};

RandomOperation draw(Random& random, std::size_t cuts, std::uint64_t most_bytes) {
  RandomOperation one{.cut = below(random, cuts), .subject = {}, .root = random(), .blocking = below(random, 3) == 0};
  do {
    one.subject.collective = static_cast<Collective>(below(random, collective_count));
    one.subject.type = static_cast<DataType>(below(random, static_cast<std::uint64_t>(DataType::boolean)));
    one.subject.op = static_cast<ReduceOp>(below(random, static_cast<std::uint64_t>(ReduceOp::premul_sum)));
    one.subject.in_place = below(random, 4) == 0;
  } while (!why_not(one.subject).empty());
  const std::uint64_t most = most_bytes / size_of(one.subject.type);
  const double largest = std::log(static_cast<double>(most) + 1);
  one.subject.count = static_cast<std::size_t>(std::exp(part(random) * largest) - 1);
  return one;
}

// Holds one operation in flight.
struct PendingOperation {
  Communicator* where = nullptr;  // null: this member has no part in it
  Subject subject;
  std::unique_ptr<Buffers> buffers;
  std::optional<Request> request;
};

Request start(const PendingOperation& one, int tag) {
  Communicator& here = *one.where;
  Buffers& buffers = *one.buffers;
  if (one.subject.collective != Collective::sendrecv) return {here.core(), here.core()->start(buffers.request())};
  return here.sendrecv_async(buffers.input_bytes(), (here.rank() + 1) % here.size(), buffers.output_bytes(),
                             (here.rank() + here.size() - 1) % here.size(), tag);
}

std::string in_words(const Subject& subject, const std::string& cut) {
  std::string all = text(to_string(subject.collective), " of ", subject.count, ' ', to_string(subject.type));
  if (reduces(subject.collective)) all += text(' ', to_string(subject.op));
  return text(all, subject.in_place ? " in place" : "", " over ", cut);
}

class Soak {
 public:
  Soak(Communicator& world, const SoakOptions& options) : world_(world), options_(options) {}

  void round(std::uint64_t number, SoakResult& result) {
    constexpr std::uint64_t rounds_of_cuts = 16;
    const std::uint64_t epoch = number / rounds_of_cuts;
    if (cuts_.empty() || epoch != epoch_) {
      cuts_.clear();
      cuts_ = cuts_of(world_, random_of(options_.seed ^ 0x5eedU, epoch));
      epoch_ = epoch;
    }
    Random random = random_of(options_.seed, number);
    constexpr std::uint64_t most_at_once = 6;
    const std::uint64_t count = 1 + below(random, most_at_once);
    std::vector<RandomOperation> draws;
    for (std::uint64_t i = 0; i < count; ++i) draws.push_back(draw(random, cuts_.size() + 1, options_.most_bytes));
    std::deque<PendingOperation> all;
    for (std::size_t i = 0; i < draws.size(); ++i) begin(draws[i], static_cast<int>(i), all.emplace_back());
    wait_in_own_order(all, random_of(options_.seed + static_cast<std::uint64_t>(world_.rank()) + 1, number));
    judge(draws, all, number, result);
  }

 private:
  Communicator* part(std::size_t cut) {
    if (cut == cuts_.size()) return &world_;
    return cuts_[cut].part ? &*cuts_[cut].part : nullptr;
  }
  std::string name(std::size_t cut) const { return cut == cuts_.size() ? "the world" : cuts_[cut].name; }

  void begin(const RandomOperation& draw, int tag, PendingOperation& one) {
    one.where = part(draw.cut);
    if (one.where == nullptr) return;
    one.subject = draw.subject;
    one.subject.root = static_cast<int>(draw.root % static_cast<std::uint64_t>(one.where->size()));
    if (has_blocks(one.subject.collective)) one.subject.count /= static_cast<std::size_t>(one.where->size());
    one.buffers = std::make_unique<Buffers>(one.subject, one.where->size(), one.where->rank());
    one.buffers->fill();
    one.request = start(one, tag);
    if (draw.blocking) one.request->wait();
  }

  static void wait_in_own_order(std::deque<PendingOperation>& all, Random random) {
    std::vector<std::size_t> order(all.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[below(random, i)]);
    for (const std::size_t i : order) {
      if (all[i].request && all[i].request->pending()) all[i].request->wait();
    }
  }

  void judge(const std::vector<RandomOperation>& draws, const std::deque<PendingOperation>& all, std::uint64_t number,
             SoakResult& result) {
    std::vector<std::uint64_t> wrong(all.size(), 0);
    std::vector<int> who(all.size(), world_.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].where == nullptr) continue;
      if (options_.spoil) options_.spoil(number, *all[i].buffers);
      std::uint64_t bits = 0;
      wrong[i] = all[i].buffers->count_wrong(bits);
      if (wrong[i] > 0) who[i] = world_.rank();
      result.bytes += bytes_of(all[i].subject, all[i].where->size());
    }
    world_.all_reduce(wrong, sum);
    world_.all_reduce(who, min);
    result.operations += all.size();
    ++result.rounds;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (wrong[i] == 0) continue;
      result.wrong =
          text("round ", number, ", operation ", i + 1, " of ", all.size(), ": ", wrong[i],
               " wrong elements, first on rank ", who[i], ", in ", in_words(draws[i].subject, name(draws[i].cut)));
      return;
    }
  }

  Communicator& world_;
  const SoakOptions& options_;
  std::vector<SoakCommunicator> cuts_;
  std::uint64_t epoch_ = 0;
};

}  // namespace

SoakResult soak(Communicator& world, const SoakOptions& options,
                const std::function<void(const SoakResult&)>& progress) {
  SoakResult result;
  Soak work(world, options);
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t number = options.first_round;; ++number) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    const bool over = options.rounds ? result.rounds >= *options.rounds : passed.count() >= options.seconds;
    std::array<int, 2> ends = {over ? 1 : 0, interrupt_wanted ? 1 : 0};
    world.all_reduce(ends, max);
    result.interrupted = ends[1] == 1;
    if (ends[0] == 1 || ends[1] == 1) return result;
    work.round(number, result);
    progress(result);
    if (!result.wrong.empty()) return result;
  }
}

}  // namespace lockstep::bench
