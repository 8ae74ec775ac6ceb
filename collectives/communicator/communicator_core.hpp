// SPDX-License-Identifier: Apache-2.0
// Implements a Communicator: it holds the members, the planner, the engine, and the calls that are under way. The
// facade turns typed calls into CallRequests. This class checks, plans, stages and runs them. A repeated call reuses
// the first one's plan and memory, and allocates nothing.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/communicator/bound_call.hpp"
#include "collectives/communicator/call_staging.hpp"
#include "collectives/communicator/call_subject.hpp"
#include "collectives/communicator/communicator_factory.hpp"
#include "collectives/communicator/gpu_scratch.hpp"
#include "collectives/communicator/member_groups.hpp"
#include "collectives/communicator/membership.hpp"
#include "collectives/communicator/partition_cache.hpp"
#include "collectives/communicator/peer_messages.hpp"
#include "collectives/communicator/pending_calls.hpp"
#include "collectives/communicator/repeated_calls.hpp"
#include "collectives/communicator/request.hpp"

namespace lockstep {

namespace nccl {
class NcclCommunicator;
struct NcclCall;
enum class RegistrationMode : std::uint8_t;
}  // namespace nccl

namespace detail {

struct DeviceCall;
class GpuLevels;

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

  // Returns this member's end of the communicator.
  Membership& members() { return members_; }
  // Returns the maker of smaller communicators and of memory for collectives.
  CommunicatorFactory& factory() { return factory_; }
  int rank() const { return members_.rank(); }
  int size() const { return members_.size(); }
  const CommunicatorOptions& options() const { return members_.options(); }
  // Sets the timeout of this member's later calls; zero selects LOCKSTEP_TIMEOUT. Throws Error usage if it is negative.
  void set_timeout(Duration timeout);
  // Sets the subject of this member's later calls. See ScopedCallSubject.
  void set_subject(const CallSubject& subject);
  const CallSubject& subject() const { return subject_; }
  // True if the communicator has failed or was closed.
  bool failed() const;
  // True if members are on several nodes, and those of each node share memory of their own. It is equal on all members.
  bool meets_in_nodes() const { return members_.node_element() > 0; }
  // Returns the tuning of the memory that this member shares with others; nothing if it shares none.
  std::optional<node::Tuning> node_tuning() const;

  // Checks and plans a call. Throws Error usage for a wrong CallRequest. That fails the communicator, so that no other
  // member waits in vain.
  BoundCall prepare(const CallRequest& request);
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
  StagingBuffer take_memory(std::size_t bytes, bool for_gpu) { return staging_.take_memory(bytes, for_gpu); }
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
  // Ends the communicator, although Requests may remain: their later calls throw. Ends the process if a call of this
  // communicator is still running.
  void close() noexcept;

  // Allocates memory of GPU `device`, which members may choose freely; all members call it. The caller shares the
  // memory.
  std::shared_ptr<std::byte> allocate_on_gpu(std::size_t count, std::size_t element_bytes, int device, Origin origin);

 private:
  // Returns the request with this communicator's order and wire format.
  CallRequest with_options(CallRequest request) const;
  // Checks a request, and returns it with the fingerprints that members compare.
  Spec spec_for(const CallRequest& request);
  // Returns the size in bytes from which members may ask each other where the data of a call is.
  std::size_t asked_bytes() const;

  // Selects the calls for which members ask each other where their data is. Plans use `once`: they always ask, at their
  // first start.
  enum class QueryRule : std::uint8_t { never, where_it_is_large, once };
  BoundCall bound_call_from(const CallRequest& request, QueryRule query_rule);
  void begin(const BoundCall& bound_call, CallHandle handle);
  CallHandle take_slot(const Origin& origin);
  void wait_inside(CallHandle handle);
  void run_inside(const BoundCall& bound_call, const Origin& origin);

  class GpuWait;
  // Holds a member's vote before GPUs run a call; the votes of all are added. The numbers count members that cannot,
  // hash given minus taken messages, compare registered memory, and count members with another GPU's stream.
  using DeviceVote = std::array<std::uint64_t, 4>;
  bool may_ask_where(const CallRequest& request, const Spec& spec, QueryRule query_rule) const;
  int device_of(const CallRequest& request) const;
  std::shared_ptr<DeviceCall> device_call_for(const Spec& spec, const CallRequest& request) const;
  // Returns the plan of the vote on a call of this spec. It has that call's signature.
  std::shared_ptr<const Plan> meeting(const Spec& spec, std::string_view name, std::uint64_t choice);
  void decide(DeviceCall& gpus, const Origin& origin);
  DeviceVote vote_of(const DeviceCall& gpus) const;
  Error different_counts(const Spec& spec);
  bool has_other_stream(const DeviceCall& gpus) const;
  Error other_stream(const DeviceCall& gpus, const Origin& origin);
  void make_nccl_communicator(int device, const Origin& origin);
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

  Membership members_;
  CallStaging staging_{members_};
  RepeatedCalls repeated_calls_{members_};
  PendingCalls pending_calls_{members_};
  PeerMessages messages_{members_, pending_calls_};
  CommunicatorFactory factory_{members_};
  PartitionCache partitions_;
  CallSubject subject_;
  std::uint64_t subject_key_ = 0;  // Is a hash of subject_; 0 if that is empty.
  bool may_use_nccl_ = false;      // Is equal on all members, as is the choice of paths below.
  std::unique_ptr<nccl::NcclCommunicator> nccl_communicator_;
  std::unique_ptr<GpuLevels> levels_;
  // True if members are on several nodes, and some node has several members.
  bool spans_nodes_ = false;
  // Holds a trial for each kind and size of call. The last number of the key is the bit width of the size in bytes.
  std::map<std::tuple<Collective, DataType, ReduceOp, Order, int>, Trial> trials_;
  // Holds the plans of meeting(), by the signature's hash and choice.
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
