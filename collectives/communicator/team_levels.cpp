// SPDX-License-Identifier: Apache-2.0
// Members on GPUs of which some are nearer to each other than to the rest: on one GPU, or in one node. What they are
// together, they find out when all have their data there for the first time.
#include <algorithm>
#include <bit>

#include "collectives/communicator/gpu_levels.hpp"
#include "collectives/communicator/team_gpus.hpp"
#include "collectives/planner.hpp"

namespace lockstep::detail {
namespace {

Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Equal ones have equal numbers.
std::vector<int> numbers_of(const std::vector<Bytes>& all) {
  std::vector<int> numbers;
  numbers.reserve(all.size());
  for (const Bytes& each : all) numbers.push_back(static_cast<int>(std::ranges::find(all, each) - all.begin()));
  return numbers;
}

std::size_t all_bytes_of(const Spec& spec) {
  const bool has_blocks = spec.collective == Collective::reduce_scatter || spec.collective == Collective::all_gather;
  const auto parts = static_cast<std::size_t>(std::max(spec.gives.parts(), spec.takes.parts()));
  return spec.count * spec.element_bytes * (has_blocks ? parts : 1);
}

}  // namespace

void Team::run_as_agreed(const Ask& ask, int device) {
  const Use use(*this, ask.origin);
  Ready ready = ready_from(ask, Asking::once);
  if (ready.gpus) {
    ready.gpus->device = device;
    choose_way(*ready.gpus, ask.origin);
  }
  run_inside(ready, ask.origin);
}

// Whether what members have found out holds for data there.
bool Team::fits(int device) const {
  if (!clique_ && !levels_) return device >= 0;
  return device == OnGpus::anywhere || device == (clique_ ? clique_->device() : levels_->device());
}

bool Team::can_go_by_levels(const OnGpus& gpus) const {
  return levels_ && std::ranges::all_of(gpus.steps, [&](const nccl::Step& step) { return levels_->can_do(step.spec); });
}

// As far as it is known before members ask each other.
bool Team::may_go(const OnGpus& gpus) const { return may_use_nccl_ && (clique_ || !levels_ || can_go_by_levels(gpus)); }

// Of data that all have in the memory of a GPU.
void Team::choose_way(OnGpus& gpus, const Origin& origin) {
  if (!clique_ && !levels_ && may_use_nccl_) or_break([&] { arrange(gpus.device, origin); });
  gpus.way = OnGpus::Way::otherwise;
  if (clique_)
    gpus.way = OnGpus::Way::clique;
  else if (can_go_by_levels(gpus))
    gpus.way = OnGpus::Way::levels;
}

void Team::refuse_together(const Error& error) noexcept {
  refuse(error);
  try {
    if (!exchange_->failed()) exchange_->fail(error.detail());
  } catch (const std::exception& second) {
    exchange_->log().error(text("while telling the others of it: ", second.what()));
  }
}

// NCCL refuses members that share a GPU, and not all at once: so they find out before.
void Team::arrange(int device, const Origin& origin) {
  const Arrangement by_gpu(in_exchange(
      [&] { return numbers_of(exchange_->all_gather("serials of the GPUs", bytes_of(gpu::layer()->id(device)))); }));
  const std::size_t gpus = by_gpu.groups().size();
  const auto members = static_cast<std::size_t>(size());
  if (gpus < members) {
    if (gpus > 1) return make_levels(by_gpu, true, device);
    may_use_nccl_ = false;
    exchange_->log().info(text("all members of \"", options_.name, "\" share a GPU: NCCL is not used among them"));
    return;
  }
  const std::size_t nodes = by_node().groups().size();
  spans_nodes_ = 1 < nodes && nodes < members;
  if (spans_nodes_)
    join_across(device, origin);
  else
    make_clique(device, origin);
}

Arrangement Team::by_node() const {
  std::vector<int> nodes;
  for (const int rank : ranks_) nodes.push_back(topology_->member(rank).node);
  return Arrangement(nodes);
}

// A communicator of its own tries it, so that this one is not lost where NCCL does not reach from node to node.
void Team::join_across(int device, const Origin& origin) {
  std::string why;
  const auto trying = in_exchange([&] {
    auto all_nodes = part(0, rank(), "across nodes", true);
    exchange_->barrier("before NCCL is tried across nodes");  // what fails there is not to be heard in its making
    return all_nodes;
  });
  try {
    trying->make_clique(device, origin);
  } catch (const Error& error) {
    why = error.detail();
  } catch (const std::exception& other) {
    why = other.what();
  }
  const std::byte mine{!why.empty()};
  const auto all = in_exchange([&] { return exchange_->all_gather("whether NCCL reaches all nodes", {&mine, 1}); });
  if (std::ranges::all_of(all, [](const Bytes& each) { return each == Bytes{std::byte{0}}; })) {
    clique_ = std::move(trying->clique_);
    return;
  }
  exchange_->log().warn(text("NCCL does not reach all nodes of \"", options_.name,
                             "\", so it is used within each of them", why.empty() ? "" : ": ", why));
  make_levels(by_node(), false, device);
}

// Members of one GPU meet there, and one of each goes to the others' GPUs by NCCL; members of a node have NCCL, and go
// to other nodes by way of the host.
void Team::make_levels(const Arrangement& arrangement, bool share_gpus, int device) {
  const bool by_rails = !share_gpus && arrangement.is_even();
  const int group = arrangement.group_of(rank());
  const int place = arrangement.place_of(rank());
  GpuLevels::Teams teams;
  in_exchange([&] {
    teams.near = part(arrangement.group(rank()).size() > 1 ? group : -1, place, "near", !share_gpus);
    teams.across = part(by_rails || place == 0 ? place : -1, group, "across", share_gpus);
  });
  levels_ = std::make_unique<GpuLevels>(arrangement, by_rails ? GpuLevels::Form::rails : GpuLevels::Form::owners,
                                        rank(), device, std::move(teams));
}

std::shared_ptr<Team> Team::part(int colour, int key, std::string_view name, bool has_nccl) {
  CommunicatorOptions options;
  options.name = text(options_.name, '/', name);
  options.node_memory = options_.node_memory;
  options.timeout = options_.timeout;
  options.checksums = options_.checksums;
  options.nccl = has_nccl;
  return split_inside(colour, key, std::move(options));
}

// Also at the end of a call that failed, wherever the failure was heard of: who waits within for this member hears it.
void Team::end_levels() noexcept {
  if (!levels_) return;
  if (engine_->failed()) {
    const auto& failure = engine_->failure();
    levels_->refuse(failure ? Error(failure->code, failure->text) : Error(Code::peer_failed, "it has failed before"));
  }
  levels_.reset();
}

// The host waits between the stages, and for what is before them in the stream.
void Team::run_levels(const Ready& ready, const Marks& behind) {
  if (ready.stream) wait_for_stream(*ready.stream, ready.call.origin);
  wait_for_marks(behind, ready.call.origin);
  or_break([&] {
    wait_for_clique(ready.call.origin);
    levels_->run(ready.gpus->steps, options_.timeout, ready.call.origin);
  });
}

// Of a call in which members of several nodes may go both ways, as long as it is not known which one is the faster.
// What is in a stream is not waited for, so it goes by NCCL alone.
Trial* Team::trial_of(const Ready& ready) {
  if (!spans_nodes_ || ready.stream) return nullptr;
  OnGpus& gpus = *ready.gpus;
  if (!levels_) or_break([&] { make_levels(by_node(), false, clique_->device()); });
  if (!can_go_by_levels(gpus)) return nullptr;
  std::size_t bytes = 0;
  for (const nccl::Step& step : gpus.steps) bytes += all_bytes_of(step.spec);
  const Spec& spec = gpus.steps.front().spec;
  Trial& trial = trials_[{spec.collective, spec.type, spec.op, spec.order, std::bit_width(bytes)}];
  if (!trial.is_over()) return &trial;
  if (trial.way() == 1) gpus.way = OnGpus::Way::levels;
  return nullptr;
}

void Team::run_in_turn(Trial& trial, const Ready& ready, Handle handle) {
  const Origin& origin = ready.call.origin;
  meet({}, origin);  // who comes late would be measured
  const Duration begun = engine_->world().now();
  if (trial.way() == 1) {
    run_levels(ready, pending(handle).behind);
  } else {
    begin_in_clique(ready.gpus->steps, ready, handle);
    wait_for_gpus(handle);
  }
  if (!trial.took(engine_->world().now() - begun)) return;
  trial.conclude(meet(trial.nanoseconds(), origin));
  exchange_->log().info(text("on \"", options_.name, "\", ", to_text(signature_of(ready.gpus->steps.front().spec)),
                             " goes ",
                             trial.way() == 1 ? "by NCCL in the nodes, and among them by the host" : "by NCCL alone",
                             ", which was the faster way"));
}

// The largest that any member has, of each; returns when all have come.
std::span<const std::uint64_t> Team::meet(const std::vector<std::uint64_t>& mine, const Origin& origin) {
  std::ranges::copy(mine, times_->begin());
  const std::size_t count = std::max<std::size_t>(mine.size(), 1);
  const std::span all = std::span(*times_).last(Trial::turns);
  engine_->run({.plan = planner_->plan({.collective = Collective::all_reduce,
                                        .type = DataType::u64,
                                        .op = ReduceOp::max,
                                        .element_bytes = sizeof(std::uint64_t),
                                        .count = count}),
                .input = times_->data(),
                .output = all.data(),
                .kernel = find_kernel(DataType::u64, ReduceOp::max),
                .origin = origin,
                .limit = options_.timeout});
  return all.first(count);
}

}  // namespace lockstep::detail
