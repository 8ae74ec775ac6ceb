// The questions about our own kernels: the host's bits, and the memory's rate.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include "collectives/gpu/kernels.hpp"
#include "probe_gpu.cuh"

namespace gpu_probe {
namespace {

using lockstep::DataType;
using lockstep::ReduceOp;
namespace gpu = lockstep::gpu;

struct Buffers {
  Buffers(int number, std::size_t bytes) {
    for (int i = 0; i < number; ++i) all.push_back(std::make_unique<DeviceMemory>(bytes));
  }
  std::vector<std::unique_ptr<DeviceMemory>> all;
};

// Any bytes, among them NaN, infinities and subnormal numbers.
std::vector<std::uint32_t> any_words(std::size_t count, std::uint32_t seed) {
  std::vector<std::uint32_t> words(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t mixed = (static_cast<std::uint32_t>(i) * 2654435761u + seed) * 2246822519u;
    words[i] = mixed % 7 == 0 ? mixed & 0xff800000u : mixed ^ mixed >> 15;
  }
  return words;
}

// On the GPU and by the host, from the same bytes; how many bytes differ.
std::size_t bytes_that_differ(DataType type, ReduceOp op, bool by_tree, bool is_aligned, Answer& answer) {
  constexpr int parts = 7;
  constexpr std::size_t count = 10'007;
  const std::size_t shift = is_aligned ? 0 : 16;  // bytes: the largest element; vectors are not used then
  const std::size_t bytes = count * lockstep::size_of(type);
  const Buffers there(parts + 1, bytes + shift);
  std::vector<std::vector<std::uint32_t>> here;
  gpu::CombineArguments all{};
  gpu::CombineArguments host{};
  for (int part = 0; part < parts; ++part) {
    here.push_back(any_words((bytes + shift) / 4 + 1, static_cast<std::uint32_t>(part) + 1));
    check(cudaMemcpy(there.all[part]->as(), here.back().data(), bytes + shift, cudaMemcpyHostToDevice));
    all.inputs[part] = there.all[part]->as<char>() + shift;
    host.inputs[part] = reinterpret_cast<char*>(here.back().data()) + shift;
    all.factors[part] = host.factors[part] = 0.5 + part;
  }
  std::vector<std::uint64_t> right((bytes + shift) / 8 + 3);
  host.outputs[0] = reinterpret_cast<char*>(right.data());
  all.outputs[0] = there.all[parts]->as<char>() + shift;
  for (gpu::CombineArguments* each : {&all, &host}) {
    each->input_count = parts;
    each->output_count = 1;
    each->count = count;
    each->op = op;
    each->by_tree = by_tree;
    each->scales = op == ReduceOp::premul_sum;
    each->divisor = op == ReduceOp::avg ? parts : 0;
  }
  all.is_aligned = is_aligned;
  check(gpu::launch(type, all, nullptr));
  gpu::with_format(type, [&]<class F>(F) { gpu::combine_thread<F>(host, 0, 1); });
  std::vector<char> found(bytes);
  check(cudaMemcpy(found.data(), all.outputs[0], bytes, cudaMemcpyDeviceToHost));
  const char* const expected = reinterpret_cast<const char*>(right.data());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < bytes; ++i) wrong += found[i] != expected[i];
  if (wrong > 0)
    answer.detail(text(lockstep::to_string(op), " of ", lockstep::to_string(type), by_tree ? ", by the tree" : "",
                       is_aligned ? "" : ", not aligned", ": ", wrong, " bytes differ"));
  return wrong;
}

// Three pieces into one, or one into three, on the GPU and by the host; how many bytes differ.
std::size_t packed_bytes_that_differ(DataType from, DataType to, bool packs, std::size_t shift, Answer& answer) {
  constexpr std::array<std::size_t, 3> counts = {1, 10'007, 4'096};
  const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const std::size_t in_bytes = total * lockstep::size_of(from);
  const std::size_t out_bytes = total * lockstep::size_of(to);
  // Addresses of both sides are equally far from what vectors need; pieces follow each other on theirs.
  const DeviceMemory in(in_bytes + shift);
  const DeviceMemory out(out_bytes + shift);
  std::vector<std::uint32_t> given = any_words((in_bytes + shift) / 4 + 1, 5);
  std::vector<std::uint64_t> right((out_bytes + shift) / 8 + 1);
  check(cudaMemcpy(in.as(), given.data(), in_bytes + shift, cudaMemcpyHostToDevice));
  const auto packing = [&](std::byte* source, std::byte* target) {
    gpu::PackArguments all;
    all.in_pieces = packs ? from : to;
    all.in_whole = packs ? to : from;
    all.whole = packs ? target : source;
    all.scales = true;
    all.divisor = 3;
    std::byte* piece = packs ? source : target;
    all.begins[0] = 0;
    for (const std::size_t count : counts) {
      all.pieces[all.count] = piece;
      all.factors[all.count] = 0.75 - all.count;
      all.begins[all.count + 1] = all.begins[all.count] + count * lockstep::size_of(all.in_whole);
      piece += count * lockstep::size_of(all.in_pieces);
      ++all.count;
    }
    return all;
  };
  std::size_t wrong = 0;
  for (const bool changes : {false, true}) {
    gpu::PackArguments there = packing(in.as<std::byte>() + shift, out.as<std::byte>() + shift);
    gpu::PackArguments here =
        packing(reinterpret_cast<std::byte*>(given.data()) + shift, reinterpret_cast<std::byte*>(right.data()) + shift);
    for (gpu::PackArguments* each : {&there, &here}) {
      each->scales = changes;
      each->divisor = changes ? 3 : 0;
    }
    check(gpu::launch(there, packs, nullptr));
    require(gpu::with_copier(here, packs, [&]<class Copier>(Copier) { gpu::pack_thread<Copier>(here, packs, 0, 1); }),
            text("no way from ", lockstep::to_string(from), " to ", lockstep::to_string(to)));
    std::vector<char> found(out_bytes);
    check(cudaMemcpy(found.data(), out.as<char>() + shift, out_bytes, cudaMemcpyDeviceToHost));
    const char* const expected = reinterpret_cast<const char*>(right.data()) + shift;
    for (std::size_t i = 0; i < out_bytes; ++i) wrong += found[i] != expected[i];
  }
  if (wrong > 0)
    answer.detail(text(packs ? "packing " : "unpacking ", lockstep::to_string(from), " to ", lockstep::to_string(to),
                       ", shifted by ", shift, ": ", wrong, " bytes differ"));
  return wrong;
}

// Every type as itself, and the floats that become each other.
void count_packings(int& cells, int& wrong, Answer& answer) {
  std::vector<std::array<DataType, 2>> sides;
  for (const DataType other : {DataType::f16, DataType::bf16, DataType::f64}) {
    sides.push_back({DataType::f32, other});
    sides.push_back({other, DataType::f32});
  }
  for (int type = 0; type < lockstep::data_type_count - 1; ++type) {
    const auto each = static_cast<DataType>(type);
    if (lockstep::is_defined(ReduceOp::avg, each)) sides.push_back({each, each});
  }
  for (const auto& [from, to] : sides) {
    for (const bool packs : {true, false}) {
      for (const std::size_t shift : {0, 1, 4, 8}) {
        ++cells;
        wrong += packed_bytes_that_differ(from, to, packs, shift, answer) > 0;
      }
    }
  }
}

void ask_bits(Answer& answer) {
  int cells = 0;
  int wrong = 0;
  for (int type = 0; type < lockstep::data_type_count - 1; ++type) {
    for (int op = 0; op < lockstep::reduce_op_count - 1; ++op) {
      if (!lockstep::is_defined(static_cast<ReduceOp>(op), static_cast<DataType>(type))) continue;
      for (const bool by_tree : {false, true}) {
        for (const bool is_aligned : {true, false}) {
          ++cells;
          wrong += bytes_that_differ(static_cast<DataType>(type), static_cast<ReduceOp>(op), by_tree, is_aligned,
                                     answer) > 0;
        }
      }
    }
  }
  count_packings(cells, wrong, answer);
  require(wrong == 0, text(wrong, " of ", cells, " combinations have other bits than the host's"));
  answer.say(text("yes, in all of ", cells,
                  " combinations of type, operation, order and alignment, and of types packed and unpacked"));
}

// So many members' buffers become the sum of all, in all of them; beside copies of as many bytes, in turns.
void compare_rates(DataType type, int members, std::size_t size, Answer& answer) {
  const Buffers buffers(members, size);
  gpu::CombineArguments all{};
  for (int i = 0; i < members; ++i) {
    check(cudaMemset(buffers.all[i]->as(), 0, size));
    all.inputs[i] = all.outputs[i] = buffers.all[i]->as();
  }
  all.input_count = all.output_count = members;
  all.count = size / lockstep::size_of(type);
  all.is_aligned = true;
  double ours = 1e9;
  double copy = 1e9;
  for (int turn = 0; turn < 3; ++turn) {
    ours = std::min(ours, median_seconds([&] { check(gpu::launch(type, all, nullptr)); }));
    copy =
        std::min(copy, median_seconds([&] {
                   check(cudaMemcpyAsync(buffers.all[0]->as(), buffers.all[1]->as(), size, cudaMemcpyDeviceToDevice));
                 }));
  }
  const std::string what = text(lockstep::to_string(type), ", ", members, " members of ", size >> 20, " MiB");
  answer.figure(text(what, ", bytes read and written"), 2.0 * members * static_cast<double>(size) / ours / 1e9, "GB/s");
  answer.figure(text(what, ", share of a copy's rate"), members * copy / ours, "");
}

void ask_combine_rate(Answer& answer) {
  const std::size_t size = std::min<std::size_t>(large_size() / 4, 256 << 20);
  for (const DataType type : {DataType::f32, DataType::bf16}) {
    for (const int members : {2, 4, 8}) compare_rates(type, members, size, answer);
  }
  answer.say(
      text("each buffer of ", size >> 20, " MiB, read once and written once; 0.9 of a copy must be, 0.97 is the aim"));
}

// The gradients of ResNet-50, in floats: convolutions, their norms' scales and shifts, the last layer.
std::vector<std::size_t> resnet_50() {
  std::vector<std::size_t> sizes;
  const auto convolution = [&](std::size_t in, std::size_t out, std::size_t width) {
    sizes.insert(sizes.end(), {in * out * width * width, out, out});
  };
  convolution(3, 64, 7);
  std::size_t in = 64;
  std::size_t middle = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      convolution(in, middle, 1);
      convolution(middle, middle, 3);
      convolution(middle, 4 * middle, 1);
      if (block == 0) convolution(in, 4 * middle, 1);
      in = 4 * middle;
    }
    middle *= 2;
  }
  sizes.insert(sizes.end(), {2048 * 1000, 1000});
  return sizes;
}

// Of the sizes that gradients have; some are zero.
std::vector<float> gradients(std::size_t count) {
  std::minstd_rand random(1);
  std::normal_distribution<float> drawn(0, 1e-3F);
  constexpr std::size_t period = 4099;
  std::vector<float> all(std::min(count, period));
  for (float& each : all) each = random() % 4 == 0 ? 0 : drawn(random);
  all.resize(count);
  for (std::size_t i = period; i < count; ++i) all[i] = all[i - period];
  return all;
}

void ask_pack_rate(Answer& answer) {
  const std::vector<std::size_t> sizes = resnet_50();
  const std::size_t bytes = 4 * std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  const DeviceMemory whole(bytes);
  const DeviceMemory other(bytes);
  std::vector<std::unique_ptr<DeviceMemory>> tensors;
  std::vector<gpu::PackArguments> launches;
  std::size_t at = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i % gpu::most_pieces == 0) {
      launches.emplace_back();
      launches.back().whole = whole.as<std::byte>() + at;
      launches.back().begins[0] = 0;
    }
    gpu::PackArguments& last = launches.back();
    tensors.push_back(std::make_unique<DeviceMemory>(4 * sizes[i]));
    fill(tensors.back()->as(), 4 * sizes[i], static_cast<std::uint32_t>(i));
    last.pieces[last.count] = tensors.back()->as<std::byte>();
    last.begins[last.count + 1] = last.begins[last.count] + 4 * sizes[i];
    ++last.count;
    at += 4 * sizes[i];
  }
  const auto run = [&](bool packs) {
    for (const gpu::PackArguments& each : launches) check(gpu::launch(each, packs, nullptr));
  };
  const auto run_dividing = [&](int members) {
    for (gpu::PackArguments each : launches) {
      each.in_pieces = each.in_whole = DataType::f32;
      each.divisor = members;
      check(gpu::launch(each, false, nullptr));
    }
  };
  const double pack = median_seconds([&] { run(true); });
  std::size_t wrong = 0;
  at = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    wrong += count_wrong(whole.as<std::byte>() + at, 4 * sizes[i], static_cast<std::uint32_t>(i));
    at += 4 * sizes[i];
  }
  require(wrong == 0, text(wrong, " words are wrong after packing"));
  const double unpack = median_seconds([&] { run(false); });
  const double copy =
      median_seconds([&] { check(cudaMemcpyAsync(other.as(), whole.as(), bytes, cudaMemcpyDeviceToDevice)); });
  answer.figure("pack, share of a copy's rate", copy / pack, "");
  answer.figure("unpack, share of a copy's rate", copy / unpack, "");
  const auto share_of_dividing = [&](const char* what, int members) {
    answer.figure(text("unpack and divide by ", members, what), copy / median_seconds([&] { run_dividing(members); }),
                  "");
  };
  // Bits that are drawn are hardly ever what gradients are: those are neither infinite nor as small as floats may be.
  // Not one of the shares that are asked for.
  share_of_dividing(" of any bits, beside a copy's rate", 3);
  const std::vector<float> values = gradients(bytes / sizeof(float));
  check(cudaMemcpy(whole.as(), values.data(), bytes, cudaMemcpyHostToDevice));
  for (const int members : {3, 8}) share_of_dividing(", share of a copy's rate", members);
  answer.say(text(sizes.size(), " tensors of ", bytes >> 20, " MiB in ", launches.size(),
                  " launches; 0.8 of a copy must be, 0.95 is the aim"));
}

// As many floats of 16 bits become floats of 32 bits on the way into a package, and again 16 on the way out.
void ask_recast(Answer& answer) {
  const std::size_t bytes = std::min<std::size_t>(large_size() / 4, 128 << 20);
  const DeviceMemory pieces(bytes);
  const DeviceMemory whole(2 * bytes);
  check(cudaMemset(pieces.as(), 0, bytes));
  const auto packing = [&](DataType type, DataType as, bool packs) {
    gpu::PackArguments all;
    all.in_pieces = type;
    all.in_whole = as;
    all.whole = whole.as<std::byte>();
    all.pieces[0] = pieces.as<std::byte>();
    all.begins[0] = 0;
    all.begins[1] = bytes / lockstep::size_of(type) * lockstep::size_of(as);
    all.count = 1;
    return median_seconds([&] { check(gpu::launch(all, packs, nullptr)); });
  };
  for (const DataType type : {DataType::f16, DataType::bf16}) {
    for (const bool packs : {true, false}) {
      const double as_it_is = packing(type, type, packs);
      answer.figure(text(packs ? "pack " : "unpack ", lockstep::to_string(type), " as f32, by the time as it is"),
                    packing(type, DataType::f32, packs) / as_it_is, "");
    }
  }
  answer.say(text(bytes >> 20, " MiB of 16-bit floats; 1.5 times as many bytes are read and written"));
}

// Parts that lie in pinned memory of the host, as in the slots of a node: read there by the kernel that adds them,
// beside a copy of one part, which is what goes up when processors add.
void ask_pinned(Answer& answer) {
  constexpr std::size_t size = 64 << 20;
  constexpr int most = 8;
  const DeviceMemory out(size);
  void* pinned = nullptr;
  check(cudaMallocHost(&pinned, size * most));
  std::memset(pinned, 0, size * most);
  const double copy =
      median_seconds([&] { check(cudaMemcpyAsync(out.as(), pinned, size, cudaMemcpyHostToDevice, nullptr)); });
  answer.figure("one part copied up", static_cast<double>(size) / copy / 1e9, "GB/s");
  for (const int members : {2, 4, most}) {
    gpu::CombineArguments all{};
    for (int i = 0; i < members; ++i) all.inputs[i] = static_cast<char*>(pinned) + i * size;
    all.outputs[0] = out.as();
    all.input_count = members;
    all.output_count = 1;
    all.count = size / sizeof(float);
    all.is_aligned = true;
    const double adding = median_seconds([&] { check(gpu::launch(DataType::f32, all, nullptr)); });
    answer.figure(text(members, " parts added where they lie, bytes read"),
                  members * static_cast<double>(size) / adding / 1e9, "GB/s");
    answer.figure(text(members, " parts added, by the time of one copy"), adding / copy, "");
  }
  check(cudaFreeHost(pinned));
  answer.say(text("parts of ", size >> 20,
                  " MiB; adding on the GPU wins where it takes less than the copy and the processors"));
}

constexpr std::array questions{
    Question{"ours_bits", "do our kernels have the host's bits?", Needs::gpu, ask_bits, nullptr, 120},
    Question{"ours_combine", "do our reductions reach the memory's rate?", Needs::gpu, ask_combine_rate},
    Question{"ours_pack", "does packing reach a copy's rate?", Needs::gpu, ask_pack_rate},
    Question{"ours_recast", "what does another width cost in packing?", Needs::gpu, ask_recast},
    Question{"ours_pinned", "can the GPU add what lies in pinned memory?", Needs::gpu, ask_pinned},
};

}  // namespace

std::span<const Question> our_questions() { return questions; }

}  // namespace gpu_probe
