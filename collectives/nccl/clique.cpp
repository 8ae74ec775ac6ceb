// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/clique.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "collectives/gpu/combining.hpp"
#include "collectives/gpu/memory.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::nccl {
namespace {

// As one may have, and NCCL wants it.
constexpr std::size_t alignment = 256;

std::size_t input_bytes(const Spec& spec) {
  return (cuts_input(spec.collective) ? spec.gives.extent() : spec.count) * spec.element_bytes;
}

std::size_t round_up(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

bool is_reduced_by_nccl(const Spec& spec) {
  const bool has_it = spec.collective == Collective::all_reduce || spec.collective == Collective::reduce ||
                      spec.collective == Collective::reduce_scatter;
  return has_it && spec.order == Order::fast && reduces(spec.op, spec.type);
}

bool is_scan(const Spec& spec) { return spec.collective == Collective::scan || spec.collective == Collective::exscan; }

// Of inputs that are multiplied by their factors before, in memory of their own.
Spec summed(const Spec& spec) {
  Spec sum = spec;
  sum.op = ReduceOp::sum;
  sum.in_place = false;
  return sum;
}

bool is_composed(const Spec& spec) { return lockstep::reduces(spec.collective) && !is_reduced_by_nccl(spec); }

// Which blocks go to every member, and come from every member, is said by the specification.
bool is_exchange(Collective collective) {
  switch (collective) {
    case Collective::all_to_all:
    case Collective::all_gather_v:
    case Collective::gather:
    case Collective::scatter:
      return true;
    default:
      return false;
  }
}

}  // namespace

// NCCL hangs where members have different counts in mind, so all have to know them.
bool can_do(const Spec& spec, int members) {
  if (has_own_counts(spec.collective)) return false;
  if (!lockstep::reduces(spec.collective)) {
    return is_exchange(spec.collective) || spec.collective == Collective::all_gather ||
           spec.collective == Collective::broadcast;
  }
  if (spec.op == ReduceOp::user) return false;  // the host's own affair
  return members <= gpu::most_parts || is_reduced_by_nccl(spec.op == ReduceOp::premul_sum ? summed(spec) : spec);
}

Clique::Clique(Library& library, const Id& id, int size, int rank, int device, const Pause& pause)
    : library_(library), size_(size), rank_(rank), device_(device) {
  stream_ = gpu::layer()->make_stream(device);
  try {
    member_ = library_.join(id, size, rank, device);
  } catch (...) {
    gpu::layer()->end_stream(device_, stream_);
    throw;
  }
  try {
    settle(pause);
  } catch (...) {
    library_.leave(member_);
    gpu::layer()->end_stream(device_, stream_);
    throw;
  }
}

// Breaking off may wait for what does not end: what the user has put before it into a stream, or a graph that is kept.
Clique::~Clique() {
  auto leave = [library = &library_, member = member_, layer = gpu::layer(), device = device_, stream = stream_,
                scratches = std::move(scratches_)]() mutable {
    library->leave(member);
    layer->end_stream(device, stream);
    scratches.clear();
  };
  if (has_ended_) {
    leave();
    return;
  }
  constexpr auto patience = std::chrono::seconds(1);
  std::promise<void> left;
  const std::future<void> done = left.get_future();
  std::thread([work = std::move(leave), all = std::move(left)]() mutable {
    work();
    all.set_value();
  }).detach();
  done.wait_for(patience);
}

void Clique::settle(const Pause& pause) {
  while (library_.is_busy(member_)) pause();
}

void Clique::check() { library_.is_busy(member_); }

void Clique::end(const Pause& pause) {
  library_.finish(member_);
  settle(pause);
  has_ended_ = true;
}

bool Clique::is_working() const { return last_ && !last_->is_reached(); }

template <class F>
void Clique::group(const F& f, const Pause& pause) {
  library_.begin_group();
  try {
    f();
  } catch (...) {
    try {
      library_.end_group(member_);
    } catch (const Error&) {
      // the first one says more
    }
    throw;
  }
  library_.end_group(member_);
  settle(pause);
}

std::shared_ptr<gpu::Mark> Clique::begin(std::span<const Step> given, gpu::Stream stream, const Pause& pause) {
  now_ = stream;
  std::span<const Step> steps = given;
  std::vector<Step> changed;
  const auto has_factor = [](const Step& step) { return step.spec.op == ReduceOp::premul_sum; };
  if (std::ranges::any_of(given, has_factor)) {
    changed.assign(given.begin(), given.end());
    for (Step& step : changed) {
      if (has_factor(step)) step.spec = summed(step.spec);
    }
    steps = changed;
  }
  std::size_t bytes = 0;
  for (const Step& step : steps) bytes += scratch_bytes(step);
  const std::size_t scaled_at = bytes;
  for (const Step& step : given) bytes += has_factor(step) ? round_up(input_bytes(step.spec)) : 0;
  const bool is_captured = gpu::layer()->is_captured(stream);
  if (is_captured && bytes > 0)
    throw Error(
        Code::usage,
        text("a stream that is captured was given to ", to_text(signature_of(steps.front().spec)),
             ", which is composed, and works in memory that other calls use, too"),
        "capture what NCCL does by itself (sum, prod, avg of floats, min and max of integers; all_to_all of two "
        "buffers), or call it outside of the graph");
  if (!is_captured && last_) gpu::layer()->wait_for(device_, stream, last_);
  std::byte* const scratch = scratch_of(bytes);
  std::byte* scaled = scratch + scaled_at;
  for (std::size_t i = 0; i < changed.size(); ++i) {
    if (!has_factor(given[i])) continue;
    scale(given[i], scaled);
    changed[i].input = scaled;
    scaled += round_up(input_bytes(given[i].spec));
  }
  bool hands_out = false;
  const auto for_each = [&](const auto& f) {
    std::byte* next = scratch;
    for (const Step& step : steps) {
      f(step, next);
      next += scratch_bytes(step);
    }
  };
  const auto for_each_composed = [&](const auto& f) {
    for_each([&](const Step& step, std::byte* its) {
      if (is_composed(step.spec)) f(blocks_of(step), its);
    });
  };
  group([&] { for_each([&](const Step& step, std::byte* its) { begin_step(step, its); }); }, pause);
  for_each_composed([&](const Blocks& blocks, std::byte* its) {
    if (is_scan(blocks.step->spec)) return combine_before(*blocks.step, its);
    combine_parts(blocks, its);
    hands_out |= blocks.each > 0;
  });
  if (hands_out) {
    group([&] { for_each_composed([&](const Blocks& blocks, std::byte* its) { hand_out(blocks, its); }); }, pause);
  }
  if (is_captured) return nullptr;
  last_ = gpu::layer()->mark(device_, stream);
  return last_;
}

void Clique::begin_step(const Step& step, std::byte* scratch) {
  if (is_scan(step.spec))
    return library_.all_gather(member_, step.input, scratch, step.spec.count * step.spec.element_bytes, now_);
  if (is_composed(step.spec)) return exchange_parts(blocks_of(step), scratch);
  if (lockstep::reduces(step.spec.collective)) return reduce(step);
  if (is_exchange(step.spec.collective)) return exchange(step, scratch);
  move(step);
}

void Clique::reduce(const Step& step) {
  const Spec& spec = step.spec;
  switch (spec.collective) {
    case Collective::all_reduce:
      return library_.all_reduce(member_, step.input, step.output, spec.count, spec.type, spec.op, now_);
    case Collective::reduce:
      return library_.reduce(member_, step.input, step.output, spec.count, spec.type, spec.op, spec.root, now_);
    default:
      return library_.reduce_scatter(member_, step.input, step.output, spec.count, spec.type, spec.op, now_);
  }
}

void Clique::move(const Step& step) {
  const std::size_t bytes = step.spec.count * step.spec.element_bytes;
  if (step.spec.collective == Collective::all_gather)
    return library_.all_gather(member_, step.input, step.output, bytes, now_);
  const std::byte* const from = step.spec.root == rank_ ? step.input : step.output;
  library_.broadcast(member_, from, step.output, bytes, step.spec.root, now_);
}

// In place all is read from a copy; where the own block lies is where it belongs.
void Clique::exchange(const Step& step, std::byte* scratch) {
  const Spec& spec = step.spec;
  const bool is_root = !is_rooted(spec.collective) || spec.root == rank_;
  const bool cuts_in = cuts_input(spec.collective);
  const bool cuts_out = cuts_output(spec.collective);
  const std::byte* input = step.input;
  if (spec.in_place && cuts_in && cuts_out) {
    copy(scratch, input, spec.gives.extent() * spec.element_bytes);
    input = scratch;
  }
  const auto block = [&](const lockstep::Blocks& blocks, int i, bool cut, auto* begin) {
    return begin + (cut ? blocks.offset(i) * spec.element_bytes : 0);
  };
  const auto bytes_to = [&](int to) {
    if (cuts_in) return is_root ? spec.gives.count(to) * spec.element_bytes : 0;
    return !is_rooted(spec.collective) || to == spec.root ? spec.takes.count(rank_) * spec.element_bytes : 0;
  };
  const auto bytes_from = [&](int from) {
    if (cuts_out) return is_root ? spec.takes.count(from) * spec.element_bytes : 0;
    return from == spec.root ? spec.gives.count(rank_) * spec.element_bytes : 0;
  };
  for (int i = 0; i < size_; ++i) {
    const std::size_t out = bytes_to(i);
    const std::size_t in = bytes_from(i);
    if (i == rank_) {
      if (in > 0) copy(block(spec.takes, i, cuts_out, step.output), block(spec.gives, i, cuts_in, input), in);
      continue;
    }
    if (out > 0) send(block(spec.gives, i, cuts_in, input), out, i);
    if (in > 0) receive(block(spec.takes, i, cuts_out, step.output), in, i);
  }
}

std::size_t Clique::Blocks::offset(int block) const {
  if (each > 0) return std::min(static_cast<std::size_t>(block) * each, step->spec.count);
  const lockstep::Blocks& cut = step->spec.gives;
  return block == cut.parts() ? cut.total() : cut.offset(block);
}

// All but the last block end where a vector does.
Clique::Blocks Clique::blocks_of(const Step& step) const {
  if (cuts_input(step.spec.collective)) return {&step, 0};
  const auto members = static_cast<std::size_t>(size_);
  const std::size_t unit = std::max<std::size_t>(alignment / step.spec.element_bytes, 1);
  const std::size_t each = (step.spec.count + members - 1) / members;
  return {&step, std::max(unit, (each + unit - 1) / unit * unit)};
}

std::size_t Clique::slot_bytes(const Blocks& blocks) const {
  return round_up(blocks.count(rank_) * blocks.step->spec.element_bytes);
}

std::size_t Clique::scratch_bytes(const Step& step) const {
  const Spec& spec = step.spec;
  if (is_scan(spec)) return round_up(spec.count * spec.element_bytes * static_cast<std::size_t>(size_));
  if (is_composed(spec)) return slot_bytes(blocks_of(step)) * static_cast<std::size_t>(size_);
  const bool is_copied =
      is_exchange(spec.collective) && spec.in_place && cuts_input(spec.collective) && cuts_output(spec.collective);
  return is_copied ? round_up(spec.gives.extent() * spec.element_bytes) : 0;
}

// Every member gets what all have of its block, in slots one after the other. The own part is read where it lies.
void Clique::exchange_parts(const Blocks& blocks, std::byte* scratch) {
  const std::size_t element = blocks.step->spec.element_bytes;
  for (int i = 0; i < size_; ++i) {
    if (i == rank_) continue;
    const std::size_t theirs = blocks.count(i) * element;
    const std::size_t mine = blocks.count(rank_) * element;
    if (theirs > 0) send(blocks.step->input + blocks.offset(i) * element, theirs, i);
    if (mine > 0) receive(scratch + static_cast<std::size_t>(i) * slot_bytes(blocks), mine, i);
  }
}

std::byte* Clique::result_of(const Blocks& blocks, std::byte* scratch) const {
  const Spec& spec = blocks.step->spec;
  if (blocks.each == 0) return blocks.step->output;
  if (spec.collective == Collective::reduce && spec.root != rank_)
    return scratch + static_cast<std::size_t>(rank_) * slot_bytes(blocks);
  return blocks.step->output + blocks.offset(rank_) * spec.element_bytes;
}

void Clique::combine_parts(const Blocks& blocks, std::byte* scratch) {
  const Spec& spec = blocks.step->spec;
  gpu::Combining all{};
  all.input_count = size_;
  all.output_count = 1;
  all.count = blocks.count(rank_);
  all.op = spec.op == ReduceOp::avg ? ReduceOp::sum : spec.op;
  all.divisor = spec.op == ReduceOp::avg ? size_ : 0;
  all.by_tree = spec.order == Order::reproducible;
  if (all.count == 0) return;
  for (int i = 0; i < size_; ++i) {
    all.inputs[i] = i == rank_ ? blocks.step->input + blocks.offset(i) * spec.element_bytes
                               : scratch + static_cast<std::size_t>(i) * slot_bytes(blocks);
  }
  all.outputs[0] = result_of(blocks, scratch);
  all.is_aligned =
      (reinterpret_cast<std::uintptr_t>(all.inputs[rank_]) | reinterpret_cast<std::uintptr_t>(all.outputs[0])) %
          gpu::vector_bytes ==
      0;
  gpu::layer()->begin_combine(device_, spec.type, all, now_);
}

void Clique::scale(const Step& step, std::byte* to) {
  gpu::Combining all{};
  all.inputs[0] = step.input;
  all.outputs[0] = to;
  all.factors[0] = step.factor;
  all.input_count = all.output_count = 1;
  all.count = input_bytes(step.spec) / step.spec.element_bytes;
  all.scales = true;
  all.is_aligned = reinterpret_cast<std::uintptr_t>(step.input) % gpu::vector_bytes == 0;
  if (all.count > 0) gpu::layer()->begin_combine(device_, step.spec.type, all, now_);
}

// Of what all have: the parts of the members up to this one, or of those before it.
void Clique::combine_before(const Step& step, const std::byte* scratch) {
  const Spec& spec = step.spec;
  gpu::Combining all{};
  all.input_count = rank_ + (spec.collective == Collective::scan ? 1 : 0);
  all.output_count = 1;
  all.count = spec.count;
  all.op = spec.op;
  all.by_tree = spec.order == Order::reproducible;
  if (all.count == 0 || all.input_count == 0) return;
  const std::size_t bytes = spec.count * spec.element_bytes;
  for (int i = 0; i < all.input_count; ++i) all.inputs[i] = scratch + static_cast<std::size_t>(i) * bytes;
  all.outputs[0] = step.output;
  all.is_aligned = (bytes | reinterpret_cast<std::uintptr_t>(step.output)) % gpu::vector_bytes == 0;
  gpu::layer()->begin_combine(device_, spec.type, all, now_);
}

void Clique::hand_out(const Blocks& blocks, std::byte* scratch) {
  if (blocks.each == 0 || is_scan(blocks.step->spec)) return;
  const Spec& spec = blocks.step->spec;
  const bool for_all = spec.collective == Collective::all_reduce;
  const std::size_t mine = blocks.count(rank_) * spec.element_bytes;
  for (int i = 0; i < size_; ++i) {
    if (i == rank_) continue;
    const std::size_t theirs = blocks.count(i) * spec.element_bytes;
    if (mine > 0 && (for_all || i == spec.root)) send(result_of(blocks, scratch), mine, i);
    if (theirs > 0 && (for_all || rank_ == spec.root))
      receive(blocks.step->output + blocks.offset(i) * spec.element_bytes, theirs, i);
  }
}

void Clique::send(const std::byte* from, std::size_t bytes, int to) { library_.send(member_, from, bytes, to, now_); }

void Clique::receive(std::byte* to, std::size_t bytes, int from) { library_.receive(member_, to, bytes, from, now_); }

void Clique::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from && bytes > 0) gpu::layer()->begin_copy(device_, to, from, bytes, now_);
}

std::byte* Clique::scratch_of(std::size_t bytes) {
  if (bytes > scratch_size_) {
    const std::size_t size = std::max(bytes, 2 * scratch_size_);
    scratches_.push_back(gpu::allocate(device_, size, 1));
    scratch_size_ = size;
  }
  return scratches_.empty() ? nullptr : scratches_.back().get();
}

}  // namespace lockstep::nccl
