// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/communicator/drawn_step.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/communicator/communicator_core.hpp"
#include "collectives/shape.hpp"
#include "collectives/types.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

constexpr std::size_t guard_bytes = 96;

using Bytes = std::vector<std::byte>;

// Pairs each type with MPI's.
struct Type {
  DataType ours;
  MPI_Datatype theirs;
  bool has_bits;
};
const std::array<Type, 10>& types() {
  static const std::array<Type, 10> all = {{{DataType::i8, MPI_INT8_T, true},
                                            {DataType::i16, MPI_INT16_T, true},
                                            {DataType::i32, MPI_INT32_T, true},
                                            {DataType::i64, MPI_INT64_T, true},
                                            {DataType::u8, MPI_UINT8_T, true},
                                            {DataType::u16, MPI_UINT16_T, true},
                                            {DataType::u32, MPI_UINT32_T, true},
                                            {DataType::u64, MPI_UINT64_T, true},
                                            {DataType::f32, MPI_FLOAT, false},
                                            {DataType::f64, MPI_DOUBLE, false}}};
  return all;
}

struct Op {
  ReduceOp ours;
  MPI_Op theirs;
};
const std::array<Op, 7>& ops() {
  static const std::array<Op, 7> all = {{{ReduceOp::sum, MPI_SUM},
                                         {ReduceOp::prod, MPI_PROD},
                                         {ReduceOp::min, MPI_MIN},
                                         {ReduceOp::max, MPI_MAX},
                                         {ReduceOp::bit_and, MPI_BAND},
                                         {ReduceOp::bit_or, MPI_BOR},
                                         {ReduceOp::bit_xor, MPI_BXOR}}};
  return all;
}
constexpr std::size_t arithmetic_ops = 4;

template <class T>
void put_as(std::byte* at, int value) {
  const T typed = static_cast<T>(value);
  std::memcpy(at, &typed, sizeof typed);
}

void put(DataType type, std::byte* at, int value) {
  switch (type) {
    case DataType::f32:
      return put_as<float>(at, value);
    case DataType::f64:
      return put_as<double>(at, value);
    case DataType::i16:
    case DataType::u16:
      return put_as<std::int16_t>(at, value);
    case DataType::i32:
    case DataType::u32:
      return put_as<std::int32_t>(at, value);
    case DataType::i64:
    case DataType::u64:
      return put_as<std::int64_t>(at, value);
    default:
      return put_as<std::int8_t>(at, value);
  }
}

// Gives memory to buffers: the communicator's own, as long as there is some, or a vector.
class Memory {
 public:
  explicit Memory(const SymmetricBuffer<std::byte>& symmetric) : symmetric_(symmetric.span()) {}
  std::byte* take(std::size_t bytes, bool in_symmetric) {
    const std::size_t whole = (bytes + 63) / 64 * 64;
    if (in_symmetric && whole <= symmetric_.size()) {
      const auto taken = symmetric_.first(whole);
      symmetric_ = symmetric_.subspan(whole);
      return taken.data();
    }
    return ordinary_.emplace_back(std::make_unique<Bytes>(bytes))->data();
  }

 private:
  std::span<std::byte> symmetric_;
  std::vector<std::unique_ptr<Bytes>> ordinary_;
};

// Is a buffer between two guards. `expected` is what all its bytes must be in the end.
struct Guarded {
  std::byte* region = nullptr;
  std::size_t region_bytes = 0;
  std::size_t before = 0;  // bytes of the guard before it
  Bytes expected;
  std::byte* data() const { return region + before; }
  std::byte* expected_data() { return expected.data() + before; }
};

// Says where a buffer lies, so that every rank draws the same numbers.
struct Location {
  std::size_t shift;  // in elements
  bool in_symmetric;
};
Location draw_location(Draw& draw) { return {draw.one_in(2) ? 0 : draw.below(17), draw.one_in(3)}; }

Guarded make_buffer(Memory& memory, std::size_t bytes, std::size_t element, const Location& location) {
  Guarded buffer;
  buffer.before = guard_bytes + location.shift * element;
  buffer.region_bytes = buffer.before + bytes + guard_bytes;
  buffer.region = memory.take(buffer.region_bytes, location.in_symmetric);
  for (std::size_t i = 0; i < buffer.region_bytes; ++i)
    buffer.region[i] = static_cast<std::byte>(0xA5 ^ (i * 29 & 0xFF));
  return buffer;
}

// Returns where the buffer differs from what it must be; nothing if nowhere.
std::string difference(const Guarded& buffer, const char* name) {
  for (std::size_t i = 0; i < buffer.region_bytes; ++i) {
    if (buffer.region[i] == buffer.expected[i]) continue;
    return text(name, " byte ", static_cast<long long>(i) - static_cast<long long>(buffer.before), " is ",
                std::to_integer<int>(buffer.region[i]), " and not ", std::to_integer<int>(buffer.expected[i]));
  }
  return {};
}

enum class Form : std::uint8_t { blocking, begun, prepared };

// Describes a collective call of all ranks.
struct DrawnCall {
  Problem problem;
  Type type;
  Op op;
  Order order = Order::fast;
  Form form = Form::blocking;
  std::uint64_t data_seed = 0;
  struct Member {
    bool in_place = false;
    Location input = {};
    Location output = {};
    std::size_t send_gap = 0;  // elements between blocks; 0: no offsets are given
    std::size_t receive_gap = 0;
  };
  std::vector<Member> members;
};

std::size_t draw_count(Draw& draw) {
  switch (draw.below(12)) {
    case 0:
      return 0;
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
      return draw.below(20);
    case 6:
    case 7:
    case 8:
      return draw.below(700);
    case 9:
    case 10:
      return draw.below(9000);
    default:
      return draw.one_in(6) ? draw.below(150'000) : draw.below(30'000);
  }
}

DrawnCall draw_call(Draw& draw, int size, Form form) {
  DrawnCall call;
  Problem& problem = call.problem;
  problem.collective = static_cast<Collective>(draw.below(static_cast<std::size_t>(Collective::sendrecv)));
  problem.size = size;
  problem.root = static_cast<int>(draw.below(static_cast<std::size_t>(size)));
  problem.count = draw_count(draw);
  call.type = types()[draw.below(types().size())];
  call.op = ops()[draw.below(call.type.has_bits ? ops().size() : arithmetic_ops)];
  call.order = draw.one_in(4) ? Order::reproducible : Order::fast;
  call.form = form;
  call.data_seed = draw.next();
  const auto n = static_cast<std::size_t>(size);
  if (is_unequal(problem.collective)) {
    problem.counts.resize(problem.collective == Collective::all_to_all_v ? n * n : n);
    for (std::size_t& count : problem.counts) count = draw.one_in(4) ? 0 : draw.below(problem.count / n + 2);
    problem.count = 0;
  }
  const std::size_t in_place = draw.below(3);  // nowhere, on some members, everywhere
  for (std::size_t i = 0; i < n; ++i) {
    DrawnCall::Member& member = call.members.emplace_back();
    const bool coin = draw.one_in(2);
    const bool may = problem.collective != Collective::all_to_all_v && problem.collective != Collective::all_to_all &&
                     (!is_rooted(problem.collective) || static_cast<int>(i) == problem.root);
    member.in_place = may && (in_place == 2 || (in_place == 1 && coin));
    member.input = draw_location(draw);
    member.output = draw_location(draw);
    member.send_gap = draw.one_in(2) ? 0 : draw.below(5);
    member.receive_gap = draw.one_in(2) ? 0 : draw.below(5);
  }
  return call;
}

// Holds a rank's blocks of a buffer, in elements.
struct Placed {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> offsets;
  std::size_t extent = 0;
  bool has_gaps = false;
};

// Places the blocks with gaps between them, or all `count` elements as one if this side of the call has no blocks.
Placed place_blocks(const Blocks& blocks, std::size_t count, std::size_t gap) {
  Placed placed;
  if (blocks.parts() == 1) return {{count}, {0}, count, false};
  placed.has_gaps = gap > 0;
  for (int i = 0; i < blocks.parts(); ++i) {
    placed.counts.push_back(blocks.count(i));
    placed.offsets.push_back(placed.extent);
    placed.extent += blocks.count(i) + gap;
  }
  return placed;
}

std::vector<int> as_ints(const std::vector<std::size_t>& numbers) { return {numbers.begin(), numbers.end()}; }

// Does one collective call of this rank, and MPI's on copies.
class Call {
 public:
  Call(Communicator& world, Memory& memory, const DrawnCall& drawn)
      : world_(world),
        drawn_(drawn),
        shape_(shape_of(drawn_.problem, world.rank())),
        element_(size_of(drawn.type.ours)) {
    const DrawnCall::Member& me = drawn_.members[static_cast<std::size_t>(world.rank())];
    const Collective which = drawn_.problem.collective;
    is_in_place_ = which == Collective::broadcast || me.in_place;
    const bool has_send_offsets = which == Collective::scatter_v || which == Collective::all_to_all_v;
    const bool has_receive_offsets =
        which == Collective::gather_v || which == Collective::all_gather_v || which == Collective::all_to_all_v;
    sends_ = place_blocks(shape_.input_blocks, input_count(drawn_.problem, world.rank()),
                          has_send_offsets && !is_in_place_ ? me.send_gap : 0);
    receives_ = place_blocks(shape_.output_blocks, output_count(drawn_.problem, world.rank()),
                             has_receive_offsets && !is_in_place_ ? me.receive_gap : 0);
    if (which == Collective::barrier) sends_ = receives_ = {};
    lay_out(memory, me);
    make_request();
  }

  void expect(MPI_Comm comm);
  void start() {
    const auto& core = world_.core();
    if (drawn_.form == Form::blocking) {
      core->run(request_);
    } else if (drawn_.form == Form::begun) {
      pending_ = Request(core, core->start(request_));
    } else {
      prepared_.emplace(core, core->binder().prepare(request_));
      const auto is_in_place = [](const DrawnCall::Member& member) { return member.in_place; };
      if (std::ranges::none_of(drawn_.members, is_in_place)) prepared_->run();  // all ranks run it equally often
      pending_ = prepared_->start();
    }
  }
  void wait() { pending_.wait(); }
  // Changes the last byte behind the output.
  void spoil() { out_.region[out_.region_bytes - 1] ^= std::byte{1}; }
  std::string wrong() const;

 private:
  void lay_out(Memory& memory, const DrawnCall::Member& me);
  void fill(std::byte* at);
  void make_request();
  void reduce_by_mpi(const std::byte* in, std::byte* out, MPI_Comm comm);
  void move_by_mpi(const std::byte* in, std::byte* out, MPI_Comm comm);
  void move_unequally_by_mpi(const std::byte* in, std::byte* out, MPI_Comm comm);

  Communicator& world_;
  const DrawnCall& drawn_;
  Shape shape_;
  std::size_t element_;
  bool is_in_place_ = false;
  Placed sends_;
  Placed receives_;
  Overlap overlap_;
  Guarded in_;
  Guarded out_;  // also the input, if in place
  Bytes given_;  // the input's copy, for MPI
  detail::CallRequest request_;
  std::optional<PreparedCall> prepared_;
  Request pending_;
};

// Fills the input's blocks, and leaves the gaps.
void Call::fill(std::byte* at) {
  Draw draw(drawn_.data_seed + static_cast<std::uint64_t>(world_.rank()) * 7919);
  const bool is_prod = drawn_.op.ours == ReduceOp::prod;
  for (std::size_t block = 0; block < sends_.counts.size(); ++block) {
    for (std::size_t i = 0; i < sends_.counts[block]; ++i)
      put(drawn_.type.ours, at + (sends_.offsets[block] + i) * element_,
          is_prod ? 1 + static_cast<int>(draw.below(2)) : static_cast<int>(draw.below(7)));
  }
}

void Call::lay_out(Memory& memory, const DrawnCall::Member& me) {
  given_.resize(sends_.extent * element_);
  fill(given_.data());
  if (!is_in_place_) {
    in_ = make_buffer(memory, sends_.extent * element_, element_, me.input);
    fill(in_.data());
    in_.expected.assign(in_.region, in_.region + in_.region_bytes);
  } else {
    overlap_ = overlap_in_place(drawn_.problem, world_.rank());
  }
  const std::size_t extent =
      std::max(receives_.extent + overlap_.output, is_in_place_ ? sends_.extent + overlap_.input : 0);
  out_ = make_buffer(memory, extent * element_, element_, me.output);
  if (is_in_place_) fill(out_.data() + overlap_.input * element_);
  out_.expected.assign(out_.region, out_.region + out_.region_bytes);
}

void Call::make_request() {
  const Collective which = drawn_.problem.collective;
  request_ = {.collective = which};
  if (which == Collective::barrier) return;
  request_.type = drawn_.type.ours;
  request_.element_bytes = element_;
  request_.root = drawn_.problem.root;
  if (reduces(which)) request_.reduction = {.op = drawn_.op.ours};
  request_.order = drawn_.order;
  request_.output = {out_.data() + overlap_.output * element_, receives_.extent};
  request_.input = {is_in_place_ ? out_.data() + overlap_.input * element_ : in_.data(), sends_.extent};
  if (sends_.extent == 0) request_.input = {};
  if (!is_unequal(which)) return;
  const auto n = static_cast<std::size_t>(world_.size());
  if (sends_.counts.size() == n && which != Collective::all_gather_v && which != Collective::gather_v)
    request_.send_counts = sends_.counts;
  if (receives_.counts.size() == n && which != Collective::scatter_v && which != Collective::reduce_scatter_v)
    request_.receive_counts = receives_.counts;
  if (sends_.has_gaps) request_.send_offsets = sends_.offsets;
  if (receives_.has_gaps) request_.receive_offsets = receives_.offsets;
}

void Call::reduce_by_mpi(const std::byte* in, std::byte* out, MPI_Comm comm) {
  const int count = static_cast<int>(drawn_.problem.count);
  const MPI_Datatype type = drawn_.type.theirs;
  const MPI_Op op = drawn_.op.theirs;
  switch (drawn_.problem.collective) {
    case Collective::all_reduce:
      MPI_Allreduce(in, out, count, type, op, comm);
      return;
    case Collective::reduce:
      MPI_Reduce(in, out, count, type, op, drawn_.problem.root, comm);
      return;
    case Collective::scan:
      MPI_Scan(in, out, count, type, op, comm);
      return;
    case Collective::exscan: {
      Bytes scratch(drawn_.problem.count * element_ + 1);  // what rank 0 gets is not defined
      MPI_Exscan(in, scratch.data(), count, type, op, comm);
      if (world_.rank() > 0) std::copy_n(scratch.begin(), drawn_.problem.count * element_, out);
      return;
    }
    case Collective::reduce_scatter:
      MPI_Reduce_scatter_block(in, out, count, type, op, comm);
      return;
    default:
      MPI_Reduce_scatter(in, out, as_ints(sends_.counts).data(), type, op, comm);
  }
}

void Call::move_by_mpi(const std::byte* in, std::byte* out, MPI_Comm comm) {
  const int count = static_cast<int>(drawn_.problem.count);
  const int root = drawn_.problem.root;
  const MPI_Datatype type = drawn_.type.theirs;
  switch (drawn_.problem.collective) {
    case Collective::broadcast:
      MPI_Bcast(out, count, type, root, comm);
      return;
    case Collective::all_gather:
      MPI_Allgather(in, count, type, out, count, type, comm);
      return;
    case Collective::gather:
      MPI_Gather(in, count, type, out, count, type, root, comm);
      return;
    case Collective::scatter:
      MPI_Scatter(in, count, type, out, count, type, root, comm);
      return;
    case Collective::all_to_all:
      MPI_Alltoall(in, count, type, out, count, type, comm);
      return;
    case Collective::barrier:
      MPI_Barrier(comm);
      return;
    default:
      move_unequally_by_mpi(in, out, comm);
  }
}

void Call::move_unequally_by_mpi(const std::byte* in, std::byte* out, MPI_Comm comm) {
  const std::vector<int> sends = as_ints(sends_.counts);
  const std::vector<int> receives = as_ints(receives_.counts);
  const std::vector<int> from = as_ints(sends_.offsets);
  const std::vector<int> to = as_ints(receives_.offsets);
  const MPI_Datatype type = drawn_.type.theirs;
  const int root = drawn_.problem.root;
  const auto own = static_cast<int>(drawn_.problem.counts[static_cast<std::size_t>(world_.rank())]);
  switch (drawn_.problem.collective) {
    case Collective::all_gather_v:
      MPI_Allgatherv(in, own, type, out, receives.data(), to.data(), type, comm);
      return;
    case Collective::gather_v:
      MPI_Gatherv(in, own, type, out, receives.data(), to.data(), type, root, comm);
      return;
    case Collective::scatter_v:
      MPI_Scatterv(in, sends.data(), from.data(), type, out, own, type, root, comm);
      return;
    default:
      MPI_Alltoallv(in, sends.data(), from.data(), type, out, receives.data(), to.data(), type, comm);
  }
}

// Lets MPI write into what the output must be.
void Call::expect(MPI_Comm comm) {
  std::byte* const out = out_.expected_data() + overlap_.output * element_;
  if (reduces(drawn_.problem.collective))
    reduce_by_mpi(given_.data(), out, comm);
  else
    move_by_mpi(given_.data(), out, comm);
}

std::string Call::wrong() const {
  const Collective which = drawn_.problem.collective;
  std::string found;
  if (in_.region != nullptr) found = difference(in_, "input");
  const bool cuts = is_in_place_ && (which == Collective::reduce_scatter || which == Collective::reduce_scatter_v);
  if (found.empty() && !cuts) found = difference(out_, "output");
  if (found.empty() && cuts) {  // the other blocks are not defined
    Guarded rest = out_;
    const auto at = [&](std::size_t elements) {
      return static_cast<std::ptrdiff_t>(out_.before + elements * element_);
    };
    const auto keep = [&](std::size_t from, std::size_t to) {
      std::copy(rest.region + at(from), rest.region + at(to), rest.expected.begin() + at(from));
    };
    keep(0, overlap_.output);
    keep(overlap_.output + receives_.extent, std::max(sends_.extent, overlap_.output + receives_.extent));
    found = difference(rest, "output");
  }
  if (found.empty()) return {};
  return text(to_string(which), ' ', to_string(drawn_.type.ours), ' ', to_string(drawn_.op.ours), " of ", sends_.extent,
              " to ", receives_.extent, " elements, root ", drawn_.problem.root, is_in_place_ ? ", in place" : "",
              drawn_.form == Form::blocking ? ""
              : drawn_.form == Form::begun  ? ", begun"
                                            : ", prepared",
              drawn_.order == Order::fast ? "" : ", reproducible", ": ", found);
}

// Describes a message between two ranks.
struct DrawnMessage {
  int from = 0;
  int to = 0;
  int tag = 0;
  std::size_t bytes = 0;
  std::uint64_t data_seed = 0;
  Location source = {};
  Location target = {};
};

DrawnMessage draw_message(Draw& draw, int size) {
  constexpr std::array<std::size_t, 6> bounds = {1, 16, 512, 9000, 70'000, 400'000};
  const auto n = static_cast<std::size_t>(size);
  DrawnMessage message;
  message.from = static_cast<int>(draw.below(n));
  message.to = static_cast<int>(draw.below(n));
  message.tag = static_cast<int>(draw.below(3));
  message.bytes = draw.below(bounds[draw.below(draw.one_in(4) ? 6 : 4)]);
  message.data_seed = draw.next();
  message.source = draw_location(draw);
  message.target = draw_location(draw);
  return message;
}

// Does this rank's ends of one message.
class Message {
 public:
  Message(Communicator& world, Memory& memory, const DrawnMessage& drawn) : world_(world), drawn_(drawn) {
    if (world.rank() == drawn.from) {
      source_ = make_buffer(memory, drawn.bytes, 1, drawn.source);
      Draw draw(drawn.data_seed);
      for (std::size_t i = 0; i < drawn.bytes; ++i) source_.data()[i] = static_cast<std::byte>(draw.next() & 0xFF);
      source_.expected.assign(source_.region, source_.region + source_.region_bytes);
    }
    if (world.rank() == drawn.to) {
      target_ = make_buffer(memory, drawn.bytes, 1, drawn.target);
      target_.expected.assign(target_.region, target_.region + target_.region_bytes);
    }
  }
  void expect(MPI_Comm comm, std::vector<MPI_Request>& requests) {
    const int count = static_cast<int>(drawn_.bytes);
    if (world_.rank() == drawn_.to)
      MPI_Irecv(target_.expected_data(), count, MPI_BYTE, drawn_.from, drawn_.tag, comm, &requests.emplace_back());
    if (world_.rank() == drawn_.from)
      MPI_Isend(source_.expected_data(), count, MPI_BYTE, drawn_.to, drawn_.tag, comm, &requests.emplace_back());
  }
  void start() {
    if (world_.rank() == drawn_.to)
      receive_ = world_.recv_async(std::span(target_.data(), drawn_.bytes), drawn_.from, drawn_.tag);
    if (world_.rank() == drawn_.from)
      send_ = world_.send_async(std::span<const std::byte>(source_.data(), drawn_.bytes), drawn_.to, drawn_.tag);
  }
  void wait() {
    send_.wait();
    receive_.wait();
  }
  std::string wrong() const {
    std::string found = source_.region == nullptr ? "" : difference(source_, "sent");
    if (found.empty() && target_.region != nullptr) found = difference(target_, "received");
    if (found.empty()) return {};
    return text("message of ", drawn_.bytes, " bytes from ", drawn_.from, " to ", drawn_.to, ", tag ", drawn_.tag, ": ",
                found);
  }

 private:
  Communicator& world_;
  const DrawnMessage& drawn_;
  Guarded source_;
  Guarded target_;
  Request send_;
  Request receive_;
};

// Lets every rank send to the one `shift` further and receive from the one before, by one sendrecv.
std::string run_ring(Communicator& world, Memory& memory, Draw& draw, MPI_Comm comm) {
  const int n = world.size();
  const int shift = static_cast<int>(draw.below(static_cast<std::size_t>(n)));
  const DrawnMessage drawn = draw_message(draw, n);
  const int to = (world.rank() + shift) % n;
  const int from = (world.rank() + n - shift) % n;
  Guarded source = make_buffer(memory, drawn.bytes, 1, drawn.source);
  Draw data(drawn.data_seed + static_cast<std::uint64_t>(world.rank()));
  for (std::size_t i = 0; i < drawn.bytes; ++i) source.data()[i] = static_cast<std::byte>(data.next() & 0xFF);
  source.expected.assign(source.region, source.region + source.region_bytes);
  Guarded target = make_buffer(memory, drawn.bytes, 1, drawn.target);
  target.expected.assign(target.region, target.region + target.region_bytes);
  const int count = static_cast<int>(drawn.bytes);
  MPI_Sendrecv(source.expected_data(), count, MPI_BYTE, to, drawn.tag, target.expected_data(), count, MPI_BYTE, from,
               drawn.tag, comm, MPI_STATUS_IGNORE);
  world.sendrecv(std::span<const std::byte>(source.data(), drawn.bytes), to, std::span(target.data(), drawn.bytes),
                 from, drawn.tag);
  std::string found = difference(source, "sent");
  if (found.empty()) found = difference(target, "received");
  return found.empty() ? found : text("sendrecv of ", drawn.bytes, " bytes by ", shift, ": ", found);
}

// Does collectives and messages, all of which are under way at once.
StepResult run_several(const StepWorld& step_world, Memory& memory, Draw& draw, MPI_Comm comm) {
  Communicator& world = step_world.world;
  std::vector<DrawnCall> calls;
  for (std::size_t i = draw.below(4); i > 0; --i)
    calls.push_back(draw_call(draw, world.size(), draw.one_in(3) ? Form::prepared : Form::begun));
  std::vector<DrawnMessage> messages;
  for (std::size_t i = draw.below(7); i > 0; --i) messages.push_back(draw_message(draw, world.size()));
  std::vector<std::unique_ptr<Call>> own_calls;
  std::vector<std::unique_ptr<Message>> own_messages;
  for (const DrawnCall& each : calls) {
    own_calls.push_back(std::make_unique<Call>(world, memory, each));
    own_calls.back()->expect(comm);
  }
  std::vector<MPI_Request> requests;
  requests.reserve(2 * messages.size());
  for (const DrawnMessage& each : messages) {
    own_messages.push_back(std::make_unique<Message>(world, memory, each));
    own_messages.back()->expect(comm, requests);
  }
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  const bool messages_first = draw.one_in(2);
  if (messages_first)
    for (const auto& each : own_messages) each->start();
  for (const auto& each : own_calls) each->start();
  if (!messages_first)
    for (const auto& each : own_messages) each->start();
  const bool backwards = draw.one_in(2);
  if (backwards) {
    std::reverse(own_calls.begin(), own_calls.end());
    std::reverse(own_messages.begin(), own_messages.end());
  }
  StepResult result{calls.size() + messages.size(), {}};
  for (const auto& each : own_messages) each->wait();
  for (const auto& each : own_calls) each->wait();
  for (const auto& each : own_messages) result.wrong += each->wrong();
  for (const auto& each : own_calls) result.wrong += each->wrong();
  return result;
}

}  // namespace

std::uint64_t Draw::next() {
  state_ += 0x9E3779B97F4A7C15ULL;
  std::uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
  return mixed ^ (mixed >> 31);
}

StepResult run_step(const StepWorld& step_world, std::uint64_t seed, bool spoils) {
  Draw draw(seed);
  Memory memory(step_world.symmetric);
  const std::size_t kind = draw.below(8);
  if (kind == 0) return {1, run_ring(step_world.world, memory, draw, MPI_COMM_WORLD)};
  if (kind <= 2) return run_several(step_world, memory, draw, MPI_COMM_WORLD);
  const DrawnCall drawn = draw_call(draw, step_world.world.size(),
                                    draw.one_in(4)   ? Form::prepared
                                    : draw.one_in(3) ? Form::begun
                                                     : Form::blocking);
  Call call(step_world.world, memory, drawn);
  call.expect(MPI_COMM_WORLD);
  call.start();
  call.wait();
  if (spoils) call.spoil();
  return {1, call.wrong()};
}

}  // namespace lockstep::test
