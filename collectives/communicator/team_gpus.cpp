// SPDX-License-Identifier: Apache-2.0
// Calls that GPUs do by NCCL, where every member has its data in the memory of a GPU of its own. Whether all have it
// there, they ask each other: in the first start of a call, which so is known to be the same call on all.
#include <algorithm>
#include <exception>

#include "collectives/communicator/team_gpus.hpp"

#include "collectives/communicator/gpu_levels.hpp"

namespace lockstep::detail {
namespace {

// Of data on the host, that members ask each other would be felt below.
constexpr std::size_t asked_from = 4096;

const std::string by_nccl = "nccl";
const std::string why_nccl = "every member has its data in the memory of a GPU of its own";
const std::string by_levels = "nccl by levels";
const std::string why_levels = "all have their data in the memory of GPUs: those that are near each other meet first";

// Of the larger side, which all know.
std::size_t bytes_of(const Spec& spec) {
  std::size_t count = spec.count;
  if (cuts_input(spec.collective)) count = spec.gives.total();
  if (cuts_output(spec.collective)) count = spec.takes.total();
  return count * spec.element_bytes;
}

}  // namespace

const std::string& Ready::algorithm() const {
  if (gpus && gpus->way == OnGpus::Way::clique) return by_nccl;
  if (gpus && gpus->way == OnGpus::Way::levels) return by_levels;
  return call.plan->algorithm;
}

const std::string& Ready::why() const {
  if (gpus && gpus->way == OnGpus::Way::clique) return why_nccl;
  if (gpus && gpus->way == OnGpus::Way::levels) return why_levels;
  return call.plan->why;
}

// At the end of every call, wherever the failure was heard of: nothing may wait on a GPU for a member that does not
// come, and memory cannot be freed while it does.
void Team::break_if_failed() noexcept {
  if (!engine_ || !engine_->failed()) return;
  end_levels();
  clique_.reset();
}

// The same on all members, whatever their data. Nobody knows how much there is where members know their own counts
// only.
bool Team::may_ask_where(const Ask& ask, const Spec& spec, Asking asking) const {
  if (!may_use_nccl_ || asking == Asking::never || !nccl::can_do(spec, size())) return false;
  return ask.stream || asking == Asking::once || has_own_counts(spec.collective) || bytes_of(spec) >= asked_from;
}

// Whether a call like this one would ask; at least where it would.
bool Team::asks_where(const Ask& ask) const {
  return may_use_nccl_ && std::max(ask.input.count, ask.output.count) * ask.element_bytes >=
                              asked_from / static_cast<std::size_t>(size());
}

int Team::device_of(const Ask& ask) const {
  if (ask.reduction.op == ReduceOp::user && ask.reduction.on_gpu.put == nullptr) return gpu::Where::host;
  int device = OnGpus::anywhere;
  for (const Data* each : {&ask.input, &ask.output}) {
    if (each->count == 0) continue;
    const gpu::Where where = each->contiguous() ? where_is(*each) : gpu::Where{};
    if (!where.on_device() || (device != OnGpus::anywhere && device != where.device)) return gpu::Where::host;
    device = where.device;
  }
  return device;
}

std::shared_ptr<OnGpus> Team::on_gpus(const Spec& spec, const Ask& ask) const {
  auto gpus = std::make_shared<OnGpus>();
  // An empty buffer may have an address in memory that is not meant.
  const auto at = [](const Data& data) { return data.count > 0 ? static_cast<std::byte*>(data.data) : nullptr; };
  gpus->steps.push_back({spec, at(ask.input), at(ask.output), ask.reduction.factor, ask.reduction.on_gpu});
  gpus->device = device_of(ask);
  if (ask.stream.value_or(nullptr) != nullptr) gpus->stream_device = gpu::layer()->device_of(*ask.stream);
  return gpus;
}

Ready Team::prepare(std::span<const Ask> asks, const Ask& whole, std::function<Ready()> otherwise) {
  if (!may_use_nccl_ || asks.empty()) return {};
  const Use use(*this, whole.origin);
  refuse_if_closed();
  return or_refuse([&] {
    Ready ready;
    ready.call.origin = whole.origin;
    ready.stream = whole.stream;
    ready.gpus = std::make_shared<OnGpus>();
    int& device = ready.gpus->device;
    constexpr std::uint64_t in_stream = std::uint64_t{1} << 63U;
    // Members have to have the same in the same order.
    std::uint64_t counts = asks.size() | (whole.stream ? in_stream : 0);
    for (const Ask& each : asks) {
      const Ask ask = with_options(each);
      const Spec spec = spec_of(ask, size(), rank(), cuts_);
      if (!nccl::can_do(spec, size())) return Ready{};
      const auto one = on_gpus(spec, ask);
      if (device == OnGpus::anywhere) device = one->device;
      if (one->device != OnGpus::anywhere && one->device != device) device = gpu::Where::host;
      ready.gpus->steps.push_back(one->steps.front());
      counts = (counts ^ spec.count) * 0xff51afd7ed558ccdU;
      counts ^= counts >> 33U;
    }
    ready.gpus->meeting =
        meeting(spec_of(with_options(whole), size(), rank(), cuts_),
                whole.stream ? "where the tensors are, in a stream" : "where the tensors are", counts | 4U);
    ready.gpus->otherwise = std::move(otherwise);
    return ready;
  });
}

void Team::decide_as(const Ready& ready, const Ready& earlier, const Origin& origin) {
  if (!ready.gpus || !earlier.gpus) return;
  const Use use(*this, origin);
  refuse_if_closed();
  or_refuse([&] {
    const OnGpus::Way way = earlier.gpus->way;
    // NCCL is given the same parts of memory that it knows by all, or copies by all.
    const bool knew = earlier.gpus->is_same_memory && earlier.gpus->places != 0;
    ready.gpus->places = clique_ ? clique_->places_of(ready.gpus->steps) : 0;
    ready.gpus->set_same_memory(earlier.gpus->is_same_memory && ready.gpus->places == earlier.gpus->places);
    if (((way == OnGpus::Way::clique || way == OnGpus::Way::levels) && !fits(ready.gpus->device)) ||
        (knew && !ready.gpus->is_same_memory))
      throw Error(
          Code::usage,
          text("on \"", options_.name, "\", data that was in the memory of this member's GPU when all agreed to ",
               "go by NCCL is elsewhere now, at ", place(origin)),
          "keep it in that memory, or begin anew on all members");
    ready.gpus->way = earlier.gpus->way;
  });
}

// What is captured is not done, and NCCL's group is made by what is.
void Team::refuse_if_captured(const Ready& ready) {
  if (clique_ || levels_ || !ready.stream) return;
  or_refuse([&] {
    if (!gpu::layer()->is_captured(*ready.stream)) return;
    throw Error(Code::usage,
                text("a stream that is captured was given to the first call of \"", options_.name, "\" on GPUs, ",
                     place(ready.call.origin)),
                "call something once before the stream is captured");
  });
}

// Which members find out together, the first time.
void Team::find_way(const Ready& ready) {
  OnGpus& gpus = *ready.gpus;
  engine_->progress_or_throw();
  if (gpus.way == OnGpus::Way::unknown && !may_go(gpus)) gpus.way = OnGpus::Way::otherwise;  // known since
  if (gpus.way == OnGpus::Way::unknown) {
    refuse_if_captured(ready);
    decide(gpus, ready.call.origin);
  }
  if (gpus.way == OnGpus::Way::otherwise && !gpus.other) gpus.other = or_refuse(gpus.otherwise);
}

// Whether GPUs do it; then it is in a stream when this returns.
bool Team::begin_on_gpus(const Ready& ready, Handle handle) {
  const OnGpus& gpus = *ready.gpus;
  try {
    find_way(ready);
    if (gpus.way == OnGpus::Way::otherwise) return false;
    Trial* const trial = gpus.way == OnGpus::Way::clique ? trial_of(ready) : nullptr;
    if (trial != nullptr)
      run_in_turn(*trial, ready, handle);
    else if (gpus.way == OnGpus::Way::levels)
      run_levels(ready, pending(handle).behind);
    else
      begin_in_clique(gpus.steps, ready, handle);
    return true;
  } catch (...) {
    release(handle);
    throw;
  }
}

// `ready`: the first of what the steps are of.
void Team::begin_in_clique(std::span<const nccl::Step> steps, const Ready& ready, Handle handle) {
  or_break([&] {
    const gpu::Stream stream = ready.stream ? *ready.stream : clique_->stream_after(pending(handle).behind);
    GpuPause pause(*this, "", ready.call.origin, &steps.front().spec);
    if (auto mark = clique_->begin(steps, stream, std::ref(pause))) pending(handle).marks.push_back(std::move(mark));
    pending(handle).in_stream = ready.stream.has_value();
  });
}

// Whether it is a part of the one operation that NCCL makes of calls which are started at once.
bool Team::joins(const Ready& ready, Handle handle) {
  if (!ready.gpus) return false;
  find_way(ready);
  if (ready.gpus->way != OnGpus::Way::clique || trial_of(ready) != nullptr) return false;
  auto& together = pending(handle).together;
  together.insert(together.end(), ready.gpus->steps.begin(), ready.gpus->steps.end());
  return true;
}

void Team::begin_together(std::span<const Ready> calls, Handle handle) {
  const auto or_release = [&](const auto& f) {
    try {
      return f();
    } catch (...) {
      release(handle);
      throw;
    }
  };
  const Ready* first = nullptr;
  for (const Ready& ready : calls) {
    if (!or_release([&] { return joins(ready, handle); })) {
      begin(ready, handle);
      mark_end(ready, handle);
    } else if (first == nullptr) {
      first = &ready;
    }
  }
  if (first != nullptr) or_release([&] { begin_in_clique(pending(handle).together, *first, handle); });
}

void Team::wait_for_clique(const Origin& origin) {
  GpuPause pause(*this, "what was begun on GPUs before a call", origin);
  while (clique_ && clique_->is_working()) {
    clique_->check();
    pause();
  }
}

bool Team::reached(Handle handle) {
  Pending& slot = pending(handle);
  if (slot.marks.empty()) return true;
  return or_break([&] {
    engine_->progress_or_throw();
    move_others(0);
    if (clique_) clique_->check();
    std::erase_if(slot.marks, [](const auto& mark) { return mark->is_reached(); });
    return slot.marks.empty();
  });
}

void Team::wait_for_gpus(Handle handle) {
  if (pending(handle).marks.empty()) return;
  GpuPause pause(*this, "what was begun", pending(handle).origin);
  while (!reached(handle)) or_break([&] { pause(); });
}

// What is under way is waited for, unless something went wrong.
void Team::end_clique() noexcept {
  if (!clique_) return;
  try {
    if (!engine_->failed() && std::uncaught_exceptions() == 0) {
      GpuPause pause(*this, "what was begun on GPUs", {});
      clique_->end(std::ref(pause));
    } else {  // who ends in peace waits for all
      engine_->refuse(
          Error(Code::peer_failed, "it left without ending what GPUs did for it", "see what it says itself"));
    }
  } catch (const std::exception& error) {
    engine_->log().error(text("while ending NCCL's group of \"", options_.name, "\": ", error.what()));
  }
  clique_.reset();
}

}  // namespace lockstep::detail
