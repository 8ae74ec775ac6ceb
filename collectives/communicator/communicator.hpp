// SPDX-License-Identifier: Apache-2.0
// Declares Communicator, the class through which a program's ranks make collective calls and exchange messages. The
// compiler checks element types and operations.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator/communicator_options.hpp"
#include "collectives/communicator/on_stream.hpp"
#include "collectives/communicator/symmetric.hpp"
#include "collectives/gpu/memory.hpp"
#include "topology/base/error.hpp"
#include "topology/base/time_span.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// Connects some ranks, and gives them collectives and messages. Buffers are contiguous ranges or StridedBuffer. One
// thread at a time uses a communicator; several threads may use several communicators. After its first failure it
// refuses every later call, with that failure's reason. A moved-from communicator throws Error usage.
class Communicator : public Collectives<Communicator> {
 public:
  // Is for Lockstep itself: it wraps a core that a member has made.
  explicit Communicator(std::shared_ptr<detail::CommunicatorCore> core) : core_(std::move(core)) {}
  // Makes a communicator of the members of an exchange, which it duplicates; all of them call it. `ranks` are their
  // ranks in the topology. Most programs take session.world() instead.
  Communicator(Exchange& exchange, std::shared_ptr<const Topology> topology, std::vector<int> ranks,
               TransportMaker maker, CommunicatorOptions options = {});
  ~Communicator();
  Communicator(Communicator&&) noexcept = default;
  Communicator& operator=(Communicator&& other) noexcept;

  // Return this member's rank, the number of members, the name in errors, the order of reductions, and the topology of
  // the job.
  int rank() const;
  int size() const;
  const std::string& name() const;
  Order order() const;
  const Topology& topology() const;
  // Returns, for each member, its rank in the topology.
  const std::vector<int>& ranks() const;
  const CommunicatorOptions& options() const;
  // Sets how long this rank's later calls may wait for the others. Then they fail with an error that names the missing
  // ranks. If it is zero, LOCKSTEP_TIMEOUT decides.
  void set_timeout(TimeSpan timeout);
  // True if an operation failed on this rank, so that all later ones are refused.
  bool failed() const;

  // Makes a communicator of the members with the same colour, ordered by key, then by rank. All members call it.
  // Returns nothing if the colour is negative. `name` is for messages.
  std::optional<Communicator> split(int colour, int key = 0, std::string name = {}, Origin origin = Origin::here());
  // Makes a communicator of the same ranks. All of them call it.
  Communicator duplicate(std::string name = {}, Origin origin = Origin::here()) {
    return *split(0, rank(), std::move(name), origin);
  }
  // Makes a communicator of the same ranks with other options. A program takes a copy of options() and changes it.
  Communicator duplicate(CommunicatorOptions options, Origin origin = Origin::here());
  // Makes a communicator of the remaining ranks after one died or became unreachable (LOCKSTEP-E015). They keep their
  // order. Each calls it once, and all get the same ranks or the same error. Calls under way are given up.
  //
  // It makes no MPI call. Ranks must be threads, or use Lockstep's own sockets. docs/reliability.md has the rules.
  Communicator shrink(std::string name = {});
  // Makes a communicator of the same ranks. Its reductions give the same bits for any algorithm, size and placement.
  Communicator reproducible(std::string name = {}, Origin origin = Origin::here());

  // Allocates `count` elements of memory in which collectives of this communicator work without copies, if all ranks
  // share a node. All ranks call it, each with its own count; the same holds for resize(). The buffer frees its memory,
  // and ranks may destroy buffers in any order.
  template <class T>
  SymmetricBuffer<T> allocate(std::size_t count, Origin origin = Origin::here()) {
    return SymmetricBuffer<T>(core_, detail::allocate_symmetric(&checked_core(), count, sizeof(T), origin), count);
  }

  // Returns the collectives in the order of a GPU's stream (a cudaStream_t). All ranks make such a call through on().
  StreamCollectives on(gpu::Stream stream) const {
    checked_core();
    return {core_, stream};
  }

  // Sends to a rank, or receives from one. Both give the same length in bytes. Messages between two ranks with the same
  // tag arrive in order; tags begin at 0. `send` may block until the other rank has received the data.
  template <class R>
  void send(const R& data, int to, int tag = 0, Origin origin = Origin::here()) {
    run_messages({message(to, detail::input_of(data), data, tag)}, {}, origin);
  }
  template <class R>
  Request send_async(const R& data, int to, int tag = 0, Origin origin = Origin::here()) {
    return messages({message(to, detail::input_of(data), data, tag)}, {}, origin);
  }
  template <class R>
  void recv(R&& data, int from, int tag = 0, Origin origin = Origin::here()) {
    run_messages({}, {message(from, detail::output_of(data), data, tag)}, origin);
  }
  template <class R>
  Request recv_async(R&& data, int from, int tag = 0, Origin origin = Origin::here()) {
    return messages({}, {message(from, detail::output_of(data), data, tag)}, origin);
  }
  // Sends and receives at once, as one operation; the two buffers must not overlap.
  template <class In, class Out>
  void sendrecv(const In& in, int to, Out&& out, int from, int tag = 0, Origin origin = Origin::here()) {
    run_messages({message(to, detail::input_of(in), in, tag)}, {message(from, detail::output_of(out), out, tag)},
                 origin);
  }
  template <class In, class Out>
  Request sendrecv_async(const In& in, int to, Out&& out, int from, int tag = 0, Origin origin = Origin::here()) {
    return messages({message(to, detail::input_of(in), in, tag)}, {message(from, detail::output_of(out), out, tag)},
                    origin);
  }

  // Returns the implementation, for Lockstep's own classes. It is null after a move.
  const std::shared_ptr<detail::CommunicatorCore>& core() const { return core_; }

 private:
  // Returns the core. Throws Error usage if the communicator was moved from.
  detail::CommunicatorCore& checked_core() const {
    if (!core_) refuse_moved();
    return *core_;
  }
  [[noreturn]] static void refuse_moved();

  friend class Collectives<Communicator>;
  using PeerMessage = detail::PeerMessage;

  template <class R>
  static PeerMessage message(int peer, const detail::BufferView& data, const R& /*for its type*/, int tag) {
    return {peer, data, sizeof(detail::Element<R>), tag};
  }
  Request messages(std::initializer_list<PeerMessage> sends, std::initializer_list<PeerMessage> receives,
                   Origin origin);
  void run_messages(std::initializer_list<PeerMessage> sends, std::initializer_list<PeerMessage> receives,
                    Origin origin);
  void run(const detail::CallRequest& request);
  Request begin(const detail::CallRequest& request);
  PreparedCall prepare(const detail::CallRequest& request);

  std::shared_ptr<detail::CommunicatorCore> core_;
};

}  // namespace lockstep
