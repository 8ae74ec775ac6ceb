// SPDX-License-Identifier: Apache-2.0
// Times operations between two marks in a stream, so that the host's waiting does not count.
#include "bench/in_stream.hpp"

#include <algorithm>
#include <thread>

#include "bench/statistics.hpp"
#include "collectives/communicator/communicator_core.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {

Stopwatch::Stopwatch(int device) : device_(device), stream_(gpu::backend()->make_stream(device)) {}
Stopwatch::~Stopwatch() { gpu::backend()->end_stream(device_, stream_); }

double Stopwatch::time(std::uint64_t operations, const std::function<void()>& put) const {
  const auto first = gpu::backend()->mark_time(device_, stream_);
  for (std::uint64_t i = 0; i < operations; ++i) put();
  const auto last = gpu::backend()->mark_time(device_, stream_);
  constexpr double most_us = 60e6;
  const double begin = now_us();
  while (!last->is_reached()) {
    if (now_us() - begin > most_us)
      throw Error(Code::stall, text(operations, " operations in a stream have not ended for 60 s"),
                  "check that no rank has exited; NCCL_DEBUG=INFO shows the wait of NCCL");
    std::this_thread::yield();
  }
  return gpu::backend()->microseconds(*first, *last) / static_cast<double>(operations);
}

StreamRow::StreamRow(Communicator& world, const Subject& subject, GpuBuffers& on, NcclBaseline* nccl)
    : world_(world),
      subject_(subject),
      moved_(world.all_reduce(on.input().size() + on.output().size(), max)),
      bytes_(bytes_of(subject, world.size())),
      watch_(on.device()) {
  detail::CallRequest request = on.request();
  request.stream = watch_.stream();
  ours_ = [this, request] { world_.core()->run(request); };
  add("ours", ours_);
  // The call is planned once. Then it starts without asking the others.
  add("plan", [plan = std::make_shared<PreparedCall>(world_.core(), world_.core()->binder().prepare(request))] {
    plan->run();
  });
  if (nccl != nullptr) {
    if (const auto operation = nccl->operation(subject, on))
      add("nccl", [this, operation] { operation(watch_.stream()); });
  }
  if (bytes_ > 0) add("copy", [this, copy = on.copying(bytes_)] { copy(watch_.stream()); });
}

void StreamRow::add(std::string name, std::function<void()> put) {
  BenchCandidate one{.name = std::move(name)};
  one.timed = [this, put = std::move(put)] { return watch_.time(operations_, put); };
  candidates_.push_back(std::move(one));
}

void StreamRow::once() { watch_.time(1, ours_); }

StreamTiming StreamRow::measure(const Effort& effort, std::uint64_t seed, double expected_us, bool& interrupted) {
  constexpr double fewest = 5;
  constexpr double most = 200;
  operations_ = static_cast<std::uint64_t>(std::clamp(effort.block_us / std::max(expected_us, 1e-3), fewest, most));
  const Measurement measured = bench::measure(world_, candidates_, effort, seed);
  interrupted = interrupted || measured.interrupted;
  StreamTiming row;
  row.operations = operations_;
  row.time = summarize_blocks(measured.timings.front().blocks);
  const auto rate = [](double bytes, double us) { return us > 0 ? bytes / us / 1e3 : 0; };
  row.algbw = rate(static_cast<double>(bytes_), row.time.median);
  row.busbw = row.algbw * bus_factor(subject_.collective, world_.size());
  row.moved = rate(static_cast<double>(moved_), row.time.median);
  for (std::size_t i = 1; i < candidates_.size(); ++i) {
    row.baselines.push_back({.name = candidates_[i].name,
                             .algorithm = {},
                             .time = summarize_blocks(measured.timings[i].blocks),
                             .ratio = ratio_of(measured, i)});
    if (candidates_[i].name == "copy")
      row.copied = rate(2.0 * static_cast<double>(bytes_), row.baselines.back().time.median);
  }
  return row;
}

}  // namespace lockstep::bench
