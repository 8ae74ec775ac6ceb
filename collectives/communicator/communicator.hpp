// SPDX-License-Identifier: Apache-2.0
// What users meet: the members of a group and what they do together. Buffers are contiguous ranges or StridedBuffer;
// the compiler checks types and operations. One thread at a time uses a communicator; several communicators may be used
// by several threads. After the first failure every later call says why it is refused.
#pragma once

#include <optional>

#include "collectives/communicator/on_stream.hpp"
#include "collectives/communicator/symmetric.hpp"
#include "collectives/gpu/memory.hpp"
#include "topology/base/error.hpp"

namespace lockstep {

class Communicator : public Collectives<Communicator> {
 public:
  explicit Communicator(std::shared_ptr<detail::CommunicatorCore> core) : core_(std::move(core)) {}
  // Of the members of an exchange, which it duplicates; all of them make it together. `ranks` are theirs in the
  // topology. Most programs take session.world() instead.
  Communicator(Exchange& exchange, std::shared_ptr<const Topology> topology, std::vector<int> ranks,
               TransportMaker maker, CommunicatorOptions options = {});
  ~Communicator();
  Communicator(Communicator&&) noexcept = default;
  Communicator& operator=(Communicator&& other) noexcept;

  int rank() const { return here().rank(); }
  int size() const { return here().size(); }
  const std::string& name() const { return here().options().name; }
  Order order() const { return here().options().order; }
  const Topology& topology() const { return here().topology(); }
  // Of every member, its rank in the topology.
  const std::vector<int>& ranks() const { return here().ranks(); }
  const CommunicatorOptions& options() const { return here().options(); }
  // How long calls of this member, from the next one on, may wait for the others before they fail with a text that
  // names whom they wait for; zero: as LOCKSTEP_TIMEOUT says.
  void set_timeout(Duration timeout) { here().set_timeout(timeout); }
  // Whether an operation failed here, so that all later ones are refused.
  bool failed() const { return core_ && core_->failed(); }

  // Members with the same colour, ordered by key, then by rank; nothing where the colour is negative. All members
  // call it. `name` is for messages.
  std::optional<Communicator> split(int colour, int key = 0, std::string name = {}, Origin origin = Origin::here());
  Communicator duplicate(std::string name = {}, Origin origin = Origin::here()) {
    return *split(0, rank(), std::move(name), origin);
  }
  // The same members, with other options: begin with options().
  Communicator duplicate(CommunicatorOptions options, Origin origin = Origin::here());
  // After a call has failed because a member died, or is not reached any more (LOCKSTEP-E015): those that are left, in
  // their order, with the topology of theirs. All of them call it, once; who has not seen the failure yet sees it by
  // that. It goes on without a call of MPI, needs sockets of our own between members (or threads), and gives all of
  // them the same members or the same error; docs/reliability.md has the rules. What was begun here is given up.
  Communicator shrink(std::string name = {});
  // The same members, whose reductions give the same bits whatever the algorithm, size and placement.
  Communicator reproducible(std::string name = {}, Origin origin = Origin::here());

  // Memory for buffers that collectives of this communicator work in without copies, where its members share a node:
  // all members call it, each with its own count, and so with resize(). It is freed by its destructor, in any order.
  template <class T>
  SymmetricBuffer<T> allocate(std::size_t count, Origin origin = Origin::here()) {
    return SymmetricBuffer<T>(core_, here().allocate(count, sizeof(T), origin), count);
  }

  // The same in a GPU's memory: where every member has a GPU of its own, and NCCL, which then need not copy what is in
  // it (docs/gpu.md); elsewhere as DeviceVector has it. It is no longer than the count, and may be dropped in any
  // order.
  template <class T>
  DeviceVector<T> allocate_on_gpu(std::size_t count, int device = 0, Origin origin = Origin::here()) {
    return {here().allocate_on_gpu(count, sizeof(T), device, origin), count, device};
  }

  // The same collectives, in the order of a stream of a GPU (CUDA's cudaStream_t); all members call them so.
  StreamCollectives on(gpu::Stream stream) const {
    here();
    return {core_, stream};
  }

  // To a member and from a member; messages between two members with the same tag arrive in their order.
  template <class R>
  void send(const R& data, int to, int tag = 0, Origin origin = Origin::here()) {
    send_async(data, to, tag, origin).wait(origin);
  }
  template <class R>
  Request send_async(const R& data, int to, int tag = 0, Origin origin = Origin::here()) {
    return messages({message(to, detail::input_of(data), data, tag)}, {}, origin);
  }
  template <class R>
  void recv(R&& data, int from, int tag = 0, Origin origin = Origin::here()) {
    recv_async(data, from, tag, origin).wait(origin);
  }
  template <class R>
  Request recv_async(R&& data, int from, int tag = 0, Origin origin = Origin::here()) {
    return messages({}, {message(from, detail::output_of(data), data, tag)}, origin);
  }
  // Both at once, as one operation; the two buffers must not overlap.
  template <class In, class Out>
  void sendrecv(const In& in, int to, Out&& out, int from, int tag = 0, Origin origin = Origin::here()) {
    sendrecv_async(in, to, out, from, tag, origin).wait(origin);
  }
  template <class In, class Out>
  Request sendrecv_async(const In& in, int to, Out&& out, int from, int tag = 0, Origin origin = Origin::here()) {
    return messages({message(to, detail::input_of(in), in, tag)}, {message(from, detail::output_of(out), out, tag)},
                    origin);
  }

  const std::shared_ptr<detail::CommunicatorCore>& core() const { return core_; }

 private:
  detail::CommunicatorCore& here() const {
    if (!core_) refuse_moved();
    return *core_;
  }
  [[noreturn]] static void refuse_moved();

  friend class Collectives<Communicator>;
  using PeerMessage = detail::CommunicatorCore::PeerMessage;

  template <class R>
  static PeerMessage message(int peer, const detail::BufferView& data, const R& /*for its type*/, int tag) {
    return {peer, data, sizeof(detail::Element<R>), tag};
  }
  Request messages(std::initializer_list<PeerMessage> sends, std::initializer_list<PeerMessage> receives,
                   Origin origin) {
    return {core_, here().exchange(sends, receives, origin)};
  }
  void run(const detail::CallRequest& request) { here().run(request); }
  Request begin(const detail::CallRequest& request) { return {core_, here().start(request)}; }
  PreparedCall prepare(const detail::CallRequest& request) { return {core_, here().prepare(request)}; }

  std::shared_ptr<detail::CommunicatorCore> core_;
};

}  // namespace lockstep
