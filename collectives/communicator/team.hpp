// SPDX-License-Identifier: Apache-2.0
// What lies behind a Communicator: the members, the planner, the engine, and the calls that are under way. The
// facade turns typed calls into Asks; here they are checked, planned, staged where their data is not contiguous,
// and run. A repeated call takes what the first one left and allocates nothing.
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

#include "collectives/communicator/arrangement.hpp"
#include "collectives/communicator/ask.hpp"
#include "collectives/communicator/gpu_scratch.hpp"
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
struct Candidate;
namespace nccl {
class Clique;
struct Step;
enum class Registering : std::uint8_t;
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
};

namespace detail {

struct OnGpus;
class GpuLevels;

// A call that is checked and planned: all that a repeated start needs.
struct Ready {
  Call call;
  std::vector<Copy> in;
  std::vector<Copy> back;
  Staged staged;
  std::optional<gpu::Stream> stream = {};
  bool keeps_order = false;   // of the stream, by itself: the members of a node see to it
  bool packs_on_gpu = false;  // from there and to there, in memory of a GPU: of tensors that are one call
  // The buffers of a plan that can be looked for again: where they were when it was made, on a GPU or in memory that
  // all members took together.
  struct Lying {
    const void* data = nullptr;  // nothing: it cannot
    std::size_t bytes = 0;
    gpu::Where where;
  };
  std::array<Lying, 2> lying = {};  // input and output
  // Where GPUs may do it; then the rest of this is made when it is known that they do not.
  std::shared_ptr<OnGpus> gpus = {};

  // What was decided, for people.
  const std::string& algorithm() const;
  const std::string& why() const;
};

// Names a call that is under way.
struct Handle {
  std::size_t slot = 0;
  std::uint32_t generation = 0;
};

// Tells the other members when this one could not make its part of what they make together.
class Making {
 public:
  explicit Making(Exchange& exchange) : exchange_(exchange) {}
  ~Making() {
    if (is_done_) return;
    try {
      exchange_.fail("it could not make its part of the communicator; its own error says why");
    } catch (const std::exception& second) {
      exchange_.log().error(text("while telling the others of it: ", second.what()));
    }
  }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;
  void done() { is_done_ = true; }

 private:
  Exchange& exchange_;
  bool is_done_ = false;
};

// Where members are on several nodes: that of my node, if there are others on it. Every node has one, or nobody.
struct NearRoom {
  std::unique_ptr<node::Room> room;
  std::size_t most_element = 0;  // that can be reduced there; 0: nobody has one
};

class Team {
 public:
  Team(std::unique_ptr<Exchange> exchange, std::shared_ptr<const Topology> topology, std::vector<int> ranks,
       TransportMaker maker, CommunicatorOptions options, node::Lineage lineage = {});
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();

  int rank() const { return exchange_->rank(); }
  int size() const { return exchange_->size(); }
  const CommunicatorOptions& options() const { return options_; }
  void set_timeout(Duration timeout);
  const Topology& topology() const { return *topology_; }
  const std::vector<int>& ranks() const { return ranks_; }
  bool failed() const;
  // Members are on several nodes, and those of each node meet in memory of their own. The same on all.
  bool meets_in_nodes() const { return near_room_.most_element > 0; }
  // What suits the memory in which this member meets others; nothing where it does not.
  std::optional<node::Tuning> node_tuning() const;

  // What is wrong with an Ask is wrong for all members: it fails the communicator, so that nobody waits in vain.
  Ready prepare(const Ask& ask);
  // What was considered for a call, as Planner::candidates.
  std::vector<Candidate> candidates(const Spec& spec);
  // Of several calls that are one operation, where GPUs may do it: `otherwise` makes what is done where they do not.
  // `whole` has the elements of all of them.
  Ready prepare(std::span<const Ask> asks, const Ask& whole, std::function<Ready()> otherwise);
  // What members have found out of the same calls on other memory: they do not ask each other about this one.
  void decide_as(const Ready& ready, const Ready& earlier, const Origin& origin);
  // Of one that GPUs do not do; also for who is called by the team.
  Ready prepare_for_host(const Ask& ask) { return ready_from(ask, Asking::never); }
  // Memory that stands for data, as by make_staged().
  Staged take_memory(std::size_t bytes, bool for_gpu);
  // In a GPU's memory, kept for the next one who needs as much.
  Staged take_on_gpu(int device, std::size_t bytes);
  // The GPU in whose memory tensors should become one; host: in pinned memory, if any is on a GPU. A member's own
  // affair.
  int packed_on(const Ask& whole, std::span<const Ask> tensors);
  // Only whether it could be done.
  void check(const Ask& ask);
  void run(const Ask& ask);
  void run(const Ready& ready, Origin origin);
  // As part of what this team's members do with others: all have agreed on the call, and have its data in the memory
  // of that GPU.
  void run_as_agreed(const Ask& ask, int device);
  Handle start(const Ask& ask);
  Handle start(const Ready& ready, Origin origin) { return start_all({&ready, 1}, origin); }
  // `behind`: what GPUs do comes after these marks instead of the default stream.
  using Marks = std::vector<std::shared_ptr<gpu::Mark>>;
  Handle start_all(std::span<const Ready> calls, Origin origin, const Marks& behind = {});
  void run_all(std::span<const Ready> calls, Origin origin);

  struct Letter {
    int peer;
    Data data;
    std::size_t element_bytes;
    int tag = 0;
    bool neighbours = false;  // of a Cartesian, whose tags are its own
  };
  Handle exchange(std::span<const Letter> sends, std::span<const Letter> receives, Origin origin);

  // `over` says afterwards, also when they throw, whether the handle is spent.
  bool test(Handle handle, Origin origin, bool& over);
  void wait(Handle handle, Origin origin, bool& over);
  // A request was destroyed without having been waited for.
  void drop(Handle handle) noexcept;
  // A call that cannot be made: the others are told, so that they do not wait for it.
  void refuse(const Error& error) noexcept;
  // The same, where others may be making something together with this member.
  void refuse_together(const Error& error) noexcept;
  // The communicator is gone; requests may still be there.
  void close() noexcept;

  std::shared_ptr<Team> split(int colour, int key, CommunicatorOptions options, Origin origin = Origin::here());
  std::shared_ptr<Team> shrink(CommunicatorOptions options);
  node::SymmetricPart allocate(std::size_t count, std::size_t element_bytes, Origin origin);
  // Of that GPU, which is this member's own affair.
  std::shared_ptr<std::byte> allocate_on_gpu(std::size_t count, std::size_t element_bytes, int device, Origin origin);

 private:
  // Where all members meet; nothing: they are on several nodes, or share no memory.
  node::Room* room_of_all() const;

  // A call that was made before, by what tells it from others.
  struct Quick {
    Collective collective = Collective::exchange;
    DataType type = DataType::u8;
    ReduceOp op = ReduceOp::sum;
    Order order = Order::fast;
    int root = 0;
    bool in_place = false;
    std::size_t element_bytes = 0;
    std::size_t input_count = 0;
    std::size_t output_count = 0;
    Call call;
  };
  // As this communicator's options complete it.
  Ask with_options(Ask ask) const;
  Quick* quick_for(const Ask& ask);
  void run_quick(Quick& quick, const Ask& ask);
  static bool is_same(const Quick& quick, const Ask& ask);
  static void remember(Quick& quick, const Ask& ask, const Call& call);

  class Use;  // one thread at a time; another one at the same time is told so

  struct Pending;

  // Whether members ask each other where the data is: of a plan, which does so in its first start only, always.
  enum class Asking : std::uint8_t { never, where_it_is_large, once };
  Ready ready_from(const Ask& ask, Asking asking);
  bool can_keep_order(const Ask& ask, const Plan& plan) const;
  Ready::Lying lying(const Data& data, std::size_t element_bytes);
  static BufferDevices devices_of(const Call& call);
  bool is_known(const void* data, std::size_t bytes);
  void refuse_if_freed(const Ready& ready, const Origin& origin);
  void stage(Ready& ready, const Ask& ask) const;
  void say_reason() const;
  void begin(const Call& call, Handle handle);
  void begin(const Ready& ready, Handle handle);
  void begin_letter(const Letter& letter, bool sends, Handle handle);
  Handle take_slot(Origin origin);
  Pending& pending(Handle handle);
  void release(Handle handle);
  static void keep_memory(Pending& slot);
  void copy_all(std::span<const Copy> copies, Handle handle);
  void finish(Handle handle);
  void wait_inside(Handle handle);
  void come_to(Collective what, const Origin& origin);
  template <class F>
  auto make_together(Collective what, const Origin& origin, const F& f);
  std::shared_ptr<Team> split_inside(int colour, int key, CommunicatorOptions options);
  std::shared_ptr<Team> smaller(const std::vector<int>& members, std::uint64_t number,
                                const CommunicatorOptions& options,
                                const std::function<std::optional<std::string>()>& in_vain);
  void run_inside(const Ready& ready, const Origin& origin);

  class GpuPause;
  // What members tell each other before GPUs do a call, added up over all: who cannot; what is given less what is
  // taken; how far members' registered memory is not the same; who has given a stream of another GPU.
  using Told = std::array<std::uint64_t, 4>;
  bool may_ask_where(const Ask& ask, const Spec& spec, Asking asking) const;
  bool asks_where(const Ask& ask) const;
  int device_of(const Ask& ask) const;
  std::shared_ptr<OnGpus> on_gpus(const Spec& spec, const Ask& ask) const;
  std::shared_ptr<const Plan> meeting(const Spec& spec, std::string_view name, std::uint64_t choice);
  void decide(OnGpus& gpus, const Origin& origin);
  Told told_of(const OnGpus& gpus) const;
  Error different_counts(const Spec& spec);
  bool has_other_stream(const OnGpus& gpus) const;
  Error other_stream(const OnGpus& gpus, const Origin& origin);
  void make_clique(int device, const Origin& origin);
  template <class F>
  auto in_exchange(const F& f);
  template <class F>
  void together(const F& f);
  std::shared_ptr<std::byte> allocate_on_gpu_inside(std::size_t count, std::size_t element_bytes, int device,
                                                    const Origin& origin);
  std::shared_ptr<std::byte> allocate_by_nccl(std::size_t bytes, nccl::Registering how, const Origin& origin);
  void break_if_failed() noexcept;
  bool fits(int device) const;
  bool may_go(const OnGpus& gpus) const;
  bool can_go_by_levels(const OnGpus& gpus) const;
  void choose_way(OnGpus& gpus, const Origin& origin);
  void find_way(const Ready& ready);
  bool joins(const Ready& ready, Handle handle);
  void begin_all(std::span<const Ready> calls, Handle handle);
  void begin_together(std::span<const Ready> calls, Handle handle);
  void begin_in_clique(std::span<const nccl::Step> steps, const Ready& ready, Handle handle);
  void wait_for_clique(const Origin& origin);
  void arrange(int device, const Origin& origin);
  Arrangement by_node() const;
  void join_across(int device, const Origin& origin);
  void make_levels(const Arrangement& arrangement, bool share_gpus, int device);
  std::shared_ptr<Team> part(int colour, int key, std::string_view name, bool has_nccl);
  void end_levels() noexcept;
  void run_levels(const Ready& ready, const Marks& behind);
  Trial* trial_of(const Ready& ready);
  void run_in_turn(Trial& trial, const Ready& ready, Handle handle);
  std::span<const std::uint64_t> meet(const std::vector<std::uint64_t>& mine, const Origin& origin);
  void refuse_if_captured(const Ready& ready);
  bool begin_on_gpus(const Ready& ready, Handle handle);
  bool stays_in_stream(Handle handle);
  bool reached(Handle handle);
  void wait_for_gpus(Handle handle);
  static void refuse_if_not_there(gpu::Stream stream);
  void wait_for_stream(gpu::Stream stream, const Origin& origin);
  void wait_for_marks(const Marks& marks, const Origin& origin);
  bool works_on(int device, const Ask& whole, const Plan& plan);
  void hold_in_stream(const Ready& ready) noexcept;
  static void wait_a_moment_for_stream(const Ready& ready) noexcept;
  static bool is_changed_by_host(const Call& call);
  void begin_in_stream(const Ready& ready, Handle handle);
  void mark_end(const Ready& ready, Handle handle);
  void end_streams() noexcept;
  std::shared_ptr<const Plan> in_stream(const std::shared_ptr<const Plan>& plan);
  template <class F>
  auto or_break(const F& f);
  void end_clique() noexcept;
  std::shared_ptr<const Plan> letter_plan(const Letter& letter, bool sends);
  void refuse_if_closed() const {
    if (closed_) [[unlikely]]
      refuse_closed();
  }
  [[noreturn]] void refuse_closed() const;
  void refuse_allocation_if_failed() const;
  void check(const Letter& letter, bool written, Origin origin) const;
  template <class F>
  auto or_refuse(const F& f);
  std::uint32_t mark_of(const Letter& letter) const;

  CommunicatorOptions options_;
  std::unique_ptr<Exchange> exchange_;
  Making making_{*exchange_};
  std::shared_ptr<const Topology> topology_;
  std::vector<int> ranks_;
  TransportMaker maker_;
  std::unique_ptr<node::Room> room_;  // until the engine has it
  NearRoom near_room_;                // the same
  std::unique_ptr<Planner> planner_;
  Cuts cuts_;
  std::array<Quick, 16> quick_;
  std::vector<std::unique_ptr<Pending>> pendings_;
  std::vector<std::size_t> free_;  // last in, first out
  std::map<std::tuple<int, std::uint32_t, bool, std::size_t>, std::shared_ptr<const Plan>>
      letters_;                                // peer, mark, sends, bytes
  std::atomic<const Origin*> user_ = nullptr;  // who is inside
  bool closed_ = false;
  bool has_shrunk_ = false;
  std::unique_ptr<Engine<RealWorld>> engine_;
  bool may_use_nccl_ = false;  // the same on all members, as all below
  std::unique_ptr<nccl::Clique> clique_;
  std::unique_ptr<GpuLevels> levels_;
  bool spans_nodes_ = false;                                                        // and has several members in some
  std::map<std::tuple<Collective, DataType, ReduceOp, Order, int>, Trial> trials_;  // the last: the bits of its bytes
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<const Plan>> meetings_;  // by signature and choice
  // What is mine, and what is everybody's; a transport may hold it after a failure.
  std::shared_ptr<std::array<Told, 2>> told_ = std::make_shared<std::array<Told, 2>>();
  // The same, of times.
  std::shared_ptr<std::vector<std::uint64_t>> times_ = std::make_shared<std::vector<std::uint64_t>>(2 * Trial::turns);
  struct InStreams {
    std::shared_ptr<const Plan> plan;
    std::shared_ptr<const Plan> in_stream;
  };
  std::map<const Plan*, InStreams> in_streams_;
  GpuScratch scratch_;
};

}  // namespace detail
}  // namespace lockstep
