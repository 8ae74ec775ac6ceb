// SPDX-License-Identifier: Apache-2.0
// Declares the collectives that users call, once for Communicator and StreamCollectives. docs/collectives has a page
// for each, with its counts, its order of reduction, its errors and its cost.
#pragma once

#include "collectives/communicator/call_requests.hpp"
#include "collectives/communicator/request.hpp"

namespace lockstep {

// Gives the class Self its collectives; Self runs, begins or prepares each CallRequest. Every collective has three
// forms. `x` returns when this rank's part is done. `x_async` returns a Request to wait for. `plan_x` returns a
// PreparedCall that may be started many times.
//
// All ranks make the same calls in the same order. The caller owns the buffers, and leaves them alone until the wait
// ends. Counts are in elements. Each form throws Error; docs/collectives/README.md lists the causes.
template <class Self>
class Collectives {
  using Counts = std::span<const std::size_t>;

 public:
  // Combines the data of all ranks element by element, and writes the result into every rank's `out`. All buffers have
  // the same length. The form with one buffer replaces its contents by the result.
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
  // Returns the combination of all ranks' numbers.
  template <class T, class Op>
  requires(std::is_arithmetic_v<T>) [[nodiscard]] T all_reduce(T value, Op op, Origin origin = Origin::here()) {
    all_reduce(std::span<T>(&value, 1), op, origin);
    return value;
  }

  // Combines the data of all ranks element by element, and writes the result into the root's `out` only. Other ranks'
  // `out` is ignored and may be empty. The form with one buffer replaces the root's data and keeps the others'.
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

  // Combines the data of all ranks block by block, and writes the result of block i into rank i's `out`. `in` is size()
  // times as long as `out`. With one buffer, the result replaces block rank(), and the other blocks become undefined.
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

  // Does the same with blocks of different lengths: block i has counts[i] elements, which may be 0. All ranks give the
  // same counts, and the length of `in` is their sum.
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

  // Writes the data of all ranks one after the other, by rank, into every rank's `out`, which is size() times as long
  // as `in`. With one buffer, each rank's data lies in block rank() of it before the call.
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

  // Does the same with blocks of different lengths: rank i gives counts[i] elements, and all ranks give the same
  // counts. `offsets` places the blocks in this rank's `out`, in elements. If it is empty, the blocks follow each
  // other.
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

  // Copies the root's data into every rank's `data`. All ranks give the same length. Other ranks' previous contents are
  // overwritten.
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
  // Returns the root's number.
  template <class T>
  requires(std::is_arithmetic_v<T>) [[nodiscard]] T broadcast(T value, int root, Origin origin = Origin::here()) {
    broadcast(std::span<T>(&value, 1), root, origin);
    return value;
  }

  // Writes the data of all ranks one after the other, by rank, into the root's `out`, which is size() times as long as
  // `in`. Other ranks' `out` is ignored. At the root, `in` may be its own block of `out`.
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

  // Does the same with blocks of different lengths: the root receives counts[i] elements from rank i, at offsets[i] of
  // `out`. Only the root needs counts and offsets. Without offsets, the blocks follow each other.
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

  // Writes block i of the root's `in` into rank i's `out`. The root's `in` is size() times as long as `out`. Other
  // ranks' `in` is ignored. At the root, `out` may be its own block of `in`.
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

  // Does the same with blocks of different lengths: rank i gets counts[i] elements, from offsets[i] of the root's `in`.
  // Only the root needs counts and offsets. Without offsets, the blocks follow each other.
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

  // Writes block i of rank j's `in` into block j of rank i's `out`. Both have the same length, a multiple of size().
  // The form with one buffer copies it first, so it needs as much memory again.
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

  // Does the same with blocks of different lengths: gives[i] elements go to rank i, and takes[i] come from it. Both
  // sides give the same length, or both get an error. Without offsets, the blocks follow each other.
  template <class In, class Out>
  void all_to_all_v(const In& in, Counts send_counts, Out&& out, Counts receive_counts, Counts send_offsets = {},
                    Counts receive_offsets = {}, Origin origin = Origin::here()) {
    self().run(
        detail::requests::all_to_all_v(in, send_counts, out, receive_counts, send_offsets, receive_offsets, origin));
  }
  template <class In, class Out>
  Request all_to_all_v_async(const In& in, Counts send_counts, Out&& out, Counts receive_counts,
                             Counts send_offsets = {}, Counts receive_offsets = {}, Origin origin = Origin::here()) {
    return self().begin(
        detail::requests::all_to_all_v(in, send_counts, out, receive_counts, send_offsets, receive_offsets, origin));
  }
  template <class In, class Out>
  PreparedCall plan_all_to_all_v(const In& in, Counts send_counts, Out&& out, Counts receive_counts,
                                 Counts send_offsets = {}, Counts receive_offsets = {},
                                 Origin origin = Origin::here()) {
    return self().prepare(
        detail::requests::all_to_all_v(in, send_counts, out, receive_counts, send_offsets, receive_offsets, origin));
  }

  // Combines the data of ranks 0 to this one, and writes the result into this rank's `out`. All ranks give the same
  // length. `avg` is refused. The form with one buffer replaces its contents by the result.
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

  // Combines the data of the ranks before this one, and writes the result into this rank's `out`. Rank 0's `out` stays
  // as it is. `avg` is refused. The form with one buffer replaces its contents by the result.
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

  // Returns when all ranks have called it. It moves no data.
  void barrier(Origin origin = Origin::here()) { self().run(barrier_request(origin)); }
  Request barrier_async(Origin origin = Origin::here()) { return self().begin(barrier_request(origin)); }
  PreparedCall plan_barrier(Origin origin = Origin::here()) { return self().prepare(barrier_request(origin)); }

 private:
  friend Self;
  Collectives() = default;
  Self& self() { return static_cast<Self&>(*this); }
  // Returns the buffer at the root, and an empty one elsewhere, because other ranks' buffers are ignored.
  template <class R>
  auto at_root(R&& data, int root) {
    if constexpr (detail::is_strided<std::remove_cvref_t<R>>) {
      return self().rank() == root ? data : std::remove_cvref_t<R>{data.first, 0, 0, 0};
    } else {
      const std::span whole(detail::data_of(data), detail::size_of(data));
      return self().rank() == root ? whole : whole.first(0);
    }
  }
  static detail::CallRequest barrier_request(Origin origin) {
    return {.collective = Collective::barrier, .origin = origin};
  }
};

}  // namespace lockstep
