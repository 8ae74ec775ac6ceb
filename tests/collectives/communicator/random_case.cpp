// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/communicator/random_case.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/communicator/communicator_core.hpp"
#include "collectives/gpu/memory.hpp"
#include "collectives/nccl/library.hpp"
#include "collectives/plan_table.hpp"
#include "collectives/types.hpp"
#include "tests/collectives/gpu/fake_gpus.hpp"
#include "tests/topology/shapes.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

constexpr std::uint32_t on_one_gpu = ~0U;
constexpr std::uint32_t on_own_gpus = ~1U;  // all of them, each on its own

// What a member gives at a position: 1 or 2 where products stay small, else up to 7.
int given(const RandomCase& each, int rank, std::size_t i) {
  const std::uint32_t mixed =
      (each.seed + static_cast<std::uint32_t>(rank) * 2654435761U + static_cast<std::uint32_t>(i) * 40503U) *
      2246822519U;
  return static_cast<int>((mixed >> 16U) % (each.op == ReduceOp::prod ? 2 : 7)) + (each.op == ReduceOp::prod ? 1 : 0);
}

template <class T, class Part = T>
void put_as(std::byte* at, double value) {
  const T typed = static_cast<T>(static_cast<Part>(value));
  std::memcpy(at, &typed, sizeof typed);
}

// By DataType.
constexpr std::array<void (*)(std::byte*, double), 14> puts = {put_as<std::int8_t>,
                                                               put_as<std::int16_t>,
                                                               put_as<std::int32_t>,
                                                               put_as<std::int64_t>,
                                                               put_as<std::uint8_t>,
                                                               put_as<std::uint16_t>,
                                                               put_as<std::uint32_t>,
                                                               put_as<std::uint64_t>,
                                                               put_as<f16, float>,
                                                               put_as<bf16, float>,
                                                               put_as<float>,
                                                               put_as<double>,
                                                               put_as<std::complex<float>, float>,
                                                               put_as<std::complex<double>, double>};

// By which a member multiplies what it gives to premul_sum; so small that sums fit into 8 bits.
double factor_of(int rank) { return 0.5 * (1 + rank % 4); }

bool is_integer(DataType type) { return type < DataType::f16; }

// As it comes into the result.
double contributed(const RandomCase& each, int rank, std::size_t i) {
  if (each.op != ReduceOp::premul_sum) return given(each, rank, i);
  const double weighed = given(each, rank, i) * factor_of(rank);
  return is_integer(each.type) ? std::trunc(weighed) : weighed;
}

double combined(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    default:
      return a + b;
  }
}

struct Memory {
  Memory(DataType type_given, std::size_t count) : type(type_given), bytes(count * size_of(type_given)) {}
  void set(std::size_t i, double value) {
    puts.at(static_cast<std::size_t>(type))(bytes.data() + i * size_of(type), value);
  }
  DataType type;
  std::vector<std::byte> bytes;
};

Problem problem_of(const RandomCase& each) {
  Problem problem{.collective = each.collective,
                  .size = each.members,
                  .count = each.count,
                  .root = each.root,
                  .counts = each.counts};
  int member = 0;
  for (const int members : each.nodes) {
    std::vector<int>& node = problem.levels.nodes.emplace_back();
    for (int i = 0; i < members; ++i) node.push_back(member++);
  }
  return problem;
}

// The members whose data end in the result of a reduction.
std::pair<int, int> contributors(const RandomCase& each, int rank) {
  if (each.collective == Collective::scan) return {0, rank + 1};
  if (each.collective == Collective::exscan) return {0, rank};
  return {0, each.members};
}

// What element i of the member's output must be.
double expected(const RandomCase& each, const Problem& problem, int rank, std::size_t i) {
  const Shape shape = shape_of(problem, rank);
  if (reduces(each.collective)) {
    const bool scatters = shape.input_blocks.parts() > 1;
    const std::size_t at = i + (scatters ? shape.input_blocks.offset(rank) : 0);
    const auto [first, last] = contributors(each, rank);
    double all = contributed(each, first, at);
    for (int peer = first + 1; peer < last; ++peer) all = combined(each.op, all, contributed(each, peer, at));
    if (each.op != ReduceOp::avg) return all;
    return is_integer(each.type) ? std::trunc(all / each.members) : all / each.members;
  }
  if (each.collective == Collective::broadcast) return given(each, each.root, i);
  if (each.collective == Collective::scatter || each.collective == Collective::scatter_v)
    return given(each, each.root, shape_of(problem, each.root).input_blocks.offset(rank) + i);
  for (int peer = 0; peer < each.members; ++peer) {
    if (i >= shape.output_blocks.end(peer) || i < shape.output_blocks.offset(peer)) continue;
    const Blocks input_blocks = shape_of(problem, peer).input_blocks;
    const bool cut = each.collective == Collective::all_to_all || each.collective == Collective::all_to_all_v;
    return given(each, peer, i - shape.output_blocks.offset(peer) + (cut ? input_blocks.offset(rank) : 0));
  }
  return -1;
}

std::vector<std::size_t> sizes_of(const Blocks& blocks) {
  std::vector<std::size_t> all;
  for (int i = 0; i < blocks.parts(); ++i) all.push_back(blocks.count(i));
  return all;
}

bool is_in_place(const RandomCase& each, int rank) {
  if (each.collective == Collective::all_to_all_v || (each.in_place >> static_cast<unsigned>(rank) & 1) == 0)
    return false;
  return !is_rooted(each.collective) || rank == each.root;
}

bool has_result(const RandomCase& each, int rank) {
  switch (each.collective) {
    case Collective::reduce:
    case Collective::gather:
    case Collective::gather_v:
      return rank == each.root;
    case Collective::exscan:
      return rank > 0;
    default:
      return each.collective != Collective::barrier;
  }
}

// Of the GPU that a member has its data on.
class CaseStream {
 public:
  explicit CaseStream(const detail::CallRequest& request) {
    for (const detail::BufferView* each : {&request.input, &request.output}) {
      if (each->count > 0) device_ = std::max(device_, gpu::where(each->data).device);
    }
    stream_ = gpu::backend()->make_stream(device_);
  }
  ~CaseStream() { gpu::backend()->end_stream(device_, stream_); }
  CaseStream(const CaseStream&) = delete;
  CaseStream& operator=(const CaseStream&) = delete;
  gpu::Stream get() const { return stream_; }
  void wait() const { gpu::backend()->wait(stream_); }
  // Does it in the stream, where it is one of the tests' own.
  bool put(std::function<void()> work) const {
    auto* const fake = dynamic_cast<FakeGpus*>(gpu::backend());
    if (fake != nullptr) fake->put(device_, stream_, std::move(work));
    return fake != nullptr;
  }

 private:
  int device_ = 0;
  gpu::Stream stream_ = nullptr;
};

// What a member gives or takes: on the host, and where it is in the memory of a GPU.
struct Place {
  void set(std::span<const std::byte> values) const {
    std::ranges::copy(values, here.bytes.begin());
    if (!there.empty()) there.copy_from(values);
  }
  Memory& here;
  DeviceVector<std::byte>& there;
};

// Lets what is given come only when the stream is there, some time after the call has begun.
void give_late(const CaseStream& stream, int rank, Place in, Place out) {
  const auto late = [=, in_values = in.here.bytes, out_values = out.here.bytes] {
    std::this_thread::sleep_for(std::chrono::microseconds(200 * (rank % 3 + 1)));
    in.set(in_values);
    out.set(out_values);
  };
  in.set(std::vector(in.here.bytes.size(), std::byte{0x55}));
  out.set(std::vector(out.here.bytes.size(), std::byte{0x55}));
  if (!stream.put(late)) late();
}

// Empty if the member's result is right.
std::string wrong_element(const RandomCase& each, const Problem& problem, int rank, const std::byte* result) {
  const std::size_t bytes = size_of(each.type);
  Memory right(each.type, output_count(problem, rank));
  for (std::size_t i = 0; i < right.bytes.size(); ++i) {
    if (i % bytes == 0) right.set(i / bytes, expected(each, problem, rank, i / bytes));
    if (right.bytes[i] != result[i])
      return text("rank ", rank, " has another element ", i / bytes, " than ",
                  expected(each, problem, rank, i / bytes));
  }
  return {};
}

}  // namespace

std::string run_case(Communicator& world, const RandomCase& each) {
  const int rank = world.rank();
  const Problem problem = problem_of(each);
  const Shape shape = shape_of(problem, rank);
  const std::size_t in_count = each.collective == Collective::barrier ? 0 : input_count(problem, rank);
  const std::size_t out_count = output_count(problem, rank);
  Memory in(each.type, in_count);
  Memory out(each.type, std::max(out_count, in_count));
  for (std::size_t i = 0; i < in_count; ++i) in.set(i, given(each, rank, i));
  detail::CallRequest request{
      .collective = each.collective, .type = each.type, .element_bytes = size_of(each.type), .root = each.root};
  if (each.collective == Collective::barrier) request = {.collective = each.collective};
  if (reduces(each.collective)) request.reduction = {.op = each.op, .factor = factor_of(rank)};
  request.order = each.order;
  request.input = {in.bytes.data(), in_count};
  request.output = {out.bytes.data(), out_count};
  std::byte* result = out.bytes.data();
  const bool in_place = each.collective == Collective::broadcast || is_in_place(each, rank);
  if (in_place) {
    const Overlap overlap = overlap_in_place(problem, rank);
    std::ranges::copy(in.bytes, out.bytes.begin() + static_cast<std::ptrdiff_t>(overlap.input * size_of(each.type)));
    request.input.data = out.bytes.data() + overlap.input * size_of(each.type);
    result = out.bytes.data() + overlap.output * size_of(each.type);
    request.output.data = result;
  }
  const std::vector<std::byte> given_in = in.bytes;
  const std::vector<std::byte> given_out = out.bytes;
  // The same, in the memory of a GPU.
  const bool has_gpu = gpu::backend() != nullptr;
  const auto is_there = [&](std::uint32_t members) {
    return has_gpu && (members == on_own_gpus || (members >> static_cast<unsigned>(rank) & 1) != 0);
  };
  DeviceVector<std::byte> in_there;
  DeviceVector<std::byte> out_there;
  const auto moved = [](const void* address, const Memory& from, const DeviceVector<std::byte>& to) {
    return to.data() + (static_cast<const std::byte*>(address) - from.bytes.data());
  };
  if (has_gpu) {
    const int own = rank % gpu::backend()->devices();
    const bool has_output = is_there(each.outputs_there) && !out.bytes.empty();
    const bool has_input = is_there(each.inputs_there) && !in_place && in_count > 0;
    if (has_output) out_there = DeviceVector<std::byte>(out.bytes, each.outputs_there == on_one_gpu ? 0 : own);
    if (has_input) in_there = DeviceVector<std::byte>(in.bytes, each.inputs_there == on_own_gpus ? own : 0);
    if (has_output) request.output.data = moved(request.output.data, out, out_there);
    if (has_output && in_place) request.input.data = moved(request.input.data, out, out_there);
    if (has_input) request.input.data = in_there.data();
  }
  if (in_count == 0) request.input = {};
  const auto input_blocks = sizes_of(shape.input_blocks);
  const auto output_blocks = sizes_of(shape.output_blocks);
  if (is_unequal(each.collective) && shape.input_blocks.parts() == each.members) request.send_counts = input_blocks;
  if (is_unequal(each.collective) && shape.output_blocks.parts() == each.members)
    request.receive_counts = output_blocks;
  std::optional<CaseStream> stream;
  if (has_gpu && each.in_stream) request.stream = stream.emplace(request).get();
  if (stream && each.is_late) give_late(*stream, rank, {in, in_there}, {out, out_there});
  if (each.async)
    Request(world.core(), world.core()->start(request)).wait();
  else
    world.core()->run(request);
  if (stream) stream->wait();
  if (!out_there.empty()) out_there.copy_to(out.bytes);
  std::vector<std::byte> in_after = in.bytes;
  if (!in_there.empty()) in_there.copy_to(in_after);
  if (in_after != given_in || (!has_result(each, rank) && out.bytes != given_out))
    return text("rank ", rank, " wrote what it may not");
  if (!has_result(each, rank)) return {};
  return wrong_element(each, problem, rank, result);
}

std::string RandomCase::table() const {
  if (algorithm == 0) return {};
  const Problem problem = problem_of(*this);
  std::vector<std::string_view> names;
  for (const Algorithm& row : algorithms()) {
    const bool enough = order == Order::fast || row.keeps.balanced || !reduces(collective);
    bool all_fit = row.collective == collective && enough;
    for (int i = 0; i < members && all_fit; ++i) all_fit = fits(row, shape_of(problem, i));
    if (all_fit) names.push_back(row.name);
  }
  std::vector<std::string_view> in_memory = names;
  std::erase_if(in_memory, [](std::string_view name) { return !name.starts_with("node_"); });
  if (in_nodes && !in_memory.empty()) names = in_memory;
  if (names.empty()) return {};
  const std::string_view name = names[algorithm % names.size()];
  const std::size_t segment = can_be_cut(*find_algorithm(collective, name)) ? segment_bytes : 0;
  return text(to_string(collective), " * * * ", name, ' ', segment, " random");
}

std::shared_ptr<const Topology> RandomCase::topology() const {
  if (nodes.empty()) return nullptr;
  return nodes_of(nodes);
}

std::ostream& operator<<(std::ostream& out, const RandomCase& each) {
  out << to_string(each.collective) << " among " << each.members << " of " << each.count << ' ' << to_string(each.type)
      << ' ' << to_string(each.op) << ' ' << to_string(each.order) << " root " << each.root << " table \""
      << each.table() << "\" seed " << each.seed << " on GPUs " << each.inputs_there << ", " << each.outputs_there
      << " in place on " << each.in_place << (each.async ? " async" : "") << (each.in_stream ? " in a stream" : "")
      << (each.is_late ? ", late" : "");
  for (const std::size_t count : each.counts) out << ' ' << count;
  for (const int members : each.nodes) out << " |" << members;
  return out;
}

Bytes RandomCase::to_bytes() const {
  Writer writer;
  writer.put(members).put(collective).put(type).put(op).put(order).put(count).put(root).put(in_place).put(async);
  writer.put(algorithm).put(segment_bytes).put(seed).put(inputs_there).put(outputs_there).put(in_stream).put(is_late);
  writer.put(counts.size());
  for (const std::size_t each : counts) writer.put(each);
  return writer.take();
}

RandomCase RandomCase::from_bytes(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  RandomCase each;
  each.members = reader.get<int>();
  each.collective = reader.get<Collective>();
  each.type = reader.get<DataType>();
  each.op = reader.get<ReduceOp>();
  each.order = reader.get<Order>();
  each.count = reader.get<std::size_t>();
  each.root = reader.get<int>();
  each.in_place = reader.get<std::uint32_t>();
  each.async = reader.get<bool>();
  each.algorithm = reader.get<std::uint32_t>();
  each.segment_bytes = reader.get<std::uint64_t>();
  each.seed = reader.get<std::uint32_t>();
  each.inputs_there = reader.get<std::uint32_t>();
  each.outputs_there = reader.get<std::uint32_t>();
  each.in_stream = reader.get<bool>();
  each.is_late = reader.get<bool>();
  each.counts.resize(reader.get<std::size_t>());
  for (std::size_t& count : each.counts) count = reader.get<std::size_t>();
  return each;
}

rc::Gen<RandomCase> random_case(int members, bool fixed) {
  return rc::gen::exec([members, fixed] {
    RandomCase each;
    each.members = fixed ? members : *rc::gen::inRange(1, members + 1);
    each.collective = static_cast<Collective>(*rc::gen::inRange(0, static_cast<int>(Collective::sendrecv)));
    each.type = static_cast<DataType>(*rc::gen::inRange(0, static_cast<int>(DataType::boolean)));
    const bool complex = each.type == DataType::c64 || each.type == DataType::c128;
    each.op = complex ? *rc::gen::element(ReduceOp::sum, ReduceOp::prod, ReduceOp::avg, ReduceOp::premul_sum)
                      : *rc::gen::element(ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg,
                                          ReduceOp::premul_sum);
    const bool is_partial = each.collective == Collective::scan || each.collective == Collective::exscan;
    if (is_partial && each.op == ReduceOp::avg) each.op = ReduceOp::sum;  // of some of the members it is refused
    each.order = *rc::gen::arbitrary<bool>() ? Order::fast : Order::reproducible;
    each.count = *rc::gen::oneOf(rc::gen::inRange<std::size_t>(0, 40), rc::gen::inRange<std::size_t>(0, 20000));
    each.root = *rc::gen::inRange(0, each.members);
    each.in_place = *rc::gen::oneOf(rc::gen::just(0U), rc::gen::just(~0U), rc::gen::arbitrary<std::uint32_t>());
    each.async = *rc::gen::arbitrary<bool>();
    each.algorithm = *rc::gen::oneOf(rc::gen::just<std::uint32_t>(0), rc::gen::inRange<std::uint32_t>(0, 16));
    each.segment_bytes = *rc::gen::inRange<std::uint64_t>(0, 9) * *rc::gen::inRange<std::uint64_t>(1, 1000);
    each.seed = *rc::gen::arbitrary<std::uint32_t>();
    if (gpu::backend() != nullptr) {
      each.inputs_there = *rc::gen::oneOf(rc::gen::arbitrary<std::uint32_t>(), rc::gen::just(on_one_gpu));
      each.outputs_there = *rc::gen::oneOf(rc::gen::arbitrary<std::uint32_t>(), rc::gen::just(on_one_gpu));
      if (nccl::library() != nullptr && *rc::gen::arbitrary<bool>())
        each.inputs_there = each.outputs_there = on_own_gpus;
      each.in_stream = *rc::gen::arbitrary<bool>();
      each.is_late = *rc::gen::arbitrary<bool>();
    }
    if (is_unequal(each.collective)) {
      const auto n = static_cast<std::size_t>(each.members);
      const std::size_t cells = each.collective == Collective::all_to_all_v ? n * n : n;
      each.counts = *rc::gen::container<std::vector<std::size_t>>(
          cells, rc::gen::oneOf(rc::gen::just<std::size_t>(0), rc::gen::inRange<std::size_t>(0, 500)));
      each.count = 0;
    }
    return each;
  });
}

rc::Gen<RandomCase> random_case_on_nodes(int members) {
  return rc::gen::exec([members] {
    RandomCase each = *random_case(members, false);
    each.algorithm = *rc::gen::inRange<std::uint32_t>(0, 64);
    each.in_nodes = *rc::gen::arbitrary<bool>();
    const int equal = *rc::gen::inRange(0, 5);  // 0: they need not be
    const int on_each = std::max(1, equal);
    each.members = *rc::gen::inRange(1, members / on_each + 1) * on_each;
    for (int left = each.members; left > 0; left -= each.nodes.back())
      each.nodes.push_back(equal > 0 ? on_each : *rc::gen::inRange(1, std::min(left, 4) + 1));
    constexpr std::array there = {Collective::all_reduce,     Collective::reduce,           Collective::broadcast,
                                  Collective::reduce_scatter, Collective::reduce_scatter_v, Collective::all_gather,
                                  Collective::all_gather_v,   Collective::barrier};
    if (each.in_nodes) each.collective = *rc::gen::elementOf(there);
    each.root = *rc::gen::inRange(0, each.members);
    const auto n = static_cast<std::size_t>(each.members);
    each.counts.clear();
    if (!is_unequal(each.collective)) return each;
    each.counts = *rc::gen::container<std::vector<std::size_t>>(each.collective == Collective::all_to_all_v ? n * n : n,
                                                                rc::gen::inRange<std::size_t>(0, 500));
    each.count = 0;
    return each;
  });
}

}  // namespace lockstep::test
