// SPDX-License-Identifier: Apache-2.0
#include "runtime/packs.hpp"

#include <deque>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

// Calls `function` with the memory as a span of its type.
template <class F>
decltype(auto) typed(const View& view, F&& function) {
  const auto with = [&]<class T>(T* data) -> decltype(auto) { return function(std::span<T>(data, view.count)); };
  switch (view.type) {
    case DataType::f16:
      return with(static_cast<f16*>(view.data));
    case DataType::bf16:
      return with(static_cast<bf16*>(view.data));
    case DataType::f32:
      return with(static_cast<float*>(view.data));
    case DataType::f64:
      return with(static_cast<double*>(view.data));
    case DataType::i8:
      return with(static_cast<std::int8_t*>(view.data));
    case DataType::i16:
      return with(static_cast<std::int16_t*>(view.data));
    case DataType::i32:
      return with(static_cast<std::int32_t*>(view.data));
    case DataType::i64:
      return with(static_cast<std::int64_t*>(view.data));
    case DataType::u8:
      return with(static_cast<std::uint8_t*>(view.data));
    case DataType::u16:
      return with(static_cast<std::uint16_t*>(view.data));
    case DataType::u32:
      return with(static_cast<std::uint32_t*>(view.data));
    case DataType::u64:
      return with(static_cast<std::uint64_t*>(view.data));
    default:
      throw Error(Code::usage, text("replicas' values of the type ", to_string(view.type), " are not reduced"),
                  "use numbers that have an order");
  }
}

}  // namespace

void add_view(Batch& batch, const View& view, NamedOp op, Origin origin) {
  op.with([&](auto known) { typed(view, [&](auto span) { batch.all_reduce(span, known, origin); }); });
}

void all_reduce_packs(Communicator& member, const Views& values, NamedOp op, std::int64_t bytes_per_pack,
                      Origin origin) {
  const Views reversed(values.rbegin(), values.rend());
  std::vector<std::size_t> bytes;
  bytes.reserve(reversed.size());
  for (const View& each : reversed) bytes.push_back(each.bytes());
  std::deque<Batch> packs;
  std::vector<Request> requests;
  for (const auto& [first, end] : plan_packs_of_bytes(bytes, bytes_per_pack)) {
    Batch& pack = packs.emplace_back(member);
    for (std::size_t i = first; i < end; ++i) add_view(pack, reversed[i], op, origin);
    requests.push_back(pack.start(origin));
  }
  wait_all(requests, origin);
}

}  // namespace lockstep::detail
