// SPDX-License-Identifier: Apache-2.0
// Measures Lockstep's collectives by the protocol of tools/peers: the same loop, buffers and checks as for MPI's own
// (peer_bench.c). A list of tensors has four variants: `batch` (one Batch of all tensors), `each` (all started, then
// all awaited), `flat` (packed, reduced, unpacked) and `strategy`. The last is a run in which each replica reduces its
// tensors. All other calls have two: `plain` is the blocking call as a program writes it. `symmetric` is the same on
// memory that the communicator allocated.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <lockstep.hpp>
#include <memory>
#include <string>
#include <vector>

#include "bench/peer/protocol.h"

namespace {

using lockstep::Communicator;

struct PeerState {
  lockstep::Session* session;
  Communicator* world;
  std::function<void()> run;
  std::string refusal;
  std::vector<lockstep::SymmetricBuffer<std::byte>> buffers;  // of a job
};

template <class T>
std::span<T> blocks(const PeerCall& call, void* at, std::size_t times) {
  return {static_cast<T*>(at), call.count * times};
}

// Holds a list of tensors, and reduces it in the ways that a program may choose.
template <class T>
class TensorList {
 public:
  explicit TensorList(const PeerCall& call) {
    std::size_t total = 0;
    for (std::size_t i = 0; i < call.tensors; ++i) {
      tensors_.emplace_back(static_cast<T*>(call.tensor[i]), call.tensor_count[i]);
      total += call.tensor_count[i];
    }
    flat_.resize(total);
  }

  template <class Op>
  std::function<void()> batch(Communicator& world, Op op) const {
    auto all = std::make_shared<lockstep::Batch>(world);
    for (const auto& tensor : tensors_) all->all_reduce(tensor, op);
    return [all] { all->run(); };
  }
  template <class Op>
  std::function<void()> each(Communicator& world, Op op) const {
    auto requests = std::make_shared<std::vector<lockstep::Request>>();
    requests->reserve(tensors_.size());
    return [&world, op, tensors = tensors_, requests] {
      for (const auto& tensor : tensors) requests->push_back(world.all_reduce_async(tensor, op));
      for (auto& request : *requests) request.wait();
      requests->clear();
    };
  }
  template <class Op>
  std::function<void()> flat(Communicator& world, Op op) const {
    return [&world, op, tensors = tensors_, flat = flat_]() mutable {
      T* at = flat.data();
      for (const auto& tensor : tensors) at = std::copy(tensor.begin(), tensor.end(), at);
      world.all_reduce(flat, op);
      const T* from = flat.data();
      for (const auto& tensor : tensors) {
        std::copy_n(from, tensor.size(), tensor.begin());
        from += tensor.size();
      }
    };
  }
  template <class Op>
  std::function<void()> strategy(lockstep::Session& session, Op op) const {
    auto strategy = std::make_shared<lockstep::MultiWorkerMirroredStrategy>(session);
    return [strategy, op, tensors = tensors_]() mutable {
      strategy->run([&](lockstep::ReplicaContext& replica) { replica.all_reduce(tensors, op); });
    };
  }

 private:
  std::vector<std::span<T>> tensors_;
  std::vector<T> flat_;
};

template <class T, class Op>
std::function<void()> of_list(lockstep::Session& session, Communicator& world, const PeerCall& call,
                              const std::string& variant, Op op) {
  const TensorList<T> list(call);
  if (variant == "batch") return list.batch(world, op);
  if (variant == "each") return list.each(world, op);
  if (variant == "flat") return list.flat(world, op);
  if (variant == "strategy") return list.strategy(session, op);
  return {};
}

template <class T, class Op>
std::function<void()> reducing(Communicator& world, const PeerCall& call, Op op) {
  const auto in = blocks<const T>(call, call.in, 1);
  const auto out = blocks<T>(call, call.out, 1);
  switch (call.collective) {
    case peer_all_reduce:
      return [&world, in, out, op] { world.all_reduce(in, out, op); };
    case peer_reduce:
      return [&world, in, out, op] { world.reduce(in, out, op, 0); };
    case peer_reduce_scatter: {
      const auto all = blocks<const T>(call, call.in, static_cast<std::size_t>(world.size()));
      return [&world, all, out, op] { world.reduce_scatter(all, out, op); };
    }
    case peer_scan:
      return [&world, in, out, op] { world.scan(in, out, op); };
    case peer_exscan:
      return [&world, in, out, op] { world.exscan(in, out, op); };
    default:
      return {};
  }
}

template <class T>
std::function<void()> moving(Communicator& world, const PeerCall& call) {
  const auto n = static_cast<std::size_t>(world.size());
  const auto in = blocks<const T>(call, call.in, 1);
  const auto out = blocks<T>(call, call.out, 1);
  const auto all_in = blocks<const T>(call, call.in, n);
  const auto all_out = blocks<T>(call, call.out, n);
  switch (call.collective) {
    case peer_all_gather:
      return [&world, in, all_out] { world.all_gather(in, all_out); };
    case peer_broadcast:
      return [&world, out] { world.broadcast(out, 0); };
    case peer_gather:
      return [&world, in, all_out] { world.gather(in, all_out, 0); };
    case peer_scatter:
      return [&world, all_in, out] { world.scatter(all_in, out, 0); };
    case peer_all_to_all:
      return [&world, all_in, all_out] { world.all_to_all(all_in, all_out); };
    case peer_barrier:
      return [&world] { world.barrier(); };
    default:
      return {};
  }
}

using Counts = std::vector<std::size_t>;

Counts counts_of(const int* counts, int size) { return {counts, counts + size}; }

template <class T>
std::span<T> elements(void* at, const Counts& counts) {
  std::size_t total = 0;
  for (const std::size_t count : counts) total += count;
  return {static_cast<T*>(at), total};
}

// Makes the calls whose blocks have different lengths.
template <class T, class Op>
std::function<void()> unequal(Communicator& world, const PeerCall& call, Op op) {
  const Counts gives = counts_of(call.gives.counts, call.size);
  const Counts takes = counts_of(call.takes.counts, call.size);
  const auto all_in = elements<const T>(call.in, gives);
  const auto all_out = elements<T>(call.out, takes);
  const std::span<const T> in(static_cast<const T*>(call.in), gives.front());
  const std::span<T> out(static_cast<T*>(call.out), takes.at(static_cast<std::size_t>(call.rank)));
  switch (call.collective) {
    case peer_all_gather_v:
      return [&world, in, all_out, takes] { world.all_gather_v(in, all_out, takes); };
    case peer_gather_v:
      return [&world, in, all_out, takes] { world.gather_v(in, all_out, takes, 0); };
    case peer_scatter_v:
      return [&world, all_in, out, gives] { world.scatter_v(all_in, out, gives, 0); };
    case peer_reduce_scatter_v:
      return [&world, all_in, out, gives, op] { world.reduce_scatter_v(all_in, out, gives, op); };
    default:
      return [&world, all_in, all_out, gives, takes] { world.all_to_all_v(all_in, gives, all_out, takes); };
  }
}

template <class T>
std::function<void()> halo(Communicator& world, const PeerCall& call) {
  using lockstep::GridSide;
  auto grid = std::make_shared<lockstep::CartesianGrid>(world, std::vector<int>{call.extents[0], call.extents[1]},
                                                        std::vector<bool>{true, true});
  const auto block = [&](void* at, int number) {
    return static_cast<T*>(at) + call.count * static_cast<std::size_t>(number);
  };
  std::vector<lockstep::Face<T>> faces;
  for (int number = 0; number < peer_neighbours; ++number) {
    const lockstep::StridedBuffer<const T> given{block(call.in, number), 1, 0, call.count};
    const lockstep::StridedBuffer<T> taken{block(call.out, peer_opposite(number)), 1, 0, call.count};
    faces.push_back({number / 2, number % 2 == 0 ? GridSide::lower : GridSide::upper, given, taken});
  }
  return [grid, faces] { grid->template exchange<T>(faces); };
}

template <class T>
std::function<void()> messages(Communicator& world, const PeerCall& call) {
  if (call.collective == peer_halo) return halo<T>(world, call);
  const auto in = blocks<const T>(call, call.in, 1);
  const auto out = blocks<T>(call, call.out, 1);
  const int next = (call.rank + 1) % call.size;
  const int last = (call.rank + call.size - 1) % call.size;
  return [&world, in, out, next, last] { world.sendrecv(in, next, out, last); };
}

bool is_unequal(PeerCollective collective) {
  return collective >= peer_all_gather_v && collective <= peer_all_to_all_v;
}

template <class T, class Op>
std::function<void()> with_op(const PeerState& subject, const PeerCall& call, const std::string& variant, Op op) {
  Communicator& world = *subject.world;
  if (call.collective == peer_list) return of_list<T>(*subject.session, world, call, variant, op);
  if (variant != "plain" && variant != "symmetric") return {};
  if (is_unequal(call.collective)) return unequal<T>(world, call, op);
  if (call.collective == peer_sendrecv || call.collective == peer_halo) return messages<T>(world, call);
  auto reduces = reducing<T>(world, call, op);
  return reduces ? reduces : moving<T>(world, call);
}

template <class T>
std::function<void()> with_type(const PeerState& subject, const PeerCall& call, const std::string& variant) {
  switch (call.op) {
    case peer_sum:
      return with_op<T>(subject, call, variant, lockstep::sum);
    case peer_prod:
      return with_op<T>(subject, call, variant, lockstep::prod);
    case peer_min:
      return with_op<T>(subject, call, variant, lockstep::min);
    default:
      return with_op<T>(subject, call, variant, lockstep::max);
  }
}

std::function<void()> make_run(const PeerState& subject, const PeerCall& call, const std::string& variant) {
  switch (call.type) {
    case peer_f32:
      return with_type<float>(subject, call, variant);
    case peer_f64:
      return with_type<double>(subject, call, variant);
    case peer_i32:
      return with_type<std::int32_t>(subject, call, variant);
    default:
      return with_type<std::int64_t>(subject, call, variant);
  }
}

void* memory(void* self, std::size_t bytes, const char* variant) {
  auto& subject = *static_cast<PeerState*>(self);
  if (std::string_view(variant) != "symmetric") return nullptr;
  return subject.buffers.emplace_back(subject.world->allocate<std::byte>(bytes)).data();
}

const char* begin(void* self, const PeerCall* call, const char* variant) {
  auto& subject = *static_cast<PeerState*>(self);
  subject.run = make_run(subject, *call, variant);
  if (subject.run) return nullptr;
  subject.refusal = std::string("Lockstep has no variant ") + variant;
  return subject.refusal.c_str();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    lockstep::Session session(argc, argv);
    if (session.rank() == 0) std::cout << "peer_bench version Lockstep " << lockstep::version() << std::endl;
    PeerState subject{&session, &session.world(), {}, {}, {}};
    const auto end = [](void* self) {
      static_cast<PeerState*>(self)->run = {};
      static_cast<PeerState*>(self)->buffers.clear();
    };
    const PeerLibrary library{&subject, memory, begin, [](void* self) { static_cast<PeerState*>(self)->run(); }, end};
    return peer_main(argc, argv, &library);
  } catch (const std::exception& error) {
    std::cerr << "peer_bench_lockstep: " << error.what() << "\n";
    lockstep::end_job(lockstep::Exit::unfit);
  }
  return 1;
}
