// SPDX-License-Identifier: Apache-2.0
// Gives untyped memory its type at run time, for calls and for local arithmetic.
#include "runtime/packs.hpp"

#include <cstring>
#include <deque>
#include <vector>

#include "collectives/communicator/communicator_core.hpp"
#include "collectives/gpu/memory.hpp"
#include "collectives/kernels/kernels.hpp"
#include "collectives/visit_type.hpp"
#include "runtime/values/arithmetic.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

// Calls `function` with the memory as a span of its type. Throws Error usage for types without an order.
template <class F>
void typed(const TensorView& view, F&& function) {
  visit_type(view.type, [&]<class T>(std::type_identity<T> /*for its type*/) {
    if constexpr (std::is_void_v<T> || std::is_same_v<T, bool> || is_complex<T>)
      throw Error(Code::usage, text("replicas' values of the type ", to_string(view.type), " are not reduced"),
                  "use numbers that have an order");
    else
      function(std::span<T>(static_cast<T*>(view.data), view.count));
  });
}

// Gives the host access to a view's memory: a copy if that is a GPU's.
class HostView {
 public:
  explicit HostView(const TensorView& view) : view_(view), where_(gpu::where(view.data)) {
    if (!where_.on_device()) return;
    copy_.resize(view.bytes());
    view_.data = copy_.data();
    gpu::copy(where_.device, copy_.data(), static_cast<const std::byte*>(view.data), view.bytes());
  }
  const TensorView& view() const { return view_; }
  // Copies the changed memory back to the GPU.
  void put_back(const TensorView& view) const {
    if (where_.on_device()) gpu::copy(where_.device, static_cast<std::byte*>(view.data), copy_.data(), view.bytes());
  }

 private:
  TensorView view_;
  gpu::MemoryLocation where_;
  std::vector<std::byte> copy_;
};

}  // namespace

// Treats an average as a sum so far.
void reduce_into(ReduceOp op, const TensorView& there, const TensorView& from_there) {
  const HostView seen(there);
  const HostView seen_from(from_there);
  const TensorView& to = seen.view();
  const TensorView& from = seen_from.view();
  const Kernel* const kernel = find_kernel(to.type, op == ReduceOp::avg ? ReduceOp::sum : op);
  if (kernel == nullptr)
    throw Error(Code::usage, text("no ", to_string(op), " of ", to_string(to.type)), "use numbers");
  kernel->two(to.data, to.data, from.data, to.count);
  seen.put_back(there);
}

void copy(const TensorView& to, const TensorView& from) {
  if (from.bytes() == 0) return;
  gpu::MemoryLocation where = gpu::where(to.data);
  if (!where.on_device()) where = gpu::where(from.data);
  if (where.on_device())
    gpu::copy(where.device, static_cast<std::byte*>(to.data), static_cast<const std::byte*>(from.data), from.bytes());
  else
    std::memcpy(to.data, from.data, from.bytes());
}

void average(const TensorView& there, int of) {
  const HostView seen(there);
  divide(there.type, seen.view().data, seen.view().data, there.count, of);
  seen.put_back(there);
}

void add_view(Batch& batch, const TensorView& view, NamedOp op, Origin origin) {
  op.with([&](auto known) { typed(view, [&](auto span) { batch.all_reduce(span, known, origin); }); });
}

// Types without an order travel as bytes: a replica's value of another type is found by the subject of the call.
void broadcast_view(Communicator& member, const TensorView& view, int from, Origin origin) {
  if (view.type == DataType::boolean || view.type == DataType::c64 || view.type == DataType::c128)
    return member.broadcast(std::span(static_cast<std::uint8_t*>(view.data), view.bytes()), from, origin);
  typed(view, [&](auto span) { member.broadcast(span, from, origin); });
}

void all_reduce_packs(Communicator& member, const TensorViews& values, NamedOp op, std::int64_t bytes_per_pack,
                      Origin origin) {
  const TensorViews reversed(values.rbegin(), values.rend());
  std::vector<std::size_t> bytes;
  bytes.reserve(reversed.size());
  for (const TensorView& each : reversed) bytes.push_back(each.bytes());
  std::deque<Batch> packs;
  std::vector<Request> requests;
  for (const auto& [first, end] : plan_packs_of_bytes(bytes, bytes_per_pack)) {
    Batch& pack = packs.emplace_back(member);
    for (std::size_t i = first; i < end; ++i) add_view(pack, reversed[i], op, origin);
    requests.push_back(pack.start(origin));
  }
  wait_all(requests, origin);
}

ScopedCallSubject::ScopedCallSubject(Communicator& member, const CallSubject& subject)
    : core_(*member.core()), before_(core_.binder().subject()) {
  CallSubject now = before_;
  if (subject.layout != 0) now.layout = subject.layout;
  if (subject.variable != 0) now.variable = subject.variable;
  if (subject.tag != 0) now.tag = subject.tag;
  if (subject.merges != 0) now.merges = subject.merges;
  if (now != before_) core_.binder().set_subject(now);
}

ScopedCallSubject::~ScopedCallSubject() {
  if (core_.binder().subject() != before_) core_.binder().set_subject(before_);
}

}  // namespace lockstep::detail
