// SPDX-License-Identifier: Apache-2.0
// Calls that GPUs do by NCCL, where every member has its data in the memory of a GPU of its own. Whether all have it
// there, they ask each other: in the first start of a call, which so is known to be the same call on all.
#include <algorithm>
#include <exception>
#include <set>
#include <thread>

#include "collectives/communicator/team_parts.hpp"
#include "collectives/planner.hpp"
#include "topology/base/movers.hpp"

namespace lockstep::detail {
namespace {

// Of data on the host, that members ask each other would be felt below.
constexpr std::size_t asked_from = 4096;

const std::string by_nccl = "nccl";
const std::string why_nccl = "every member has its data in the memory of a GPU of its own";

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
  return call.plan->algorithm;
}

const std::string& Ready::why() const {
  if (gpus && gpus->way == OnGpus::Way::clique) return why_nccl;
  return call.plan->why;
}

// Waits for GPUs: others are heard, what the thread has begun elsewhere moves, and there is an end of patience.
class Team::GpuPause {
 public:
  GpuPause(Team& team, const char* what, const Origin& origin, const Spec* spec = nullptr)
      : team_(team), what_(what), origin_(origin), spec_(spec) {}

  void operator()() {
    team_.engine_->progress_or_throw();
    constexpr unsigned turns_between_looks = 8;
    if (turns_ % turns_between_looks == turns_between_looks - 1) move_others(1);
    const Duration now = team_.engine_->world().now();
    if (turns_ == 0) since_ = now;
    const Duration limit =
        team_.options_.timeout > Duration{} ? team_.options_.timeout : team_.exchange_->patience().limit;
    if (limit > Duration{} && now - since_ > limit) refuse(limit);
    idle(now - since_);
    ++turns_;
  }

 private:
  // Nobody wakes who waits for a GPU: naps are so short that little of the time is lost by them.
  static void idle(Duration waited) {
    using std::chrono::microseconds;
    constexpr Duration spins = microseconds(50);
    constexpr Duration yields = microseconds(2000);
    constexpr Duration longest_nap = microseconds(200);
    if (waited < spins) return;
    if (waited < yields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::min(waited / 50, longest_nap));
  }

  [[noreturn]] void refuse(Duration limit) const {
    const std::string line = place(origin_);
    throw Error(
        Code::stall,
        text("on \"", team_.options_.name, "\", ", spec_ ? to_text(signature_of(*spec_)) : what_,
             line.empty() ? "" : text(", begun at ", line), ", has not ended for ",
             std::chrono::duration<double>(limit).count(),
             " s: what is before it in the stream of a member has not ended, or a member has not started it, or "
             "is gone"),
        "look at what each member puts into its stream before, whether all start their plans alike, and at "
        "NCCL_DEBUG=INFO; LOCKSTEP_TIMEOUT is the limit");
  }

  Team& team_;
  const char* what_;
  Origin origin_;
  const Spec* spec_;
  unsigned turns_ = 0;
  Duration since_ = {};
};

// What f returns; what it throws, of any kind, is told to the other members, and the clique is broken off with the
// call.
template <class F>
auto Team::or_break(const F& f) {
  try {
    return or_refuse(f);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& other) {
    engine_->refuse(Error(Code::out_of_memory, text("in a call on GPUs: ", other.what())));
    throw;
  }
}

// At the end of every call, wherever the failure was heard of: nothing may wait on a GPU for a member that does not
// come, and memory cannot be freed while it does.
void Team::break_if_failed() noexcept {
  if (clique_ && engine_ && engine_->failed()) clique_.reset();
}

// The same on all members, whatever their data.
bool Team::may_ask_where(const Ask& ask, const Spec& spec, Asking asking) const {
  if (!may_use_nccl_ || asking == Asking::never || !nccl::can_do(spec, size())) return false;
  return ask.stream || asking == Asking::once || bytes_of(spec) >= asked_from;
}

// Whether a call like this one would ask; at least where it would.
bool Team::asks_where(const Ask& ask) const {
  return may_use_nccl_ && std::max(ask.input.count, ask.output.count) * ask.element_bytes >=
                              asked_from / static_cast<std::size_t>(size());
}

int Team::device_of(const Ask& ask) const {
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
  gpus->steps.push_back({spec, static_cast<const std::byte*>(ask.input.data), static_cast<std::byte*>(ask.output.data),
                         ask.reduction.factor});
  gpus->device = device_of(ask);
  return gpus;
}

Ready Team::prepare(std::span<const Ask> asks, const Ask& whole, std::function<Ready()> otherwise) {
  if (!may_use_nccl_ || asks.empty()) return {};
  const Use use(*this, whole.origin);
  refuse_if_closed();
  return or_refuse([&] {
    const auto ordered = [&](Ask ask) {
      if (options_.order == Order::reproducible) ask.order = Order::reproducible;
      return ask;
    };
    Ready ready;
    ready.call.origin = whole.origin;
    ready.gpus = std::make_shared<OnGpus>();
    int& device = ready.gpus->device;
    std::uint64_t counts = asks.size();  // members have to have the same in the same order
    for (const Ask& each : asks) {
      const Ask ask = ordered(each);
      const Spec spec = spec_of(ask, size(), rank(), cuts_);
      if (!nccl::can_do(spec, size())) return Ready{};
      const auto one = on_gpus(spec, ask);
      if (device == OnGpus::anywhere) device = one->device;
      if (one->device != OnGpus::anywhere && one->device != device) device = gpu::Where::host;
      ready.gpus->steps.push_back(one->steps.front());
      counts = (counts ^ spec.count) * 0xff51afd7ed558ccdU;
      counts ^= counts >> 33U;
    }
    ready.gpus->meeting = meeting(spec_of(ordered(whole), size(), rank(), cuts_), "where the tensors are", counts | 4U);
    ready.gpus->otherwise = std::move(otherwise);
    return ready;
  });
}

void Team::decide_as(const Ready& ready, const Ready& earlier, const Origin& origin) {
  if (!ready.gpus || !earlier.gpus) return;
  const Use use(*this, origin);
  refuse_if_closed();
  or_refuse([&] {
    const bool goes = earlier.gpus->way == OnGpus::Way::clique;
    const int device = ready.gpus->device;
    const bool fits = device == OnGpus::anywhere || (clique_ && device == clique_->device());
    if (goes && !fits)
      throw Error(
          Code::usage,
          text("on \"", options_.name, "\", data that was in the memory of this member's GPU when all agreed to ",
               "go by NCCL is elsewhere now, at ", place(origin)),
          "keep it in that memory, or begin anew on all members");
    ready.gpus->way = earlier.gpus->way;
  });
}

// The same object again for what is the same to all members.
std::shared_ptr<const Plan> Team::meeting(const Spec& spec, std::string_view name, std::uint64_t choice) {
  constexpr std::size_t kept = 1024;
  const auto key = std::pair(hash(signature_of(spec)), choice);
  const auto known = meetings_.find(key);
  if (known != meetings_.end()) return known->second;
  if (meetings_.size() == kept) meetings_.clear();
  const auto plain = planner_->plan({.collective = Collective::all_reduce,
                                     .type = DataType::u8,
                                     .op = ReduceOp::max,
                                     .element_bytes = 1,
                                     .count = 1});
  auto plan = std::make_shared<Plan>(*plain);
  plan->algorithm = name;
  plan->choice += choice;
  plan->stands_for = spec;
  meetings_[key] = plan;
  return plan;
}

void Team::decide(OnGpus& gpus, const Origin& origin) {
  const bool fits = clique_ ? gpus.device == clique_->device() || gpus.device == OnGpus::anywhere : gpus.device >= 0;
  auto& [mine, all] = *words_;
  mine = std::byte{!fits};
  engine_->run({.plan = gpus.meeting,
                .input = &mine,
                .output = &all,
                .kernel = find_kernel(DataType::u8, ReduceOp::max),
                .origin = origin,
                .limit = options_.timeout});
  gpus.way = OnGpus::Way::otherwise;
  if (all != std::byte{}) return;
  if (!clique_) make_clique(gpus.device, origin);
  if (clique_) gpus.way = OnGpus::Way::clique;
}

// NCCL refuses members that share a GPU, and not all at once: so they find out before.
void Team::make_clique(int device, const Origin& origin) {
  or_break([&] {
    nccl::Id id{};
    try {
      const std::string serial = gpu::layer()->id(device);
      const auto all = exchange_->all_gather("serials of the GPUs", std::as_bytes(std::span(serial)));
      std::set<std::string> serials;
      for (const Bytes& each : all) serials.emplace(reinterpret_cast<const char*>(each.data()), each.size());
      if (serials.size() < all.size()) {
        may_use_nccl_ = false;
        exchange_->log().info(text("members of \"", options_.name, "\" share a GPU: NCCL is not used among them"));
        return;
      }
      if (rank() == 0) id = nccl::library()->make_id();
      std::ranges::copy(exchange_->broadcast("NCCL's name of the group", id, 0), id.begin());
    } catch (const Error& error) {
      if (!exchange_->failed()) exchange_->fail(error.detail());  // who waits there does not hear the engine
      throw;
    }
    GpuPause pause(*this, "making NCCL's group", origin);
    clique_ = std::make_unique<nccl::Clique>(*nccl::library(), id, size(), rank(), device, std::ref(pause));
  });
}

// What is captured is not done, and NCCL's group is made by what is.
void Team::refuse_if_captured(const Ready& ready) {
  if (clique_ || !ready.stream) return;
  or_refuse([&] {
    if (!gpu::layer()->is_captured(*ready.stream)) return;
    throw Error(Code::usage,
                text("a stream that is captured was given to the first call of \"", options_.name, "\" on GPUs, ",
                     place(ready.call.origin)),
                "call something once before the stream is captured");
  });
}

// Whether GPUs do it; then it is in a stream when this returns.
bool Team::begin_on_gpus(const Ready& ready, Handle handle) {
  OnGpus& gpus = *ready.gpus;
  try {
    engine_->progress_or_throw();
    if (gpus.way == OnGpus::Way::unknown && !may_use_nccl_) gpus.way = OnGpus::Way::otherwise;  // known since
    if (gpus.way == OnGpus::Way::unknown) {
      refuse_if_captured(ready);
      decide(gpus, ready.call.origin);
    }
    if (gpus.way == OnGpus::Way::otherwise) {
      if (!gpus.other) gpus.other = or_refuse(gpus.otherwise);
      return false;
    }
    const gpu::Stream stream = ready.stream.value_or(clique_->stream());
    or_break([&] {
      GpuPause pause(*this, "", ready.call.origin, &gpus.steps.front().spec);
      if (auto mark = clique_->begin(gpus.steps, stream, std::ref(pause)))
        pending(handle).marks.push_back(std::move(mark));
      pending(handle).in_stream = ready.stream.has_value();
    });
    return true;
  } catch (...) {
    release(handle);
    throw;
  }
}

void Team::wait_for_stream(gpu::Stream stream, const Origin& origin) {
  or_break([&] {
    gpu::Layer* const layer = gpu::layer();
    if (layer == nullptr && stream == nullptr) return;
    if (layer == nullptr)
      throw Error(Code::usage, text("a stream of a GPU was given, but ", gpu::why_none()), "give none, or nullptr");
    if (layer->is_captured(stream))
      throw Error(Code::usage, "a stream that is captured was given to a call that the host takes part in",
                  "call it outside of the graph; docs/gpu.md says what GPUs do by themselves");
    const auto mark = layer->mark(gpu::Where::host, stream);
    GpuPause pause(*this, "what is in a stream before a call", origin);
    while (!mark->is_reached()) {
      if (clique_) clique_->check();
      pause();
    }
  });
}

// Whether nothing of it is left to the host; then the program goes on, and the stream has the result.
bool Team::stays_in_stream(Handle handle) {
  const Pending& slot = pending(handle);
  if (!slot.in_stream || !slot.tickets.empty()) return false;
  release(handle);
  return true;
}

bool Team::reached(Handle handle) {
  Pending& slot = pending(handle);
  if (slot.marks.empty()) return true;
  return or_break([&] {
    engine_->progress_or_throw();
    move_others(1);
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
