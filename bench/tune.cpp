// SPDX-License-Identifier: Apache-2.0
// Makes communicators with forced algorithms, and measures them in turns within the given time.
#include "bench/tune.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "bench/buffers.hpp"
#include "bench/measure.hpp"
#include "bench/statistics.hpp"
#include "bench/subject.hpp"
#include "collectives/communicator/communicator_core.hpp"
#include "collectives/planner.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

// Holds one thing to measure, and the algorithms to try for it, the model's choice first.
struct TuneCase {
  Subject subject;
  std::uint64_t bytes = 0;
  std::vector<AlgorithmCandidate> able;
};

class Tuner {
 public:
  Tuner(Communicator& world, const TuneOptions& tune_options)
      : world_(world), tune_options_(tune_options), begin_us_(now_us()) {
    CommunicatorOptions options = world.options();
    options.name = text(options.name, "/tune");
    options.table.clear();
    options.algorithm.clear();
    free_ = std::make_unique<Communicator>(world.core()->factory().split(0, world.rank(), options));
  }

  TuneResult run() {
    const Topology& topology = world_.topology();
    std::vector<TuneCase> cells = find_cells();
    TuneResult tuning{.members = world_.size(), .kind = topology.kind(), .wanted = cells.size()};
    std::set<int> nodes;
    for (const int rank : world_.ranks()) nodes.insert(topology.member(rank).node);
    tuning.nodes = static_cast<int>(nodes.size());
    make_communicators(cells);
    for (std::size_t i = 0; i < cells.size() && !tuning.interrupted; ++i) {
      if (tune_options_.progress) tune_options_.progress(i, cells.size());
      const double left = world_.broadcast(tune_options_.seconds * 1e6 - (now_us() - begin_us_), 0);
      if (left <= 0) break;
      const double seconds = left / 1e6 / static_cast<double>(cells.size() - i);
      auto size = measured(cells[i], seconds, tuning.interrupted);
      if (!tuning.interrupted) tuning.sizes.push_back(std::move(size));
    }
    return tuning;
  }

 private:
  std::vector<TuneCase> find_cells() {
    std::vector<TuneCase> cells;
    for (const Collective collective : tune_options_.collectives) {
      std::size_t last = 0;
      for (const std::uint64_t size : tune_options_.sizes) {
        TuneCase cell{.subject = {.collective = collective}};
        cell.subject.count = count_of(collective, cell.subject.type, size, world_.size());
        if (cell.subject.count == 0 || cell.subject.count == last) continue;
        last = cell.subject.count;
        cell.bytes = cell.subject.count * size_of(cell.subject.type);
        find_able(cell);
        cells.push_back(std::move(cell));
      }
    }
    return cells;
  }

  // Finds the model's choice, then the others in the model's order, if they are not hopeless.
  void find_able(TuneCase& cell) {
    constexpr double hopeless = 10;
    Buffers buffers(cell.subject, world_.size(), world_.rank());
    const auto plan = free_->core()->binder().prepare(buffers.request()).call.plan;
    double least = 0;
    for (AlgorithmCandidate each : free_->core()->member().planner().candidates(plan->spec)) {
      if (!each.why_not.empty()) continue;
      if (least == 0) least = each.price.total_us;
      const bool may_be = each.price.total_us <= least * hopeless && cell.able.size() < tune_options_.most;
      if (each.chosen)
        cell.able.insert(cell.able.begin(), std::move(each));
      else if (may_be)
        cell.able.push_back(std::move(each));
    }
  }

  // Makes as few communicators as possible. Each forces an algorithm of every collective.
  void make_communicators(const std::vector<TuneCase>& cells) {
    std::map<Collective, std::vector<std::string>> names;
    for (const TuneCase& cell : cells) {
      for (const AlgorithmCandidate& each : cell.able) {
        auto& known = names[cell.subject.collective];
        if (!each.chosen && std::ranges::find(known, each.name) == known.end()) known.emplace_back(each.name);
      }
    }
    for (std::size_t i = 0;; ++i) {
      std::vector<std::string> forced;
      CommunicatorOptions options = free_->options();
      for (const auto& [collective, known] : names) {
        if (i >= known.size()) continue;
        forced.push_back(text(to_string(collective), ':', known[i]));
        place_[{collective, known[i]}] = i;
      }
      if (forced.empty()) return;
      options.algorithm = join(forced, ",");
      forced_.push_back(std::make_unique<Communicator>(world_.core()->factory().split(0, world_.rank(), options)));
    }
  }

  TunedSize measured(const TuneCase& cell, double seconds, bool& interrupted) {
    Buffers buffers(cell.subject, world_.size(), world_.rank());
    buffers.fill();
    TunedSize size{.collective = cell.subject.collective, .bytes = cell.bytes};
    std::vector<BenchCandidate> all;
    const detail::CallRequest request = buffers.request();
    for (const AlgorithmCandidate& each : cell.able) {
      Communicator* const on =
          each.chosen ? free_.get() : forced_.at(place_.at({cell.subject.collective, std::string(each.name)})).get();
      const auto plan = on->core()->binder().prepare(request).call.plan;
      size.timings.push_back({.algorithm = std::string(each.name),
                              .segment_bytes = segment_of(*plan, each),
                              .of_the_model = each.chosen,
                              .predicted_us = each.price.total_us});
      all.push_back({.name = std::string(each.name), .once = [on, request] { on->core()->run(request); }});
    }
    const Effort effort{.precision = 0.02, .seconds = seconds, .warm_ups = 3, .least_blocks = 6};
    const Measurement found = measure(world_, all, effort, tune_options_.seed + cell.bytes);
    interrupted = found.interrupted;
    for (std::size_t i = 0; i < all.size() && !interrupted; ++i) {
      size.timings[i].time = summarize_blocks(found.timings[i].blocks);
      if (i > 0) size.timings[i].against_model = inverse(ratio_of(found, i));
    }
    return size;
  }

  // Returns the segment as in a table: the piece of an algorithm that sends in pieces, or else the segment of the
  // buffer.
  static std::uint64_t segment_of(const Plan& plan, const AlgorithmCandidate& candidate) {
    const Algorithm* const algorithm = find_algorithm(plan.spec.collective, plan.algorithm);
    if (algorithm == nullptr) return 0;
    if (algorithm->pieces) return candidate.piece * plan.spec.element_bytes;
    return plan.segments > 1 ? plan.segment * plan.spec.element_bytes : 0;
  }

  // The function ratio_of() divides the other time by the first one's, which is the model's. This inverts it.
  static Ratio inverse(const Ratio& of) {
    const auto one_by = [](double value) { return value > 0 ? 1 / value : 0; };
    return {one_by(of.value), {one_by(of.ci.high), one_by(of.ci.low)}, of.blocks};
  }

  Communicator& world_;
  const TuneOptions& tune_options_;
  double begin_us_;
  std::unique_ptr<Communicator> free_;  // a communicator without forced algorithms
  std::vector<std::unique_ptr<Communicator>> forced_;
  std::map<std::pair<Collective, std::string>, std::size_t> place_;
};

}  // namespace

TuneResult tune(Communicator& world, const TuneOptions& tune_options) { return Tuner(world, tune_options).run(); }

}  // namespace lockstep::bench
