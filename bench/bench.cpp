// SPDX-License-Identifier: Apache-2.0
// Measures one row after the other: buffers, candidates, checks, baselines and the limit. All members run the same
// steps in the same order.
#include "bench/bench.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "bench/compare.hpp"
#include "bench/gradient_exchange.hpp"
#include "bench/in_stream.hpp"
#include "bench/limits.hpp"
#include "bench/statistics.hpp"
#include "collectives/communicator/communicator_core.hpp"
#include "topology/base/cgroup.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  return b != 0 && a > most / b ? most : a * b;
}

// Throws on all members alike. Otherwise one would end and the others would wait.
void refuse_too_large(Communicator& world, const BenchOptions& options) {
  std::uint64_t needed = 0;
  // The sum has the buffers, as much again for staging, and the two buffers of the copy.
  const auto consider = [&](const Subject& subject) {
    needed = std::max(needed, 4 * memory_of(subject, world.size()));
  };
  for (const Subject& each : options.subjects) {
    if (each.gradients) consider(each);
    for (const std::uint64_t size : options.sizes) {
      Subject subject = each;
      subject.count = count_of(each.collective, each.type, size, world.size());
      consider(subject);
    }
  }
  const Topology& topology = world.topology();
  const auto here = static_cast<std::uint64_t>(std::ranges::count_if(world.ranks(), [&](int rank) {
    return topology.member(rank).node == topology.member(world.ranks()[static_cast<std::size_t>(world.rank())]).node;
  }));
  std::array<std::uint64_t, 2> most = {times(needed, here), ~free_memory_bytes()};
  world.all_reduce(most, max);
  if (most[0] <= ~most[1]) return;
  throw Error(Code::out_of_memory,
              text("the largest size needs ", most[0] >> 20U, " MiB on a node, but ", ~most[1] >> 20U, " MiB are free"),
              "give a smaller end (-e), or fewer members on each node");
}

BenchCandidate copying(std::string name, const std::byte* from, std::byte* to, std::size_t bytes) {
  return {std::move(name), [from, to, bytes] {
            std::memcpy(to, from, bytes);
            asm volatile("" : : "r"(to) : "memory");
          }};
}

// Holds the traffic of one member by its schedule.
struct ScheduleTraffic {
  std::uint64_t rounds = 0;
  std::uint64_t sent = 0;    // elements
  std::uint64_t narrow = 0;  // those in the wire format
};

ScheduleTraffic traffic_of(const Schedule& schedule) {
  ScheduleTraffic work;
  for (const Round& round : schedule.rounds) {
    if (!round.sends.empty() || !round.receives.empty()) work.rounds += static_cast<std::uint64_t>(round.times);
    for (int lap = 0; lap < round.times; ++lap) {
      for (const Message& message : round.sends) {
        const std::uint64_t count = message.slice.at(lap).count;
        work.sent += count;
        if (message.narrow) work.narrow += count;
      }
    }
  }
  return work;
}

ScheduleTraffic traffic_of(const Plan& plan) {
  ScheduleTraffic work = traffic_of(plan.last);
  if (plan.segments == 1) return work;
  const ScheduleTraffic each = traffic_of(plan.schedule);
  work.rounds += each.rounds * static_cast<std::uint64_t>(plan.segments - 1);
  work.sent += each.sent * static_cast<std::uint64_t>(plan.segments - 1);
  work.narrow += each.narrow * static_cast<std::uint64_t>(plan.segments - 1);
  return work;
}

// Returns every subject in every size. Sizes that round to the same count appear once.
std::vector<Subject> rows_of(const BenchOptions& options, int members, std::vector<std::string>& left_out) {
  std::vector<Subject> rows;
  for (const Subject& each : options.subjects) {
    if (each.gradients) {
      rows.push_back(each);
      continue;
    }
    const bool moves = each.collective != Collective::barrier;
    std::optional<std::size_t> last;
    for (const std::uint64_t size : options.sizes) {
      Subject subject = each;
      subject.count = moves ? count_of(each.collective, each.type, size, members) : 0;
      if (moves && subject.count == 0) {
        left_out.push_back(text(to_string(each.collective), " of ", size, " bytes"));
        continue;
      }
      if (subject.count == last) continue;
      last = subject.count;
      rows.push_back(subject);
    }
  }
  return rows;
}

void note_ceilings(const Ceilings& ceilings, BenchRun& run) {
  const auto note = [&](const char* what, double value) {
    if (value > 0) run.limits.push_back({what, text(value)});
  };
  note("message to a neighbour or barrier, us", ceilings.message_us);
  note("reading data of a neighbour, GB/s", ceilings.read);
  note("link of a node, GB/s each way", ceilings.link);
}

class RowMaker {
 public:
  RowMaker(Communicator& world, const BenchOptions& options, const Subject& subject, const Ceilings& ceilings,
           double kernel)
      : world_(world),
        options_(options),
        subject_(subject),
        ceilings_(ceilings),
        kernel_(kernel),
        buffers_(subject, world.size(), world.rank()) {
    if (options.gpu) there_.emplace(world, buffers_, *options.gpu);
  }

  Row measure_it(bool& interrupted) {
    describe();
    candidates_.push_back(ours());
    add_gradient_ways();
    if (options_.check) {
      verify(candidates_.front().once, wire_);
      // A way may send in the wire format where Lockstep's choice does not.
      for (std::size_t i = 1; i < candidates_.size(); ++i) verify(candidates_[i].once, world_.options().wire);
    }
    refill();
    const std::size_t ways = candidates_.size() - 1;
    const std::size_t copy = add_copy();
    std::vector<std::size_t> which;
    const auto baselines = all_baselines();
    for (const auto& [name, make] : baselines) {
      auto made = make(subject_, buffers_);
      const bool all = world_.all_reduce(made ? 1 : 0, min) == 1;  // a candidate needs all members
      which.push_back(all ? candidates_.size() : 0);
      if (all) candidates_.push_back(std::move(*made));
    }
    if (subject_.cold) make_cold(copy);
    const Measurement measured = measure(world_, candidates_, options_.effort, options_.seed + row_.bytes);
    interrupted = measured.interrupted;
    note_times(measured, copy);
    for (std::size_t i = 1; i <= ways; ++i) add_baseline(candidates_[i].name, measured, i);
    for (std::size_t i = 0; i < which.size(); ++i) {
      if (which[i] != 0) add_baseline(baselines[i].first, measured, which[i]);
    }
    for (const auto& [name, run] : options_.earlier) add_earlier(name, run);
    if (options_.check && row_.check.wrong == 0) verify(candidates_.front().once, wire_);
    if (there_ && !interrupted && row_.check.wrong == 0) measure_in_stream(interrupted);
    return std::move(row_);
  }

 private:
  void describe() {
    row_.collective =
        subject_.gradients ? text("gradients:", subject_.gradients->name) : std::string(to_string(subject_.collective));
    row_.bytes = bytes_of(subject_, world_.size());
    row_.count = subject_.collective == Collective::barrier ? 0 : subject_.count;
    row_.type = to_string(subject_.type);
    if (reduces(subject_.collective)) row_.op = to_string(subject_.op);
    if (is_rooted(subject_.collective)) row_.root = subject_.root;
    row_.in_place = subject_.in_place;
    row_.cold = subject_.cold;
  }

  std::vector<std::pair<std::string, CandidateMaker>> all_baselines() {
    auto all = options_.baselines;
    for (auto& [name, make] : all) {
      if (!there_) continue;
      make = [this, by_host = make](const Subject& of, Buffers& on) -> std::optional<BenchCandidate> {
        auto made = by_host(of, on);
        return made ? std::optional(there_->staged(std::move(*made))) : std::nullopt;
      };
    }
    if (options_.against_nccl)
      all.emplace_back("nccl",
                       [this](const Subject& of, Buffers&) { return options_.against_nccl->candidate(of, *there_); });
    if (options_.against_host) all.emplace_back("host", [this](const Subject&, Buffers&) { return by_host(); });
    return all;
  }

  std::optional<BenchCandidate> by_host() {
    if (subject_.collective == Collective::sendrecv) return std::nullopt;
    return BenchCandidate{"host", [this, request = buffers_.request()] { world_.core()->run(request); }};
  }

  BenchCandidate ours() {
    if (subject_.collective == Collective::sendrecv) {
      row_.algorithm = "message";
      row_.rounds = 1;
      row_.sent_bytes = row_.bytes;
      const int next = (world_.rank() + 1) % world_.size();
      const int before = (world_.rank() + world_.size() - 1) % world_.size();
      const auto in = there_ ? there_->input() : buffers_.input_bytes();
      const auto out = there_ ? there_->output() : buffers_.output_bytes();
      return {"ours", [=, this] { world_.sendrecv(in, next, out, before); }};
    }
    if (subject_.gradients) {
      BenchCandidate exchange =
          exchange_candidate(world_, "ours", *subject_.gradients, gradients(), there_.has_value());
      row_.algorithm = exchange.algorithm;
      for (const GradientBucket& bucket : subject_.gradients->buckets)
        note_traffic(bucket_request(bucket, gradients()));
      return exchange;
    }
    const detail::CallRequest request = there_ ? there_->request() : buffers_.request();
    row_.algorithm = note_traffic(request);
    return {"ours", [this, request] { world_.core()->run(request); }};
  }

  // Plans a call of Lockstep's own, and adds its traffic to the row's. Returns the name of the algorithm.
  std::string note_traffic(const detail::CallRequest& request) {
    const detail::BoundCall bound_call = world_.core()->binder().prepare(request);
    const Plan& plan = *bound_call.call.plan;
    if (there_) PreparedCall(world_.core(), bound_call).run();  // afterwards the algorithm is known
    if (bound_call.algorithm() == plan.algorithm && plan.wire != WireFormat::as_is) wire_ = plan.wire;
    const ScheduleTraffic work = traffic_of(plan);
    const std::uint64_t sent = (work.sent - work.narrow) * plan.spec.element_bytes + work.narrow * sizeof(bf16);
    std::array<std::uint64_t, 2> most = {work.rounds, sent};
    world_.all_reduce(most, max);
    row_.rounds += most[0];
    row_.sent_bytes += most[1];
    return bound_call.algorithm();
  }

  float* gradients() {
    return reinterpret_cast<float*>(there_ ? there_->output().data() : buffers_.output_bytes().data());
  }

  void add_gradient_ways() {
    if (!subject_.gradients) return;
    for (const std::string& name : options_.gradient_ways) {
      const GradientWay way = find_gradient_way(world_, name, *subject_.gradients);
      if (!way.why_not.empty()) continue;
      ways_.push_back(communicator_for(world_, way));
      candidates_.push_back(
          exchange_candidate(*ways_.back(), name, *subject_.gradients, gradients(), there_.has_value()));
    }
  }

  void make_cold(std::size_t copy) {
    for (BenchCandidate& each : candidates_) {
      const bool of_copy = copy != 0 && &each == &candidates_[copy];
      each.before = [this, also = each.before, is_copy = of_copy] {
        if (also) also();
        if (is_copy) flush_caches(copied_);
        buffers_.flush();
      };
    }
  }

  void refill() {
    buffers_.fill();
    if (there_) there_->take();
  }

  void measure_in_stream(bool& interrupted) {
    if (subject_.collective == Collective::sendrecv || subject_.collective == Collective::barrier) return;
    if (subject_.gradients) return;  // a program waits for a step's gradients, so their rate in a stream tells nothing
    StreamRow row(world_, subject_, *there_, options_.against_nccl.get());
    if (options_.check) verify([&] { row.once(); }, wire_);
    refill();
    row_.in_stream = row.measure(options_.effort, options_.seed + row_.bytes, row_.time.median, interrupted);
  }

  void run_once(const std::function<void()>& ours) {
    if (there_) there_->take();
    ours();
    if (there_) there_->give_back();
  }

  void verify(const std::function<void()>& ours, WireFormat wire) {
    buffers_.fill();
    run_once(ours);
    std::uint64_t bits = 0;
    std::uint64_t wrong = buffers_.count_wrong(bits);
    if (buffers_.takes_random()) {
      buffers_.fill_randomly(options_.seed);
      run_once(ours);
      wrong += buffers_.count_beyond(options_.seed, wire);
    }
    wrong = world_.all_reduce(wrong, sum);
    const Collective collective = subject_.collective;
    const bool alike = collective == Collective::all_reduce || collective == Collective::all_gather ||
                       collective == Collective::all_gather_v || collective == Collective::broadcast;
    const std::uint64_t least = world_.all_reduce(bits, min);
    const std::uint64_t most = world_.all_reduce(bits, max);
    row_.check.wrong = std::max(row_.check.wrong, wrong);
    if (alike && least != most) row_.check.ranks_equal = false;
    const std::uint64_t all = world_.all_reduce(bits * (2 * static_cast<std::uint64_t>(world_.rank()) + 1), bit_xor);
    row_.check.hash = hexadecimal(all);
  }

  // Adds a copy of as many bytes as the row has, by all members at once. It shows the speed of the memory for data of
  // this size.
  std::size_t add_copy() {
    if (row_.bytes == 0) return 0;
    if (there_) {
      candidates_.push_back(there_->copy(row_.bytes));
      return candidates_.size() - 1;
    }
    // The two halves have different offsets in their pages. Equal offsets make some processors stall.
    constexpr std::size_t page = 4096;
    constexpr std::size_t apart = page / 2 + 64;
    const std::size_t pages = (row_.bytes + page - 1) / page * page;
    copied_.assign(pages + apart + row_.bytes, std::byte{1});
    candidates_.push_back(copying("copy", copied_.data(), copied_.data() + pages + apart, row_.bytes));
    return candidates_.size() - 1;
  }

  void note_times(const Measurement& measured, std::size_t copy) {
    row_.time = summarize_blocks(measured.timings.front().blocks);
    row_.noise = measured.noise;
    const auto bytes = static_cast<double>(row_.bytes);
    if (row_.time.median > 0) row_.algbw = bytes / row_.time.median / 1e3;
    row_.busbw = row_.algbw * bus_factor(subject_.collective, world_.size());
    const double copy_us = copy == 0 ? 0 : summarize_blocks(measured.timings[copy].blocks).min;
    MinimumTraffic moves = minimum_traffic(subject_, world_.size(), world_.topology(), world_.ranks());
    if (wire_ != WireFormat::as_is) moves.link /= 2;
    row_.limit = limit_of(moves, ceilings_, kernel_, copy_us > 0 ? bytes / copy_us / 1e3 : 0);
    name_slowest(measured.timings.front().rank_medians);
  }

  void name_slowest(const std::vector<double>& medians) {
    const auto slowest = std::ranges::max_element(medians);
    const double middle = median_of(medians);
    // If members have different parts of the work, the busiest one is no news.
    const bool alike = waits_for_all(subject_.collective) && !is_unequal(subject_.collective);
    constexpr double telling = 5;
    const double percent = middle > 0 ? 100 * (*slowest / middle - 1) : 0;
    if (medians.size() < 2 || !alike || percent < telling) return;
    row_.slowest_rank = static_cast<int>(slowest - medians.begin());
    row_.slowest_percent = percent;
  }

  void add_baseline(const std::string& name, const Measurement& measured, std::size_t which) {
    row_.baselines.push_back({.name = name,
                              .algorithm = candidates_[which].algorithm,
                              .time = summarize_blocks(measured.timings[which].blocks),
                              .ratio = ratio_of(measured, which)});
  }

  void add_earlier(const std::string& name, const BenchRun& run) {
    const RowKey key = key_of(row_);
    const auto found = std::ranges::find(run.rows, key, key_of);
    if (found == run.rows.end() || found->time.median <= 0 || row_.time.median <= 0) return;
    // The times were not measured in turns, so both intervals count.
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
  const BenchOptions& options_;
  Subject subject_;
  const Ceilings& ceilings_;
  double kernel_;
  WireFormat wire_ = WireFormat::as_is;  // the format that Lockstep uses
  Buffers buffers_;
  std::optional<GpuBuffers> there_;
  std::vector<std::unique_ptr<Communicator>> ways_;  // candidates use them, so they end later
  std::vector<BenchCandidate> candidates_;
  std::vector<std::byte> copied_;  // copied from its first half to its second
  Row row_;
};

}  // namespace

std::optional<BenchCandidate> copy_candidate(const Subject& subject, Buffers& buffers) {
  const std::size_t bytes = std::min(buffers.input_count(), buffers.output_count()) * size_of(subject.type);
  if (buffers.input() == buffers.output() || bytes == 0) return std::nullopt;
  return copying("memcpy", static_cast<const std::byte*>(buffers.input()), static_cast<std::byte*>(buffers.output()),
                 bytes);
}

void run_bench(Communicator& world, const BenchOptions& options, BenchRun& run,
               const std::function<void(const BenchRun&)>& show) {
  refuse_too_large(world, options);
  std::vector<std::string> left_out;
  const std::vector<Subject> rows = rows_of(options, world.size(), left_out);
  if (!left_out.empty()) run.settings.push_back({"left out, under one element for each rank", join(left_out, ", ")});
  // Limits that were measured on the host do not bind GPUs.
  const Ceilings ceilings = options.gpu ? Ceilings{} : measure_ceilings(world, options.effort, options.seed);
  note_ceilings(ceilings, run);
  std::map<std::pair<DataType, ReduceOp>, double> kernels;
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    const double each = i == 0 ? options.effort.seconds : passed.count() / static_cast<double>(i);
    if (options.progress) options.progress({i, rows.size(), each * static_cast<double>(rows.size() - i)});
    const Subject& subject = rows[i];
    double kernel = 0;
    if (reduces(subject.collective) && !options.gpu) {
      const auto [found, is_new] = kernels.try_emplace({subject.type, subject.op}, 0);
      if (is_new) found->second = measure_kernel(world, subject.type, subject.op);
      kernel = found->second;
    }
    bool interrupted = false;
    run.rows.push_back(RowMaker(world, options, subject, ceilings, kernel).measure_it(interrupted));
    run.interrupted = interrupted;
    show(run);
    if (interrupted || run.rows.back().check.wrong > 0 || !run.rows.back().check.ranks_equal) return;
  }
}

}  // namespace lockstep::bench
