// SPDX-License-Identifier: Apache-2.0
// Has the ops that combine tensors of all replicas.
#include <numeric>

#include "runtime/replica_context.hpp"
#include "runtime/train/op.hpp"
#include "runtime/train/ops.hpp"
#include "runtime/train/tape.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

TensorShape shape_of_floats(const OpAttributes& /*replica*/, std::span<const AnyTensor> inputs) {
  with_float_type("all_reduce", inputs[0].type(), [](auto /*type*/) {});
  return inputs[0].shape();
}
template <class Reduction>
void reduce_over_replicas(const OpAttributes& attributes, const AnyTensor& from, AnyTensor to) {
  to.assign(from);
  attributes.replica->all_reduce(to, Reduction());
}
template <class Reduction>
void all_reduce_forward(OpCall& call) {
  reduce_over_replicas<Reduction>(call.attributes, call.inputs[0], call.output);
}
template <class Reduction>
void all_reduce_backward(BackwardCall& call) {
  reduce_over_replicas<Reduction>(call.attributes(), call.gradient(), call.into(0));
}
using Sum = std::remove_const_t<decltype(sum)>;
using Mean = std::remove_const_t<decltype(avg)>;
constexpr Op all_reduce_sum_op = {"all_reduce_sum", shape_of_floats, all_reduce_forward<Sum>, all_reduce_backward<Sum>};
constexpr Op all_reduce_mean_op = {"all_reduce_mean", shape_of_floats, all_reduce_forward<Mean>,
                                   all_reduce_backward<Mean>};

// Takes the gathered tensor, which is the result, and this replica's part. The integers are the axis and the part's
// first position along it.
TensorShape gathered_shape(const OpAttributes& /*place*/, std::span<const AnyTensor> inputs) {
  return inputs[0].shape();
}
void all_gather_backward(BackwardCall& call) {
  if (!call.wants(1)) return;
  AnyTensor whole = uninitialized_tensor(call.gradient().type(), call.gradient().shape());
  reduce_over_replicas<Sum>(call.attributes(), call.gradient(), whole);
  const TensorShape& part = call.input(1).shape();
  std::vector<std::int64_t> first(static_cast<std::size_t>(part.rank()));
  first[static_cast<std::size_t>(call.attributes().integers[0])] = call.attributes().integers[1];
  const Tape::Pause pause;
  call.give(1, slice(whole, std::move(first), part.lengths()).tensor());
}
constexpr Op all_gather_op = {"all_gather", gathered_shape, nullptr, all_gather_backward};

}  // namespace

TapeTensor all_reduce_sum(ReplicaContext& replica, const TapeTensor& x) {
  return apply(all_reduce_sum_op, {x}, {.replica = &replica});
}
TapeTensor all_reduce_mean(ReplicaContext& replica, const TapeTensor& x) {
  return apply(all_reduce_mean_op, {x}, {.replica = &replica});
}

TapeTensor all_gather(ReplicaContext& replica, const TapeTensor& x, int axis) {
  if (x.shape().rank() == 0) refuse_inputs("all_gather", "a scalar has no axis", "reshape it: reshape(x, {1})");
  const int from_start = x.shape().find(axis);
  const std::vector<std::int64_t> lengths = replica.all_gather(x.shape()[axis]);
  const std::int64_t first =
      std::accumulate(lengths.begin(), lengths.begin() + replica.replica_id_in_sync_group(), std::int64_t{0});
  TapeTensor gathered;
  with_float_type("all_gather", x.type(),
                  [&]<class T>(T /*type*/) { gathered = replica.all_gather(x.to<T>(), from_start); });
  return apply(all_gather_op, {gathered, x}, {.integers = {from_start, first}, .replica = &replica});
}

}  // namespace lockstep::train
