// SPDX-License-Identifier: Apache-2.0
// The collectives, as users call them. Every one has three forms: `x` blocks, `x_async` returns a Request, `plan_x`
// a PreparedCall that is started many times. docs/collectives has a page for each: who calls it, what lies where, the
// order of reduction, the errors, the cost. Self is what does something with a CallRequest: a Communicator.
#pragma once

#include "collectives/communicator/call_requests.hpp"
#include "collectives/communicator/request.hpp"

namespace lockstep {

template <class Self>
class Collectives {
  using Counts = std::span<const std::size_t>;

 public:
  // Everybody's data combined, at everybody; with one buffer, in place.
  template <class In, class Out, class Op>
  void all_reduce(const In& in, Out&& out, Op op, Origin origin = Origin::here()) {
    self().run(detail::requests::reduce(Collective::all_reduce, in, out, op, 0, origin));
  }
  template <class In, class Out, class Op>
  Request all_reduce_async(const In& in, Out&& out, Op op, Origin origin = Origin::here()) {
    return self().begin(detail::requests::reduce(Collective::all_reduce, in, out, op, 0, origin));
  }
  template <class In, class Out, class Op>
  PreparedCall plan_all_reduce(const In& in, Out&& out, Op op, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::reduce(Collective::all_reduce, in, out, op, 0, origin));
  }

  template <class R, class Op>
  requires(!std::is_arithmetic_v<std::remove_cvref_t<R>>) void all_reduce(R&& data, Op op,
                                                                          Origin origin = Origin::here()) {
    self().run(detail::requests::reduce_in_place(Collective::all_reduce, data, op, 0, origin));
  }
  template <class R, class Op>
  Request all_reduce_async(R&& data, Op op, Origin origin = Origin::here()) {
    return self().begin(detail::requests::reduce_in_place(Collective::all_reduce, data, op, 0, origin));
  }
  template <class R, class Op>
  PreparedCall plan_all_reduce(R&& data, Op op, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::reduce_in_place(Collective::all_reduce, data, op, 0, origin));
  }
  template <class T, class Op>
  requires(std::is_arithmetic_v<T>) [[nodiscard]] T all_reduce(T value, Op op, Origin origin = Origin::here()) {
    all_reduce(std::span<T>(&value, 1), op, origin);
    return value;
  }

  // The same, at the root only; with one buffer, the root's is replaced and the others' are kept.
  template <class In, class Out, class Op>
  void reduce(const In& in, Out&& out, Op op, int root, Origin origin = Origin::here()) {
    self().run(detail::requests::reduce(Collective::reduce, in, at_root(out, root), op, root, origin));
  }
  template <class In, class Out, class Op>
  Request reduce_async(const In& in, Out&& out, Op op, int root, Origin origin = Origin::here()) {
    return self().begin(detail::requests::reduce(Collective::reduce, in, at_root(out, root), op, root, origin));
  }
  template <class In, class Out, class Op>
  PreparedCall plan_reduce(const In& in, Out&& out, Op op, int root, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::reduce(Collective::reduce, in, at_root(out, root), op, root, origin));
  }

  template <class R, class Op>
  void reduce(R&& data, Op op, int root, Origin origin = Origin::here()) {
    self().run(detail::requests::reduce_to_root(data, op, root, self().rank(), origin));
  }
  template <class R, class Op>
  Request reduce_async(R&& data, Op op, int root, Origin origin = Origin::here()) {
    return self().begin(detail::requests::reduce_to_root(data, op, root, self().rank(), origin));
  }
  template <class R, class Op>
  PreparedCall plan_reduce(R&& data, Op op, int root, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::reduce_to_root(data, op, root, self().rank(), origin));
  }

  // Block i of everybody's data combined, at member i; with one buffer, the result replaces the own block.
  template <class In, class Out, class Op>
  void reduce_scatter(const In& in, Out&& out, Op op, Origin origin = Origin::here()) {
    self().run(detail::requests::reduce(Collective::reduce_scatter, in, out, op, 0, origin));
  }
  template <class In, class Out, class Op>
  Request reduce_scatter_async(const In& in, Out&& out, Op op, Origin origin = Origin::here()) {
    return self().begin(detail::requests::reduce(Collective::reduce_scatter, in, out, op, 0, origin));
  }
  template <class In, class Out, class Op>
  PreparedCall plan_reduce_scatter(const In& in, Out&& out, Op op, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::reduce(Collective::reduce_scatter, in, out, op, 0, origin));
  }

  template <class R, class Op>
  void reduce_scatter(R&& data, Op op, Origin origin = Origin::here()) {
    self().run(detail::requests::scatter_in_place(data, op, self().rank(), self().size(), origin));
  }
  template <class R, class Op>
  Request reduce_scatter_async(R&& data, Op op, Origin origin = Origin::here()) {
    return self().begin(detail::requests::scatter_in_place(data, op, self().rank(), self().size(), origin));
  }
  template <class R, class Op>
  PreparedCall plan_reduce_scatter(R&& data, Op op, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::scatter_in_place(data, op, self().rank(), self().size(), origin));
  }

  // The same with blocks of the given lengths.
  template <class In, class Out, class Op>
  void reduce_scatter_v(const In& in, Out&& out, Counts counts, Op op, Origin origin = Origin::here()) {
    self().run(detail::requests::reduce_scatter_v(in, out, counts, op, origin));
  }
  template <class In, class Out, class Op>
  Request reduce_scatter_v_async(const In& in, Out&& out, Counts counts, Op op, Origin origin = Origin::here()) {
    return self().begin(detail::requests::reduce_scatter_v(in, out, counts, op, origin));
  }
  template <class In, class Out, class Op>
  PreparedCall plan_reduce_scatter_v(const In& in, Out&& out, Counts counts, Op op, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::reduce_scatter_v(in, out, counts, op, origin));
  }

  // Everybody's data one after the other, at everybody; with one buffer, the own block lies in its place.
  template <class In, class Out>
  void all_gather(const In& in, Out&& out, Origin origin = Origin::here()) {
    self().run(detail::requests::move(Collective::all_gather, in, out, 0, origin));
  }
  template <class In, class Out>
  Request all_gather_async(const In& in, Out&& out, Origin origin = Origin::here()) {
    return self().begin(detail::requests::move(Collective::all_gather, in, out, 0, origin));
  }
  template <class In, class Out>
  PreparedCall plan_all_gather(const In& in, Out&& out, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::move(Collective::all_gather, in, out, 0, origin));
  }

  template <class R>
  void all_gather(R&& data, Origin origin = Origin::here()) {
    self().run(detail::requests::gather_in_place(data, self().rank(), self().size(), origin));
  }
  template <class R>
  Request all_gather_async(R&& data, Origin origin = Origin::here()) {
    return self().begin(detail::requests::gather_in_place(data, self().rank(), self().size(), origin));
  }
  template <class R>
  PreparedCall plan_all_gather(R&& data, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::gather_in_place(data, self().rank(), self().size(), origin));
  }

  // The same with blocks of the given lengths; all members give the same counts.
  template <class In, class Out>
  void all_gather_v(const In& in, Out&& out, Counts counts, Counts offsets = {}, Origin origin = Origin::here()) {
    self().run(detail::requests::gather_v(Collective::all_gather_v, in, out, counts, offsets, 0, origin));
  }
  template <class In, class Out>
  Request all_gather_v_async(const In& in, Out&& out, Counts counts, Counts offsets = {},
                             Origin origin = Origin::here()) {
    return self().begin(detail::requests::gather_v(Collective::all_gather_v, in, out, counts, offsets, 0, origin));
  }
  template <class In, class Out>
  PreparedCall plan_all_gather_v(const In& in, Out&& out, Counts counts, Counts offsets = {},
                                 Origin origin = Origin::here()) {
    return self().prepare(detail::requests::gather_v(Collective::all_gather_v, in, out, counts, offsets, 0, origin));
  }

  // The root's data at everybody.
  template <class R>
  requires(!std::is_arithmetic_v<std::remove_cvref_t<R>>) void broadcast(R&& data, int root,
                                                                         Origin origin = Origin::here()) {
    self().run(detail::requests::broadcast(data, root, self().rank(), origin));
  }
  template <class R>
  Request broadcast_async(R&& data, int root, Origin origin = Origin::here()) {
    return self().begin(detail::requests::broadcast(data, root, self().rank(), origin));
  }
  template <class R>
  PreparedCall plan_broadcast(R&& data, int root, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::broadcast(data, root, self().rank(), origin));
  }
  template <class T>
  requires(std::is_arithmetic_v<T>) [[nodiscard]] T broadcast(T value, int root, Origin origin = Origin::here()) {
    broadcast(std::span<T>(&value, 1), root, origin);
    return value;
  }

  // Everybody's data one after the other, at the root; the others' output is not looked at.
  template <class In, class Out>
  void gather(const In& in, Out&& out, int root, Origin origin = Origin::here()) {
    self().run(detail::requests::move(Collective::gather, in, at_root(out, root), root, origin));
  }
  template <class In, class Out>
  Request gather_async(const In& in, Out&& out, int root, Origin origin = Origin::here()) {
    return self().begin(detail::requests::move(Collective::gather, in, at_root(out, root), root, origin));
  }
  template <class In, class Out>
  PreparedCall plan_gather(const In& in, Out&& out, int root, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::move(Collective::gather, in, at_root(out, root), root, origin));
  }

  // The same with blocks of the given lengths, which only the root needs to know.
  template <class In, class Out>
  void gather_v(const In& in, Out&& out, Counts counts, int root, Counts offsets = {}, Origin origin = Origin::here()) {
    self().run(detail::requests::gather_v(Collective::gather_v, in, at_root(out, root), counts, offsets, root, origin));
  }
  template <class In, class Out>
  Request gather_v_async(const In& in, Out&& out, Counts counts, int root, Counts offsets = {},
                         Origin origin = Origin::here()) {
    return self().begin(
        detail::requests::gather_v(Collective::gather_v, in, at_root(out, root), counts, offsets, root, origin));
  }
  template <class In, class Out>
  PreparedCall plan_gather_v(const In& in, Out&& out, Counts counts, int root, Counts offsets = {},
                             Origin origin = Origin::here()) {
    return self().prepare(
        detail::requests::gather_v(Collective::gather_v, in, at_root(out, root), counts, offsets, root, origin));
  }

  // Block i of the root's data, at member i; the others' input is not looked at.
  template <class In, class Out>
  void scatter(const In& in, Out&& out, int root, Origin origin = Origin::here()) {
    self().run(detail::requests::move(Collective::scatter, at_root(in, root), out, root, origin));
  }
  template <class In, class Out>
  Request scatter_async(const In& in, Out&& out, int root, Origin origin = Origin::here()) {
    return self().begin(detail::requests::move(Collective::scatter, at_root(in, root), out, root, origin));
  }
  template <class In, class Out>
  PreparedCall plan_scatter(const In& in, Out&& out, int root, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::move(Collective::scatter, at_root(in, root), out, root, origin));
  }

  // The same with blocks of the given lengths, which only the root needs to know.
  template <class In, class Out>
  void scatter_v(const In& in, Out&& out, Counts counts, int root, Counts offsets = {},
                 Origin origin = Origin::here()) {
    self().run(
        detail::requests::scatter_v(Collective::scatter_v, at_root(in, root), out, counts, offsets, root, origin));
  }
  template <class In, class Out>
  Request scatter_v_async(const In& in, Out&& out, Counts counts, int root, Counts offsets = {},
                          Origin origin = Origin::here()) {
    return self().begin(
        detail::requests::scatter_v(Collective::scatter_v, at_root(in, root), out, counts, offsets, root, origin));
  }
  template <class In, class Out>
  PreparedCall plan_scatter_v(const In& in, Out&& out, Counts counts, int root, Counts offsets = {},
                              Origin origin = Origin::here()) {
    return self().prepare(
        detail::requests::scatter_v(Collective::scatter_v, at_root(in, root), out, counts, offsets, root, origin));
  }

  // Block i of member j's input becomes block j of member i's output.
  template <class In, class Out>
  void all_to_all(const In& in, Out&& out, Origin origin = Origin::here()) {
    self().run(detail::requests::move(Collective::all_to_all, in, out, 0, origin));
  }
  template <class In, class Out>
  Request all_to_all_async(const In& in, Out&& out, Origin origin = Origin::here()) {
    return self().begin(detail::requests::move(Collective::all_to_all, in, out, 0, origin));
  }
  template <class In, class Out>
  PreparedCall plan_all_to_all(const In& in, Out&& out, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::move(Collective::all_to_all, in, out, 0, origin));
  }

  template <class R>
  void all_to_all(R&& data, Origin origin = Origin::here()) {
    self().run(detail::requests::move_in_place(Collective::all_to_all, data, 0, origin));
  }
  template <class R>
  Request all_to_all_async(R&& data, Origin origin = Origin::here()) {
    return self().begin(detail::requests::move_in_place(Collective::all_to_all, data, 0, origin));
  }
  template <class R>
  PreparedCall plan_all_to_all(R&& data, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::move_in_place(Collective::all_to_all, data, 0, origin));
  }

  // The same with blocks of the given lengths: what this member gives to each, and takes from each.
  template <class In, class Out>
  void all_to_all_v(const In& in, Counts gives, Out&& out, Counts takes, Counts gives_offsets = {},
                    Counts takes_offsets = {}, Origin origin = Origin::here()) {
    self().run(detail::requests::all_to_all_v(in, gives, out, takes, gives_offsets, takes_offsets, origin));
  }
  template <class In, class Out>
  Request all_to_all_v_async(const In& in, Counts gives, Out&& out, Counts takes, Counts gives_offsets = {},
                             Counts takes_offsets = {}, Origin origin = Origin::here()) {
    return self().begin(detail::requests::all_to_all_v(in, gives, out, takes, gives_offsets, takes_offsets, origin));
  }
  template <class In, class Out>
  PreparedCall plan_all_to_all_v(const In& in, Counts gives, Out&& out, Counts takes, Counts gives_offsets = {},
                                 Counts takes_offsets = {}, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::all_to_all_v(in, gives, out, takes, gives_offsets, takes_offsets, origin));
  }

  // The data of members 0 to this one combined.
  template <class In, class Out, class Op>
  void scan(const In& in, Out&& out, Op op, Origin origin = Origin::here()) {
    self().run(detail::requests::reduce(Collective::scan, in, out, op, 0, origin));
  }
  template <class In, class Out, class Op>
  Request scan_async(const In& in, Out&& out, Op op, Origin origin = Origin::here()) {
    return self().begin(detail::requests::reduce(Collective::scan, in, out, op, 0, origin));
  }
  template <class In, class Out, class Op>
  PreparedCall plan_scan(const In& in, Out&& out, Op op, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::reduce(Collective::scan, in, out, op, 0, origin));
  }

  template <class R, class Op>
  void scan(R&& data, Op op, Origin origin = Origin::here()) {
    self().run(detail::requests::reduce_in_place(Collective::scan, data, op, 0, origin));
  }
  template <class R, class Op>
  Request scan_async(R&& data, Op op, Origin origin = Origin::here()) {
    return self().begin(detail::requests::reduce_in_place(Collective::scan, data, op, 0, origin));
  }
  template <class R, class Op>
  PreparedCall plan_scan(R&& data, Op op, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::reduce_in_place(Collective::scan, data, op, 0, origin));
  }

  // The data of the members before this one combined; member 0's output stays as it is.
  template <class In, class Out, class Op>
  void exscan(const In& in, Out&& out, Op op, Origin origin = Origin::here()) {
    self().run(detail::requests::reduce(Collective::exscan, in, out, op, 0, origin));
  }
  template <class In, class Out, class Op>
  Request exscan_async(const In& in, Out&& out, Op op, Origin origin = Origin::here()) {
    return self().begin(detail::requests::reduce(Collective::exscan, in, out, op, 0, origin));
  }
  template <class In, class Out, class Op>
  PreparedCall plan_exscan(const In& in, Out&& out, Op op, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::reduce(Collective::exscan, in, out, op, 0, origin));
  }

  template <class R, class Op>
  void exscan(R&& data, Op op, Origin origin = Origin::here()) {
    self().run(detail::requests::reduce_in_place(Collective::exscan, data, op, 0, origin));
  }
  template <class R, class Op>
  Request exscan_async(R&& data, Op op, Origin origin = Origin::here()) {
    return self().begin(detail::requests::reduce_in_place(Collective::exscan, data, op, 0, origin));
  }
  template <class R, class Op>
  PreparedCall plan_exscan(R&& data, Op op, Origin origin = Origin::here()) {
    return self().prepare(detail::requests::reduce_in_place(Collective::exscan, data, op, 0, origin));
  }

  // Returns when all members have come.
  void barrier(Origin origin = Origin::here()) { self().run(barrier_ask(origin)); }
  Request barrier_async(Origin origin = Origin::here()) { return self().begin(barrier_ask(origin)); }
  PreparedCall plan_barrier(Origin origin = Origin::here()) { return self().prepare(barrier_ask(origin)); }

 private:
  friend Self;
  Collectives() = default;
  Self& self() { return static_cast<Self&>(*this); }
  // A buffer that only the root has; elsewhere it is not looked at.
  template <class R>
  auto at_root(R&& data, int root) {
    if constexpr (detail::is_strided<std::remove_cvref_t<R>>) {
      return self().rank() == root ? data : std::remove_cvref_t<R>{data.first, 0, 0, 0};
    } else {
      const std::span whole(std::ranges::data(data), std::ranges::size(data));
      return self().rank() == root ? whole : whole.first(0);
    }
  }
  static detail::CallRequest barrier_ask(Origin origin) {
    return {.collective = Collective::barrier, .origin = origin};
  }
};

}  // namespace lockstep
