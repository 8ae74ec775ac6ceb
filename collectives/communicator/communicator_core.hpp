// SPDX-License-Identifier: Apache-2.0
// What lies behind a Communicator: the members, the planner, the engine, and the calls that are under way. The
// facade turns typed calls into CallRequests; here they are checked, planned, staged where their data is not
// contiguous, and run. A repeated call takes what the first one left and allocates nothing.
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

#include "collectives/communicator/call_request.hpp"
#include "collectives/communicator/gpu_scratch.hpp"
#include "collectives/communicator/member_groups.hpp"
#include "collectives/communicator/staging.hpp"
#include "collectives/engine/transport.hpp"
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

// Makes the transport that fits an exchange; a split communicator makes its own by the same maker.
using TransportMaker = std::function<std::unique_ptr<Transport>(Exchange&)>;

struct CommunicatorOptions {
  Order order = Order::fast;
  // Operations go on while the program computes, by a thread of their own.
  bool progress_thread = false;
  std::string name = "world";  // in messages
  // Members of one node meet in memory that they share; false: by messages only, as LOCKSTEP_NODE_MEMORY=0.
  bool node_memory = true;
  // As in LOCKSTEP_ALGORITHM; and the text of a table as LOCKSTEP_TABLE names, with its name for messages.
  std::string algorithm = {};
  std::string table = {};
  std::string table_name = "the plan table";
  // How long a call may wait for the others; zero: as LOCKSTEP_TIMEOUT says.
  Duration timeout = {};
  // What is called can be read from outside, by `lockstep stat`, and waits in blocking calls have an end and say who is
  // missing. False: nothing of this, to measure what it costs (`lockstep bench --baseline unwatched`).
  bool is_watched = true;
  // Messages carry checksums, so that bytes that change on their way are an error (LOCKSTEP-E029); the same on all
  // members. As LOCKSTEP_CHECKSUMS=1.
  bool checksums = false;
  // Data in the memory of GPUs, one for each member, goes by NCCL where all members have it; false: as LOCKSTEP_NCCL=0.
  bool nccl = true;
  // How messages between nodes carry 32-bit floats that are added up in the fast order, where that saves time
  // (docs/reductions.md says what it costs in accuracy); the same on all members.
  WireFormat wire = WireFormat::as_is;
  // Members compare the lines of the program at which they call collectives, too; the same on all members. As
  // LOCKSTEP_STRICT=1.
  bool strict = false;
};

namespace detail {

struct DeviceCall;
class GpuLevels;

// Says more of a call than its counts do, for members to compare: the shapes of its tensors, the variable that it
// changes. 0: nothing.
struct CallSubject {
  std::uint64_t layout = 0;
  std::uint64_t variable = 0;
  bool operator==(const CallSubject&) const = default;
};

// A call that is checked and planned: all that a repeated start needs.
struct BoundCall {
  Call call;
  std::vector<StagingCopy> in;
  std::vector<StagingCopy> back;
  StagingBuffer staged;
  std::optional<gpu::Stream> stream = {};
  bool keeps_order = false;   // of the stream, by itself: the members of a node see to it
  bool packs_on_gpu = false;  // from there and to there, in memory of a GPU: of tensors that are one call
  // The buffers of a plan that can be looked for again: where they were when it was made, on a GPU or in memory that
  // all members took together.
  struct BufferLocation {
    const void* data = nullptr;  // nothing: it cannot
    std::size_t bytes = 0;
    gpu::MemoryLocation where;
  };
  std::array<BufferLocation, 2> locations = {};  // input and output
  // Where GPUs may do it; then the rest of this is made when it is known that they do not.
  std::shared_ptr<DeviceCall> gpus = {};

  // What was decided, for people.
  const std::string& algorithm() const;
  const std::string& why() const;
};

// Names a call that is under way.
struct CallHandle {
  std::size_t slot = 0;
  std::uint32_t generation = 0;
};

// Tells the other members when this one could not make its part of what they make together.
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

// The room of this member's node, if members are on several nodes and others are on this one. All nodes have one, or
// none has.
struct NodeRoom {
  std::unique_ptr<node::Room> room;
  std::size_t most_element = 0;  // that can be reduced there; 0: nobody has one
};

class CommunicatorCore {
 public:
  CommunicatorCore(std::unique_ptr<Exchange> exchange, std::shared_ptr<const Topology> topology, std::vector<int> ranks,
                   TransportMaker maker, CommunicatorOptions options, node::MemoryLineage lineage = {});
  CommunicatorCore(const CommunicatorCore&) = delete;
  CommunicatorCore& operator=(const CommunicatorCore&) = delete;
  ~CommunicatorCore();

  int rank() const { return exchange_->rank(); }
  int size() const { return exchange_->size(); }
  const CommunicatorOptions& options() const { return options_; }
  void set_timeout(Duration timeout);
  // Of this member's calls from the next one on. See ScopedCallSubject.
  void set_subject(const CallSubject& subject);
  const CallSubject& subject() const { return subject_; }
  const Topology& topology() const { return *topology_; }
  const std::vector<int>& ranks() const { return ranks_; }
  bool failed() const;
  // True if members are on several nodes, and those of each node share memory of their own. The same on all.
  bool meets_in_nodes() const { return node_room_.most_element > 0; }
  // Returns what suits the memory that this member shares with others; nothing if it shares none.
  std::optional<node::Tuning> node_tuning() const;

  // What is wrong with a CallRequest is wrong for all members: it fails the communicator, so that nobody waits in vain.
  BoundCall prepare(const CallRequest& request);
  // What was considered for a call, as Planner::candidates.
  std::vector<AlgorithmCandidate> candidates(const Spec& spec);
  // Of several calls that are one operation, where GPUs may do it: `make_host_call` makes what is done where they do
  // not. `whole` has the elements of all of them.
  BoundCall prepare(std::span<const CallRequest> requests, const CallRequest& whole,
                    std::function<BoundCall()> make_host_call);
  // Makes `bound_call` go the way that members chose for `earlier`, the same calls on other memory, without a new vote.
  void decide_as(const BoundCall& bound_call, const BoundCall& earlier, const Origin& origin);
  // Of one that GPUs do not do; also for a caller inside the communicator.
  BoundCall prepare_for_host(const CallRequest& request) { return bound_call_from(request, QueryRule::never); }
  // Memory that stands for data, as by make_staging_buffer().
  StagingBuffer take_memory(std::size_t bytes, bool for_gpu);
  // In a GPU's memory, kept for the next one who needs as much.
  StagingBuffer take_on_gpu(int device, std::size_t bytes);
  // The GPU in whose memory tensors should become one; host: in pinned memory, if any is on a GPU. A member's own
  // affair.
  int packed_on(const CallRequest& whole, std::span<const CallRequest> tensors);
  // Only whether it could be done.
  void check(const CallRequest& request);
  void run(const CallRequest& request);
  void run(const BoundCall& bound_call, Origin origin);
  // As part of what this communicator's members do with others: all have agreed on the call, and have its data in the
  // memory of that GPU.
  void run_as_agreed(const CallRequest& request, int device);
  CallHandle start(const CallRequest& request);
  CallHandle start(const BoundCall& bound_call, Origin origin) { return start_all({&bound_call, 1}, origin); }
  // `behind`: what GPUs do comes after these marks instead of the default stream.
  using StreamMarks = std::vector<std::shared_ptr<gpu::StreamMark>>;
  CallHandle start_all(std::span<const BoundCall> calls, Origin origin, const StreamMarks& behind = {});
  void run_all(std::span<const BoundCall> calls, Origin origin);

  struct PeerMessage {
    int peer;
    BufferView data;
    std::size_t element_bytes;
    int tag = 0;
    bool neighbours = false;  // of a CartesianGrid, whose tags are its own
  };
  CallHandle exchange(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives, Origin origin);

  // `over` says afterwards, also when they throw, whether the handle is spent.
  bool test(CallHandle handle, Origin origin, bool& over);
  void wait(CallHandle handle, Origin origin, bool& over);
  // A request was destroyed without having been waited for.
  void drop(CallHandle handle) noexcept;
  // A call that cannot be made: the others are told, so that they do not wait for it.
  void refuse(const Error& error) noexcept;
  // The same, where others may be making something together with this member.
  void refuse_together(const Error& error) noexcept;
  // The communicator is gone; requests may still be there.
  void close() noexcept;

  std::shared_ptr<CommunicatorCore> split(int colour, int key, CommunicatorOptions options,
                                          Origin origin = Origin::here());
  std::shared_ptr<CommunicatorCore> shrink(CommunicatorOptions options);
  node::SymmetricPart allocate(std::size_t count, std::size_t element_bytes, Origin origin);
  // Of that GPU, which is this member's own affair.
  std::shared_ptr<std::byte> allocate_on_gpu(std::size_t count, std::size_t element_bytes, int device, Origin origin);

 private:
  // Returns the memory that all members share; nothing if they are on several nodes, or share none.
  node::Room* room_of_all() const;

  // A call that was made before, by what tells it from others.
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
  // As this communicator's options complete it.
  CallRequest with_options(CallRequest request) const;
  // What is asked, checked, with all that members compare.
  Spec spec_for(const CallRequest& request);
  RepeatedCall* repeated_call_for(const CallRequest& request);
  void run_repeated(RepeatedCall& repeated_call, const CallRequest& request);
  bool is_same(const RepeatedCall& repeated_call, const CallRequest& request) const;
  void remember(RepeatedCall& repeated_call, const CallRequest& request, const Call& call) const;

  class ExclusiveUse;  // one thread at a time; another one at the same time is told so

  struct PendingCall;

  // When members ask each other where their data is: `once` is for plans, which always ask, in their first start.
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
  // What members tell each other before GPUs do a call, added up over all: who cannot; what is given less what is
  // taken; how far members' registered memory is not the same; who has given a stream of another GPU.
  using DeviceVote = std::array<std::uint64_t, 4>;
  bool may_ask_where(const CallRequest& request, const Spec& spec, QueryRule query_rule) const;
  bool queries_where(const CallRequest& request) const;
  int device_of(const CallRequest& request) const;
  std::shared_ptr<DeviceCall> device_call_for(const Spec& spec, const CallRequest& request) const;
  // Returns the plan of the call in which members vote on how a call of this spec is done. It has that one's signature.
  std::shared_ptr<const Plan> meeting(const Spec& spec, std::string_view name, std::uint64_t choice);
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
  std::unique_ptr<node::Room> room_;  // until the engine has it
  NodeRoom node_room_;                // the same
  std::unique_ptr<Planner> planner_;
  PartitionCache partitions_;
  std::array<RepeatedCall, 16> repeated_calls_;
  CallSubject subject_;
  std::uint64_t subject_key_ = 0;  // of subject_; 0: nothing is said
  std::vector<std::unique_ptr<PendingCall>> pending_calls_;
  std::vector<std::size_t> free_;  // last in, first out
  std::map<std::tuple<int, std::uint32_t, bool, std::size_t>, std::shared_ptr<const Plan>>
      message_plans_;                          // peer, tag, sends, bytes
  std::atomic<const Origin*> user_ = nullptr;  // who is inside
  bool closed_ = false;
  bool has_shrunk_ = false;
  std::unique_ptr<Engine<RealWorld>> engine_;
  bool may_use_nccl_ = false;  // the same on all members, as all below
  std::unique_ptr<nccl::NcclCommunicator> nccl_communicator_;
  std::unique_ptr<GpuLevels> levels_;
  bool spans_nodes_ = false;                                                        // and has several members in some
  std::map<std::tuple<Collective, DataType, ReduceOp, Order, int>, Trial> trials_;  // the last: the bits of its bytes
  // The plans of meeting(), by signature and choice.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<const Plan>> meetings_;
  // This member's vote, and the sum of all; a transport may hold them after a failure.
  std::shared_ptr<std::array<DeviceVote, 2>> votes_ = std::make_shared<std::array<DeviceVote, 2>>();
  // The same, of times.
  std::shared_ptr<std::vector<std::uint64_t>> times_ = std::make_shared<std::vector<std::uint64_t>>(2 * Trial::turns);
  struct StreamPlans {
    std::shared_ptr<const Plan> plan;
    std::shared_ptr<const Plan> in_stream;
  };
  std::map<const Plan*, StreamPlans> stream_plans_;
  GpuScratch scratch_;
};

}  // namespace detail
}  // namespace lockstep
