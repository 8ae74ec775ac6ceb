// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/team.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "collectives/engine/engine.hpp"
#include "collectives/engine/real_world.hpp"
#include "collectives/planner.hpp"
#include "topology/base/error.hpp"
#include "topology/base/keep.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

const std::byte token{};  // what a barrier sends

std::size_t index_of_me(const Exchange& exchange) { return static_cast<std::size_t>(exchange.rank()); }

void copy_in(const Copy& copy) {
  const std::size_t run = copy.data.count / copy.data.blocks * copy.element_bytes;
  const auto* from = static_cast<const std::byte*>(copy.data.data);
  for (std::size_t block = 0; block < copy.data.blocks; ++block)
    std::memcpy(copy.staged + block * run, from + block * copy.data.stride * copy.element_bytes, run);
}

void copy_back(const Copy& copy) {
  const std::size_t run = copy.data.count / copy.data.blocks * copy.element_bytes;
  auto* to = static_cast<std::byte*>(copy.data.data);
  for (std::size_t block = 0; block < copy.data.blocks; ++block)
    std::memcpy(to + block * copy.data.stride * copy.element_bytes, copy.staged + block * run, run);
}

bool needs_staging(const Data& data) { return !data.contiguous() && data.count > 0; }

double crowding(const Topology& topology, const std::vector<int>& ranks, std::size_t me) {
  return topology.members_per_core(topology.member(ranks.at(me)).node);
}

}  // namespace

// A call that is under way, or the memory of one that may come again.
struct Team::Pending {
  std::uint32_t generation = 0;
  bool busy = false;
  std::vector<Ticket> tickets;
  std::size_t done = 0;  // of the tickets
  std::vector<Copy> back;
  std::vector<std::byte> staging;                               // of messages
  std::vector<std::shared_ptr<std::vector<std::byte>>> staged;  // of collectives: kept until they are done
  Origin origin;
};

class Team::Use {
 public:
  Use(Team& team, const Origin& origin) : team_(team) {
    if (try_enter(origin)) return;
    throw Error(Code::usage,
                text("communicator \"", team.options_.name, "\" is used by two threads at once; the second call is at ",
                     place(origin)),
                "give each thread a communicator of its own: duplicate() makes one");
  }
  // For a destructor, which cannot refuse: waits for the other thread, unless that is this one.
  explicit Use(Team& team) : team_(team) {
    constexpr int most = 50'000;
    for (int i = 0; i < most && !try_enter(nowhere); ++i) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  ~Use() {
    if (inside_) team_.user_.store(nullptr, std::memory_order_release);
  }
  bool inside() const { return inside_; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  static constexpr Origin nowhere{};

  bool try_enter(const Origin& origin) {
    const Origin* nobody = nullptr;
    inside_ = team_.user_.compare_exchange_strong(nobody, &origin, std::memory_order_acquire);
    return inside_;
  }

  Team& team_;
  bool inside_ = false;
};

Team::Team(std::unique_ptr<Exchange> exchange, std::shared_ptr<const Topology> topology, std::vector<int> ranks,
           TransportMaker maker, CommunicatorOptions options)
    : options_(std::move(options)),
      exchange_(std::move(exchange)),
      topology_(std::move(topology)),
      ranks_(std::move(ranks)),
      maker_(std::move(maker)),
      planner_(std::make_unique<Planner>(
          topology_, Group(ranks_, ranks_.at(index_of_me(*exchange_))),
          PlannerOptions{
              .algorithm = options_.algorithm, .table = options_.table, .table_name = options_.table_name})) {
  auto transport = maker_(*exchange_);
  if (!transport) throw Error(Code::internal, "no transport fits this exchange", "give a TransportMaker that knows it");
  const Waiter waiter(crowding(*topology_, ranks_, index_of_me(*exchange_)));
  engine_ = std::make_unique<Engine<RealWorld>>(RealWorld(std::move(transport), waiter),
                                                EngineOptions{.patience = exchange_->patience(),
                                                              .log = exchange_->log(),
                                                              .name = options_.name,
                                                              .progress_thread = options_.progress_thread});
}

bool Team::failed() const { return closed_ || engine_->failed(); }
Team::Pending& Team::pending(Handle handle) { return *pendings_[handle.slot]; }

void Team::refuse_if_closed() const {
  if (closed_)
    throw Error(Code::poisoned, text("communicator \"", options_.name, "\" was destroyed"),
                "keep the communicator until its last request has been waited for");
}

Ready Team::ready_from(const Ask& ask) {
  refuse_if_closed();
  try {
    Ask whole = ask;
    if (options_.order == Order::reproducible) whole.order = Order::reproducible;
    if (ask.collective == Collective::barrier) whole.input = {const_cast<std::byte*>(&token), 1};
    const Spec spec = spec_of(whole, size(), rank(), cuts_);
    Ready ready;
    ready.call = {.plan = planner_->plan(spec),
                  .input = whole.input.data,
                  .output = whole.output.data,
                  .kernel = ask.reduction.op == ReduceOp::user ? nullptr : find_kernel(ask.type, ask.reduction.op),
                  .user = ask.reduction.user,
                  .factor = ask.reduction.factor,
                  .origin = ask.origin};
    const bool same = whole.input.data == whole.output.data && whole.input.stride == whole.output.stride;
    const bool stage_in = needs_staging(whole.input);
    const bool stage_out = needs_staging(whole.output);
    if (!stage_in && !stage_out) return ready;
    const std::size_t in_bytes = stage_in ? whole.input.count * ask.element_bytes : 0;
    const std::size_t out_bytes = stage_out && !(same && stage_in) ? whole.output.count * ask.element_bytes : 0;
    ready.staged = std::make_shared<std::vector<std::byte>>(in_bytes + out_bytes);
    std::byte* const in = ready.staged->data();
    std::byte* const out = same ? in : in + in_bytes;
    if (stage_in) {
      ready.in.push_back({whole.input, in, ask.element_bytes});
      ready.call.input = in;
    }
    if (stage_out) {
      ready.back.push_back({whole.output, out, ask.element_bytes});
      ready.call.output = out;
    }
    return ready;
  } catch (const Error& error) {
    engine_->refuse(error);
    throw;
  }
}

void Team::check(const Ask& ask) {
  const Use use(*this, ask.origin);
  refuse_if_closed();
  try {
    static_cast<void>(spec_of(ask, size(), rank(), cuts_));
  } catch (const Error& error) {
    engine_->refuse(error);
    throw;
  }
}

Ready Team::prepare(const Ask& ask) {
  const Use use(*this, ask.origin);
  return ready_from(ask);
}

void Team::run(const Ask& ask) {
  bool over = false;
  wait(start(ask), ask.origin, over);
}

Handle Team::start(const Ask& ask) {
  const Use use(*this, ask.origin);
  const Ready ready = ready_from(ask);
  const Handle handle = take_slot(ask.origin);
  Pending& slot = pending(handle);
  for (const Copy& copy : ready.in) copy_in(copy);
  slot.back.assign(ready.back.begin(), ready.back.end());
  if (ready.staged) slot.staged.push_back(ready.staged);
  begin(ready.call, handle);
  return handle;
}

Handle Team::start_all(std::span<const Ready> calls, Origin origin) {
  const Use use(*this, origin);
  refuse_if_closed();
  const Handle handle = take_slot(origin);
  Pending& slot = pending(handle);
  for (const Ready& ready : calls) {
    for (const Copy& copy : ready.in) copy_in(copy);
    slot.back.insert(slot.back.end(), ready.back.begin(), ready.back.end());
    if (ready.staged) slot.staged.push_back(ready.staged);
    begin(ready.call, handle);
  }
  return handle;
}

void Team::begin(const Call& call, Handle handle) {
  try {
    pending(handle).tickets.push_back(engine_->start(call));
  } catch (...) {
    release(handle);
    throw;
  }
}

Handle Team::exchange(std::span<const Letter> sends, std::span<const Letter> receives, Origin origin) {
  const Use use(*this, origin);
  refuse_if_closed();
  try {
    for (const auto& letters : {sends, receives}) {
      for (const Letter& each : letters) check(each, origin);
    }
  } catch (const Error& error) {
    engine_->refuse(error);
    throw;
  }
  const Handle handle = take_slot(origin);
  Pending& slot = pending(handle);
  std::size_t bytes = 0;
  for (const auto& letters : {sends, receives}) {
    for (const Letter& each : letters) bytes += needs_staging(each.data) ? each.data.count * each.element_bytes : 0;
  }
  slot.staging.clear();
  slot.staging.reserve(bytes);  // stays where it is
  for (const Letter& each : sends) begin_letter(each, true, handle);
  for (const Letter& each : receives) begin_letter(each, false, handle);
  return handle;
}

void Team::begin_letter(const Letter& letter, bool sends, Handle handle) {
  Pending& slot = pending(handle);
  Call call{.plan = letter_plan(letter, sends), .origin = slot.origin};
  std::byte* data = static_cast<std::byte*>(letter.data.data);
  if (needs_staging(letter.data)) {
    const std::size_t before = slot.staging.size();
    slot.staging.resize(before + letter.data.count * letter.element_bytes);
    const Copy copy{letter.data, slot.staging.data() + before, letter.element_bytes};
    if (sends)
      copy_in(copy);
    else
      slot.back.push_back(copy);
    data = copy.staged;
  }
  if (sends)
    call.input = data;
  else
    call.output = data;
  begin(call, handle);
}

void Team::check(const Letter& letter, Origin origin) const {
  if (letter.peer < 0 || letter.peer >= size()) {
    throw Error(
        Code::usage,
        text("a message with rank ", letter.peer, " (", place(origin), "), but the members are 0 to ", size() - 1),
        "give a rank of this communicator; ranks of its parent do not count");
  }
  const auto largest = static_cast<std::int64_t>(engine_->marks_across() / 2) - 1;
  if (letter.tag < 0 || letter.tag > largest) {
    throw Error(Code::usage,
                text("a message with tag ", letter.tag, " (", place(origin), "), but tags are 0 to ", largest, " here"),
                letter.neighbours
                    ? "a grid has at most a dimension for every four tags"
                    : "give a smaller tag; how large they may be follows from the MPI library's MPI_TAG_UB");
  }
  const std::size_t bytes = letter.data.count * letter.element_bytes;
  if (letter.data.count > std::numeric_limits<std::size_t>::max() / 2 || !letter.data.extent(letter.element_bytes)) {
    throw Error(Code::usage, text("a message of ", letter.data.count, " elements (", place(origin), ')'),
                "it looks like a negative number that became unsigned; check how it is computed");
  }
  if (bytes > 0 && letter.data.data == nullptr) {
    throw Error(Code::usage, text("a message of ", letter.data.count, " elements at address 0 (", place(origin), ')'),
                "give memory that is there");
  }
}

// The upper half of the marks is the grids' own.
std::uint32_t Team::mark_of(const Letter& letter) const {
  return static_cast<std::uint32_t>(letter.tag) + (letter.neighbours ? engine_->marks_across() / 2 : 0);
}

// One message; kept, because programs send the same again and again.
std::shared_ptr<const Plan> Team::letter_plan(const Letter& letter, bool sends) {
  const std::size_t bytes = letter.data.count * letter.element_bytes;
  constexpr std::size_t most = 4096;
  if (letters_.size() >= most) letters_.clear();
  const std::uint32_t mark = mark_of(letter);
  auto& known = letters_[{letter.peer, mark, sends, bytes}];
  if (known) return known;
  auto plan = std::make_shared<Plan>();
  plan->spec = {.collective = Collective::exchange,
                .type = DataType::u8,
                .element_bytes = 1,
                .count = bytes,
                .root = static_cast<int>(mark)};
  plan->size = size();
  plan->index = rank();
  plan->algorithm = sends ? "send" : "recv";
  ScheduleBuilder one;
  if (sends)
    one.round().send(letter.peer, input(0, bytes));
  else
    one.round().receive(letter.peer, output(0, bytes));
  plan->last = one.as_it_is();  // a message of nothing is one, too
  (sends ? plan->input_count : plan->output_count) = bytes;
  plan->why = "a message";
  return known = std::move(plan);
}

Handle Team::take_slot(Origin origin) {
  if (free_.empty()) {
    pendings_.push_back(std::make_unique<Pending>());
    free_.reserve(pendings_.size());
    free_.push_back(pendings_.size() - 1);
  }
  const std::size_t at = free_.back();
  free_.pop_back();
  Pending& slot = *pendings_[at];
  slot.busy = true;
  slot.done = 0;
  slot.origin = origin;
  slot.tickets.clear();
  slot.back.clear();
  return {at, ++slot.generation};
}

void Team::release(Handle handle) {
  Pending& slot = pending(handle);
  slot.busy = false;
  if (engine_->keeps_memory()) keep_memory(slot);
  slot.staged.clear();
  free_.push_back(handle.slot);
}

bool Team::test(Handle handle, Origin origin, bool& over) {
  const Use use(*this, origin);
  over = true;  // but for where it says otherwise
  refuse_if_closed();
  Pending& slot = pending(handle);
  try {
    while (slot.done < slot.tickets.size()) {
      if (!engine_->test(slot.tickets[slot.done])) {
        over = false;
        return false;
      }
      ++slot.done;
    }
  } catch (...) {
    release(handle);
    throw;
  }
  finish(handle);
  return true;
}

void Team::wait(Handle handle, Origin origin, bool& over) {
  const Use use(*this, origin);
  over = true;
  refuse_if_closed();
  Pending& slot = pending(handle);
  try {
    for (; slot.done < slot.tickets.size(); ++slot.done) engine_->wait(slot.tickets[slot.done]);
  } catch (...) {
    release(handle);
    throw;
  }
  finish(handle);
}

void Team::finish(Handle handle) {
  for (const Copy& copy : pending(handle).back) copy_back(copy);
  release(handle);
}

void Team::drop(Handle handle) noexcept {
  const Use use(*this);
  if (closed_) return;
  if (!use.inside()) {
    engine_->log().error(text("a request of \"", options_.name,
                              "\" was destroyed inside another call of the same communicator; it stays under way"));
    return;
  }
  Pending& slot = pending(handle);
  for (; slot.done < slot.tickets.size(); ++slot.done) engine_->drop(slot.tickets[slot.done]);
  release(handle);
}

void Team::refuse(const Error& error) noexcept {
  if (!closed_) engine_->refuse(error);
}

// What stands for data that is not contiguous, as long as the transport may use it.
void Team::keep_memory(Pending& slot) {
  for (auto& each : slot.staged) keep_for_ever(each);
  keep_for_ever(std::make_shared<std::vector<std::byte>>(std::move(slot.staging)));
  slot.staging = {};
}

void Team::close() noexcept {
  if (std::exchange(closed_, true)) return;
  engine_->close();
  if (engine_->keeps_memory()) {
    for (auto& slot : pendings_) keep_memory(*slot);
  }
  engine_.reset();
}

Team::~Team() { close(); }

std::shared_ptr<Team> Team::split(int colour, int key, CommunicatorOptions options) {
  const Origin origin{"split", 0};
  const Use use(*this, origin);
  refuse_if_closed();
  const std::array<int, 2> mine = {colour, ranks_.at(index_of_me(*exchange_))};
  auto part = exchange_->split(colour, key);
  if (!part) return nullptr;
  // Of every member of the part, its rank in the topology.
  const auto all = part->all_gather("ranks of a split communicator", std::as_bytes(std::span(mine)));
  std::vector<int> ranks;
  ranks.reserve(all.size());
  for (const Bytes& bytes : all) {
    std::array<int, 2> theirs{};
    std::memcpy(theirs.data(), bytes.data(), std::min(bytes.size(), sizeof theirs));
    ranks.push_back(theirs[1]);
  }
  return std::make_shared<Team>(std::move(part), topology_, std::move(ranks), maker_, std::move(options));
}

}  // namespace lockstep::detail
