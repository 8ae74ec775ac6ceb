// SPDX-License-Identifier: Apache-2.0
// Implements a Communicator: it holds the members, the planner, the engine, and the calls that are under way. The
// facade turns typed calls into CallRequests. This class checks, plans, stages and runs them. A repeated call reuses
// the first one's plan and memory, and allocates nothing.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/communicator/call_subject.hpp"
#include "collectives/communicator/communicator_options.hpp"
#include "collectives/communicator/gpu_scratch.hpp"
#include "collectives/communicator/member_groups.hpp"
#include "collectives/communicator/partition_cache.hpp"
#include "collectives/communicator/request.hpp"
#include "collectives/communicator/staging.hpp"
#include "collectives/engine/transport.hpp"
#include "collectives/node/call.hpp"
#include "collectives/node/symmetric.hpp"
#include "topology/base/error.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

template <class World>
class Engine;
class RealWorld;
class Planner;
struct AlgorithmCandidate;
namespace nccl {
class NcclCommunicator;
struct NcclCall;
enum class RegistrationMode : std::uint8_t;
}  // namespace nccl

namespace detail {

struct DeviceCall;
class GpuLevels;

// Holds a call that is checked and planned, with everything that a repeated start needs. It owns its staging memory,
// but not the caller's buffers.
struct BoundCall {
  Call call;
  std::vector<StagingCopy> in;    // Run before the call.
  std::vector<StagingCopy> back;  // Run after it.
  StagingBuffer staged;
  std::optional<gpu::Stream> stream = {};
  // True if the members of a node keep the stream's order themselves, so that the host need not wait for the stream.
  bool keeps_order = false;
  // True if tensors that are one call are packed and unpacked in a GPU's memory.
  bool packs_on_gpu = false;
  // Holds the place of a plan's buffer when the plan was made, on a GPU or in symmetric memory. A later start compares
  // it, to find freed memory.
  struct BufferLocation {
    const void* data = nullptr;  // Null means that the buffer cannot be checked.
    std::size_t bytes = 0;
    gpu::MemoryLocation where;
  };
  std::array<BufferLocation, 2> locations = {};  // Belong to input and output.
  // Describes the call for GPUs; null if they cannot run it. Otherwise the host's call is made only when the members
  // have decided against GPUs.
  std::shared_ptr<DeviceCall> gpus = {};

  // Return the name of the chosen algorithm, and the reason for the choice, as texts for people.
  const std::string& algorithm() const;
  const std::string& why() const;
};

// Tells the other members if this one fails to make its part of a communicator. done() says that it has succeeded.
class CreationGuard {
 public:
  explicit CreationGuard(Exchange& exchange) : exchange_(exchange) {}
  ~CreationGuard() {
    if (is_done_) return;
    try {
      exchange_.fail("it could not make its part of the communicator; its own error says why");
    } catch (const std::exception& second) {
      exchange_.log().error(text("while telling the others of it: ", second.what()));
    }
  }
  CreationGuard(const CreationGuard&) = delete;
  CreationGuard& operator=(const CreationGuard&) = delete;
  void done() { is_done_ = true; }

 private:
  Exchange& exchange_;
  bool is_done_ = false;
};

// Owns the room of this member's node, if members are on several nodes and others are on this one. All nodes have one,
// or none has.
struct NodeRoom {
  std::unique_ptr<node::Room> room;
  // Is the size in bytes of the largest element that can be reduced there; 0 if no node has a room.
  std::size_t most_element = 0;
};

// Runs the calls of one member. One thread may use it at a time; a second thread gets Error usage. Members that call
// `prepare`, `run` or `start` must do so in the same order.
class CommunicatorCore {
 public:
  // Makes this member's part of a communicator; all members call it. `ranks` are the members' ranks in `topology`.
  // Throws Error internal if `maker` returns null.
  CommunicatorCore(std::unique_ptr<Exchange> exchange, std::shared_ptr<const Topology> topology, std::vector<int> ranks,
                   TransportMaker maker, CommunicatorOptions options, node::MemoryLineage lineage = {});
  CommunicatorCore(const CommunicatorCore&) = delete;
  CommunicatorCore& operator=(const CommunicatorCore&) = delete;
  ~CommunicatorCore();

  int rank() const { return exchange_->rank(); }
  int size() const { return exchange_->size(); }
  const CommunicatorOptions& options() const { return options_; }
  // Sets the timeout of this member's later calls; zero selects LOCKSTEP_TIMEOUT. Throws Error usage if it is negative.
  void set_timeout(Duration timeout);
  // Sets the subject of this member's later calls. See ScopedCallSubject.
  void set_subject(const CallSubject& subject);
  const CallSubject& subject() const { return subject_; }
  const Topology& topology() const { return *topology_; }
  const std::vector<int>& ranks() const { return ranks_; }
  // True if the communicator has failed or was closed.
  bool failed() const;
  // True if members are on several nodes, and those of each node share memory of their own. It is equal on all members.
  bool meets_in_nodes() const { return node_room_.most_element > 0; }
  // Returns the tuning of the memory that this member shares with others; nothing if it shares none.
  std::optional<node::Tuning> node_tuning() const;

  // Checks and plans a call. Throws Error usage for a wrong CallRequest. That fails the communicator, so that no other
  // member waits in vain.
  BoundCall prepare(const CallRequest& request);
  // Returns the algorithms that were considered for a call, as Planner::candidates().
  std::vector<AlgorithmCandidate> candidates(const Spec& spec);
  // Prepares several calls that GPUs may run as one operation. `whole` has the elements of all of them, and
  // `make_host_call` makes the call for the host. Returns an empty BoundCall if GPUs cannot run them.
  BoundCall prepare(std::span<const CallRequest> requests, const CallRequest& whole,
                    std::function<BoundCall()> make_host_call);
  // Gives `bound_call` the path that members chose for `earlier`, without a new vote. Both are the same calls on
  // different memory.
  void decide_as(const BoundCall& bound_call, const BoundCall& earlier, const Origin& origin);
  // Prepares a call that GPUs do not run. It takes no exclusive use, so that code inside a call may use it.
  BoundCall prepare_for_host(const CallRequest& request) { return bound_call_from(request, QueryRule::never); }
  // Returns memory of make_staging_buffer(); the caller shares it. If that fails, the other members are told.
  StagingBuffer take_memory(std::size_t bytes, bool for_gpu);
  // Returns scratch memory of a GPU, which is kept for reuse after the caller has released it.
  StagingBuffer take_on_gpu(int device, std::size_t bytes);
  // Returns the GPU in whose memory tensors should be packed, or gpu::MemoryLocation::host.
  // Members may differ. For `host`, tensors are packed in host memory, which is pinned if a tensor is on a GPU.
  int packed_on(const CallRequest& whole, std::span<const CallRequest> tensors);
  // Checks a call without running it. Throws Error usage, as prepare() does.
  void check(const CallRequest& request);
  // Run a call and wait for its end; a call in a stream may return when the GPUs have it.
  void run(const CallRequest& request);
  void run(const BoundCall& bound_call, Origin origin);
  // Runs one stage of an operation of a larger communicator, without a vote. All members have agreed on the call, and
  // each has its data in the memory of its GPU `device`.
  void run_as_agreed(const CallRequest& request, int device);
  // Start a call. The caller passes the handle to test(), wait() or drop(). Buffers must live until the call
  // is over.
  CallHandle start(const CallRequest& request);
  CallHandle start(const BoundCall& bound_call, Origin origin) { return start_all({&bound_call, 1}, origin); }
  using StreamMarks = std::vector<std::shared_ptr<gpu::StreamMark>>;
  // Starts several calls under one handle. If `behind` isn't empty, work on GPUs waits for these marks instead of the
  // default stream.
  CallHandle start_all(std::span<const BoundCall> calls, Origin origin, const StreamMarks& behind = {});
  void run_all(std::span<const BoundCall> calls, Origin origin);

  // Starts messages to and from other members under one handle. Throws Error usage for a wrong rank, tag or buffer.
  CallHandle exchange(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives, Origin origin);

  // Test or wait for a started call. They set `over`, even if they throw: true means that the handle is no longer
  // valid. test() returns true if the call is complete.
  bool test(CallHandle handle, Origin origin, bool& over);
  void wait(CallHandle handle, Origin origin, bool& over);
  // Gives up a call whose Request was destroyed before it was waited for.
  void drop(CallHandle handle) noexcept;
  // Tells the other members of a call that this one cannot make, so that they do not wait for it.
  void refuse(const Error& error) noexcept;
  // Does the same if other members may be waiting in the exchange, where they do not hear the engine.
  void refuse_together(const Error& error) noexcept;
  // Ends the communicator, although Requests may remain: their later calls throw. Ends the process if a call of this
  // communicator is still running.
  void close() noexcept;

  // Makes a communicator of the members with the same colour, ordered by key, then by rank. All members call it.
  // Returns null if this member's colour is negative.
  std::shared_ptr<CommunicatorCore> split(int colour, int key, CommunicatorOptions options,
                                          Origin origin = Origin::here());
  // Makes a communicator of the members that survive a failure; they all call it, once. Throws Error usage if the
  // transport cannot continue without a member.
  std::shared_ptr<CommunicatorCore> shrink(CommunicatorOptions options);
  // Allocates symmetric memory of count * element_bytes bytes; all members call it, and each owns its part.
  node::SymmetricPart allocate(std::size_t count, std::size_t element_bytes, Origin origin);
  // Allocates memory of GPU `device`, which members may choose freely; all members call it. The caller shares the
  // memory.
  std::shared_ptr<std::byte> allocate_on_gpu(std::size_t count, std::size_t element_bytes, int device, Origin origin);

 private:
  // Returns the memory that all members share; nothing if they are on several nodes, or share none.
  node::Room* room_of_all() const;

  // Holds a call that was made before, with the values that tell it from other calls.
  struct RepeatedCall {
    Collective collective = Collective::exchange;
    DataType type = DataType::u8;
    ReduceOp op = ReduceOp::sum;
    Order order = Order::fast;
    int root = 0;
    bool in_place = false;
    std::size_t element_bytes = 0;
    std::size_t input_count = 0;
    std::size_t output_count = 0;
    std::uint64_t subject = 0;
    Call call;
  };
  // Returns the request with this communicator's order and wire format.
  CallRequest with_options(CallRequest request) const;
  // Checks a request, and returns it with the fingerprints that members compare.
  Spec spec_for(const CallRequest& request);
  RepeatedCall* repeated_call_for(const CallRequest& request);
  void run_repeated(RepeatedCall& repeated_call, const CallRequest& request);
  bool is_same(const RepeatedCall& repeated_call, const CallRequest& request) const;
  void remember(RepeatedCall& repeated_call, const CallRequest& request, const Call& call) const;

  class ExclusiveUse;  // Admits one thread at a time; a second one gets an error.

  struct PendingCall;

  // Selects the calls for which members ask each other where their data is. Plans use `once`: they always ask, at their
  // first start.
  enum class QueryRule : std::uint8_t { never, where_it_is_large, once };
  BoundCall bound_call_from(const CallRequest& request, QueryRule query_rule);
  bool can_keep_order(const CallRequest& request, const Plan& plan) const;
  BoundCall::BufferLocation location_of(const BufferView& data, std::size_t element_bytes);
  static BufferDevices devices_of(const Call& call);
  bool is_known(const void* data, std::size_t bytes);
  void refuse_if_freed(const BoundCall& bound_call, const Origin& origin);
  void stage(BoundCall& bound_call, const CallRequest& request) const;
  void say_reason() const;
  [[noreturn]] void refuse_end_inside() const;
  void begin(const Call& call, CallHandle handle);
  void begin(const BoundCall& bound_call, CallHandle handle);
  void begin_message(const PeerMessage& message, bool sends, CallHandle handle);
  CallHandle take_slot(Origin origin);
  PendingCall& pending(CallHandle handle);
  void release(CallHandle handle);
  static void keep_memory(PendingCall& slot);
  void copy_all(std::span<const StagingCopy> copies, CallHandle handle);
  void finish(CallHandle handle);
  void wait_inside(CallHandle handle);
  void come_to(Collective what, const Origin& origin);
  template <class F>
  auto make_together(Collective what, const Origin& origin, const F& f);
  std::shared_ptr<CommunicatorCore> split_inside(int colour, int key, CommunicatorOptions options);
  std::shared_ptr<CommunicatorCore> smaller(const std::vector<int>& members, std::uint64_t number,
                                            const CommunicatorOptions& options,
                                            const std::function<std::optional<std::string>()>& in_vain);
  void run_inside(const BoundCall& bound_call, const Origin& origin);

  class GpuWait;
  // Holds a member's vote before GPUs run a call; the votes of all are added. The numbers count members that cannot,
  // hash given minus taken messages, compare registered memory, and count members with another GPU's stream.
  using DeviceVote = std::array<std::uint64_t, 4>;
  bool may_ask_where(const CallRequest& request, const Spec& spec, QueryRule query_rule) const;
  bool queries_where(const CallRequest& request) const;
  int device_of(const CallRequest& request) const;
  std::shared_ptr<DeviceCall> device_call_for(const Spec& spec, const CallRequest& request) const;
  // Returns the plan of the vote on a call of this spec. It has that call's signature.
  std::shared_ptr<const Plan> meeting(const Spec& spec, std::string_view name, PlanChoice vote);
  void decide(DeviceCall& gpus, const Origin& origin);
  DeviceVote vote_of(const DeviceCall& gpus) const;
  Error different_counts(const Spec& spec);
  bool has_other_stream(const DeviceCall& gpus) const;
  Error other_stream(const DeviceCall& gpus, const Origin& origin);
  void make_nccl_communicator(int device, const Origin& origin);
  template <class F>
  auto in_exchange(const F& f);
  template <class F>
  void together(const F& f);
  std::shared_ptr<std::byte> allocate_on_gpu_inside(std::size_t count, std::size_t element_bytes, int device,
                                                    const Origin& origin);
  std::shared_ptr<std::byte> allocate_by_nccl(std::size_t bytes, nccl::RegistrationMode how, const Origin& origin);
  void break_if_failed() noexcept;
  bool fits(int device) const;
  bool may_go(const DeviceCall& gpus) const;
  bool can_go_by_levels(const DeviceCall& gpus) const;
  void choose_way(DeviceCall& gpus, const Origin& origin);
  void find_way(const BoundCall& bound_call);
  bool joins(const BoundCall& bound_call, CallHandle handle);
  void begin_all(std::span<const BoundCall> calls, CallHandle handle);
  void begin_together(std::span<const BoundCall> calls, CallHandle handle);
  void begin_in_nccl(std::span<const nccl::NcclCall> steps, const BoundCall& bound_call, CallHandle handle);
  void wait_for_nccl(const Origin& origin);
  void arrange(int device, const Origin& origin);
  MemberGroups by_node() const;
  void join_across(int device, const Origin& origin);
  void make_levels(const MemberGroups& member_groups, bool share_gpus, int device);
  std::shared_ptr<CommunicatorCore> part(int colour, int key, std::string_view name, bool has_nccl);
  void end_levels() noexcept;
  void run_levels(const BoundCall& bound_call, const StreamMarks& behind);
  Trial* trial_of(const BoundCall& bound_call);
  void run_in_turn(Trial& trial, const BoundCall& bound_call, CallHandle handle);
  // Returns, for each number, the largest that any member has. Waits until all have called it.
  std::span<const std::uint64_t> meet(const std::vector<std::uint64_t>& mine, const Origin& origin);
  void refuse_if_captured(const BoundCall& bound_call);
  bool begin_on_gpus(const BoundCall& bound_call, CallHandle handle);
  bool stays_in_stream(CallHandle handle);
  bool reached(CallHandle handle);
  void wait_for_gpus(CallHandle handle);
  static void refuse_if_not_there(gpu::Stream stream);
  void wait_for_stream(gpu::Stream stream, const Origin& origin);
  void wait_for_marks(const StreamMarks& marks, const Origin& origin);
  bool works_on(int device, const CallRequest& whole, const Plan& plan);
  void hold_in_stream(const BoundCall& bound_call) noexcept;
  static void wait_a_moment_for_stream(const BoundCall& bound_call) noexcept;
  static bool is_changed_by_host(const Call& call);
  void begin_in_stream(const BoundCall& bound_call, CallHandle handle);
  void mark_end(const BoundCall& bound_call, CallHandle handle);
  void end_streams() noexcept;
  std::shared_ptr<const Plan> in_stream(const std::shared_ptr<const Plan>& plan);
  template <class F>
  auto or_break(const F& f);
  void end_nccl() noexcept;
  std::shared_ptr<const Plan> message_plan(const PeerMessage& message, bool sends);
  void refuse_if_closed() const {
    if (closed_) [[unlikely]]
      refuse_closed();
  }
  [[noreturn]] void refuse_closed() const;
  void refuse_allocation_if_failed() const;
  void check(const PeerMessage& message, bool written, Origin origin) const;
  template <class F>
  auto or_refuse(const F& f);
  std::uint32_t mark_of(const PeerMessage& message) const;

  CommunicatorOptions options_;
  std::unique_ptr<Exchange> exchange_;
  CreationGuard creation_guard_{*exchange_};
  std::shared_ptr<const Topology> topology_;
  std::vector<int> ranks_;
  TransportMaker maker_;
  std::unique_ptr<node::Room> room_;  // Is null after the engine has taken it.
  NodeRoom node_room_;                // Its room is null after the engine has taken it.
  std::unique_ptr<Planner> planner_;
  PartitionCache partitions_;
  std::array<RepeatedCall, 16> repeated_calls_;
  CallSubject subject_;
  std::uint64_t subject_key_ = 0;  // Is a hash of subject_; 0 if that is empty.
  std::vector<std::unique_ptr<PendingCall>> pending_calls_;
  std::vector<std::size_t> free_;  // Holds free slots of pending_calls_; the last is used first.
  std::map<std::tuple<int, std::uint32_t, bool, std::size_t>, std::shared_ptr<const Plan>>
      message_plans_;                          // Has the key peer, tag, sends, bytes.
  std::atomic<const Origin*> user_ = nullptr;  // Points to the place of the call inside; null if none is.
  bool closed_ = false;
  bool has_shrunk_ = false;
  std::unique_ptr<Engine<RealWorld>> engine_;
  bool may_use_nccl_ = false;  // Is equal on all members, as is the choice of paths below.
  std::unique_ptr<nccl::NcclCommunicator> nccl_communicator_;
  std::unique_ptr<GpuLevels> levels_;
  // True if members are on several nodes, and some node has several members.
  bool spans_nodes_ = false;
  // Holds a trial for each kind and size of call. The last number of the key is the bit width of the size in bytes.
  std::map<std::tuple<Collective, DataType, ReduceOp, Order, int>, Trial> trials_;
  // Holds the plans of meeting(), by the signature's hash and the vote's number.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<const Plan>> meetings_;
  // Holds this member's vote, and the sum of all. It is shared because a transport may use it after a failure.
  std::shared_ptr<std::array<DeviceVote, 2>> votes_ = std::make_shared<std::array<DeviceVote, 2>>();
  // Holds this member's times, and the largest of all, in the same way.
  std::shared_ptr<std::vector<std::uint64_t>> times_ = std::make_shared<std::vector<std::uint64_t>>(2 * Trial::turns);
  // Holds a plan, and its form in a stream. It owns both, so that the address in the key stays that plan's.
  struct StreamPlans {
    std::shared_ptr<const Plan> plan;
    std::shared_ptr<const Plan> in_stream;
  };
  std::map<const Plan*, StreamPlans> stream_plans_;
  GpuScratch scratch_;
};

}  // namespace detail
}  // namespace lockstep
