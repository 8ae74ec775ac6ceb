// SPDX-License-Identifier: Apache-2.0
// Checks a member's request, and turns it into a Spec for the planner.
#include "collectives/communicator/call_request.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "collectives/communicator/partition_cache.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

// Bounds counts. A negative number that became unsigned is above it.
constexpr std::size_t largest_count = std::numeric_limits<std::size_t>::max() / 2;

// Throws Error usage that names the call and its line.
[[noreturn]] void refuse(const CallRequest& request, std::string_view what, std::string_view remedy) {
  throw Error(Code::usage, text(name_of(request), ": ", what), remedy);
}

// Returns a * b. Throws Error usage if that exceeds any memory.
std::size_t product(const CallRequest& request, std::size_t a, std::size_t b) {
  std::size_t all = 0;
  if (__builtin_mul_overflow(a, b, &all) || all > largest_count)
    refuse(request, text(a, " times ", b, " is more than any memory holds"), "check that the count was never negative");
  return all;
}

// Checks the buffers and the root by themselves.
void check_sizes(const CallRequest& request, int size) {
  if (request.error != nullptr)
    refuse(request, request.error, "give a number of runs that the number of members divides");
  for (const BufferView* each : {&request.input, &request.output}) {
    const auto error = buffer_error(*each, request.element_bytes, each == &request.output);
    if (error) refuse(request, error->what, error->remedy);
  }
  if (request.root < 0 || request.root >= size) {
    refuse(request, text("root ", request.root, ", but the members are 0 to ", size - 1),
           "give a rank of this communicator; ranks of its parent do not count");
  }
}

// Throws Error usage unless the buffer has exactly `count` elements; `because` names the origin of that number.
void need(const CallRequest& request, std::string_view which, const BufferView& data, std::size_t count,
          std::string_view because) {
  if (data.count == count) return;
  refuse(request, text("the ", which, " has ", data.count, " elements, ", count, " are needed (", because, ")"),
         "give a span of exactly that part of the buffer");
}

// Checks the counts and offsets of an unequal form: one for each member, and a total that memory can hold.
void need_counts(const CallRequest& request, std::string_view which, std::span<const std::size_t> counts,
                 std::span<const std::size_t> offsets, int size) {
  const auto members = static_cast<std::size_t>(size);
  if (counts.size() != members)
    refuse(request, text(counts.size(), " counts for the ", which, ", but there are ", size, " members"),
           "give one count for every member, 0 for those with nothing");
  if (!offsets.empty() && offsets.size() != members)
    refuse(request, text(offsets.size(), " offsets for the ", which, ", but there are ", size, " members"),
           "give one offset for every member, or none for blocks one after the other");
  std::size_t all = 0;
  for (std::size_t i = 0; i < members; ++i) {
    const std::size_t offset = offsets.empty() ? all : offsets[i];
    if (counts[i] > largest_count || offset > largest_count || (all += counts[i]) > largest_count) {
      refuse(request, text("count ", counts[i], " at offset ", offset, " for member ", i, " of the ", which),
             "it looks like a negative number that became unsigned; check how it is computed");
    }
  }
  product(request, all, request.element_bytes);
}

// Checks that blocks lie inside the buffer, and that written blocks don't overlap.
void need_room(const CallRequest& request, std::string_view which, const PartitionCache::BlockPartition& cut,
               const BufferView& data, bool written) {
  if (cut.extent > data.count)
    refuse(request, text("the blocks of the ", which, " end at element ", cut.extent, ", it has ", data.count),
           "give a longer buffer, or smaller counts and offsets");
  if (written && cut.overlap)
    refuse(request, text("two blocks of the ", which, " overlap at element ", *cut.overlap),
           "give offsets that keep the blocks apart");
}

// Returns the first element that is in two blocks.
std::optional<std::size_t> find_overlap(const Blocks& blocks) {
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (int i = 0; i < blocks.parts(); ++i) {
    if (blocks.count(i) > 0) ranges.emplace_back(blocks.offset(i), blocks.end(i));
  }
  std::ranges::sort(ranges);
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) return ranges[i].first;
  }
  return std::nullopt;
}

// Is a range of addresses.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;
};

// Returns the addresses between the first and the last element, with the gaps of a strided buffer.
Extent extent_of(const CallRequest& request, const BufferView& data) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data.data);
  if (data.contiguous()) return {begin, begin + data.count * request.element_bytes};
  const std::size_t run = data.count / data.blocks;
  return {begin, begin + ((data.blocks - 1) * data.stride + run) * request.element_bytes};
}

// True if the input lies at its place in the output, or the output in the input, as one memory.
bool is_in_place(const CallRequest& request, const Spec& spec, int index) {
  if (request.input.data == nullptr || request.output.data == nullptr) return false;
  const BufferView& in = request.input;
  const BufferView& out = request.output;
  if (in.blocks != out.blocks || (in.blocks > 1 && (in.stride != out.stride || in.count != out.count))) return false;
  std::size_t input_shift = 0;
  std::size_t output_shift = 0;
  if (spec.output_blocks.parts() > 1 && spec.input_blocks.parts() == 1) input_shift = spec.output_blocks.offset(index);
  if (spec.input_blocks.parts() > 1 && spec.output_blocks.parts() == 1) output_shift = spec.input_blocks.offset(index);
  const auto begin = [&](const BufferView& data, std::size_t shift) {
    return reinterpret_cast<std::uintptr_t>(data.data) - shift * request.element_bytes;
  };
  return begin(request.input, input_shift) == begin(request.output, output_shift);
}

// Finds out if the call is in place. Other overlaps are refused, because a schedule may read an element after it was
// written.
void check_overlap(const CallRequest& request, Spec& spec, int index) {
  spec.in_place = is_in_place(request, spec, index);
  if (spec.in_place || request.input.count == 0 || request.output.count == 0) return;
  // Strided data is copied: it is read before everything else, or written after it.
  if (!request.input.contiguous() || !request.output.contiguous()) return;
  const Extent in = extent_of(request, request.input);
  const Extent out = extent_of(request, request.output);
  if (in.begin < out.end && out.begin < in.end) {
    refuse(request, "input and output overlap without being in place",
           "give separate memory, or the form with one buffer (docs/collectives says where the input lies in it)");
  }
}

// Sets the count and the blocks of a call in which all members have equal counts.
void cut_equal(const CallRequest& request, Spec& spec, int size, int index) {
  const auto members = static_cast<std::size_t>(size);
  const bool root = index == request.root;
  switch (request.collective) {
    case Collective::all_gather:
    case Collective::gather:
      spec.count = request.input.count;
      spec.output_blocks = Blocks::even(spec.count, size);
      if (request.collective == Collective::all_gather || root)
        need(request, "output", request.output, product(request, spec.count, members), "one input for every member");
      break;
    case Collective::reduce_scatter:
    case Collective::scatter:
      spec.count = request.output.count;
      spec.input_blocks = Blocks::even(spec.count, size);
      if (request.collective == Collective::reduce_scatter || root)
        need(request, "input", request.input, product(request, spec.count, members), "one output for every member");
      break;
    case Collective::all_to_all:
      need(request, "output", request.output, request.input.count, "as many as the input");
      if (request.input.count % members != 0)
        refuse(request, text(request.input.count, " elements for ", size, " members"), "give as many for every member");
      spec.count = request.input.count / members;
      spec.input_blocks = spec.output_blocks = Blocks::even(spec.count, size);
      break;
    case Collective::broadcast:
      spec.count = request.output.count;
      break;
    case Collective::barrier:
      spec.count = 1;
      break;
    case Collective::reduce:
      spec.count = request.input.count;
      if (root) need(request, "output", request.output, request.input.count, "as many as the input");
      break;
    default:
      spec.count = request.input.count;
      need(request, "output", request.output, request.input.count, "as many as the input");
  }
}

// Sets the blocks of a call with counts. In gather_v and scatter_v only the root knows all of them.
void cut_unequal(const CallRequest& request, Spec& spec, int size, int index, PartitionCache& partitions) {
  const bool root = index == request.root;
  const auto own = static_cast<std::size_t>(index);
  if (request.collective == Collective::gather_v && !root) {
    spec.output_blocks = partitions.only(size, index, request.input.count).blocks;
    return;
  }
  if (request.collective == Collective::scatter_v && !root) {
    spec.input_blocks = partitions.only(size, index, request.output.count).blocks;
    return;
  }
  const bool has_input_counts =
      request.collective != Collective::all_gather_v && request.collective != Collective::gather_v;
  const bool has_output_counts = request.collective == Collective::all_gather_v ||
                                 request.collective == Collective::gather_v ||
                                 request.collective == Collective::all_to_all_v;
  if (has_input_counts) {
    need_counts(request, "input", request.send_counts, request.send_offsets, size);
    const PartitionCache::BlockPartition& cut = partitions.find(request.send_counts, request.send_offsets);
    need_room(request, "input", cut, request.input, false);
    spec.input_blocks = cut.blocks;
    if (!has_output_counts) need(request, "output", request.output, request.send_counts[own], "this member's count");
  }
  if (has_output_counts) {
    need_counts(request, "output", request.receive_counts, request.receive_offsets, size);
    const PartitionCache::BlockPartition& cut = partitions.find(request.receive_counts, request.receive_offsets);
    need_room(request, "output", cut, request.output, true);
    spec.output_blocks = cut.blocks;
    if (!has_input_counts) need(request, "input", request.input, request.receive_counts[own], "this member's count");
  }
  if (has_input_counts && has_output_counts && request.send_counts[own] != request.receive_counts[own])
    refuse(request,
           text("this member gives itself ", request.send_counts[own], " elements and takes ",
                request.receive_counts[own], " from itself"),
           "give the same count at its own place in both lists");
}

}  // namespace

bool are_cut_as(const Blocks& blocks, std::span<const std::size_t> counts, std::span<const std::size_t> offsets) {
  if (blocks.parts() != static_cast<int>(counts.size())) return false;
  if (!offsets.empty() && offsets.size() != counts.size()) return false;
  std::size_t packed = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto block = static_cast<int>(i);
    if (blocks.count(block) != counts[i] || blocks.offset(block) != (offsets.empty() ? packed : offsets[i]))
      return false;
    packed += counts[i];
  }
  return true;
}

const PartitionCache::BlockPartition& PartitionCache::find(std::span<const std::size_t> counts,
                                                           std::span<const std::size_t> offsets) {
  const auto found =
      std::ranges::find_if(all_, [&](const BlockPartition& cut) { return are_cut_as(cut.blocks, counts, offsets); });
  if (found != all_.end()) return *found;
  constexpr std::size_t kept = 64;
  if (all_.size() == kept) all_.erase(all_.begin());
  Blocks blocks = offsets.empty() ? Blocks::packed(counts) : Blocks::placed(offsets, counts);
  const std::size_t extent = blocks.extent();
  const auto overlap = offsets.empty() ? std::nullopt : find_overlap(blocks);
  all_.push_back({std::move(blocks), extent, overlap});
  return all_.back();
}

const PartitionCache::BlockPartition& PartitionCache::only(int members, int index, std::size_t count) {
  counts_.assign(static_cast<std::size_t>(members), 0);
  counts_[static_cast<std::size_t>(index)] = count;
  return find(counts_, {});
}

std::string name_of(const CallRequest& request) {
  if (request.origin.line == 0) return std::string(to_string(request.collective));
  const std::string_view file = request.origin.file;
  const std::size_t slash = file.find_last_of('/');
  return text(to_string(request.collective), " (", slash == std::string_view::npos ? file : file.substr(slash + 1), ':',
              request.origin.line, ')');
}

Spec spec_of(const CallRequest& request, int size, int index, PartitionCache& partitions) {
  check_sizes(request, size);
  const std::uint64_t function = request.reduction.user ? request.reduction.user->fingerprint : 0;
  Spec spec{.collective = request.collective,
            .type = request.type,
            .op = request.reduction.op,
            .order = request.order,
            .element_bytes = request.element_bytes,
            .root = request.root,
            .commutes = request.reduction.commutes,
            .fingerprints = {.layout = request.layout, .function = function}};
  if (is_unequal(request.collective))
    cut_unequal(request, spec, size, index, partitions);
  else
    cut_equal(request, spec, size, index);
  if (reduces(request.collective) && request.reduction.op == ReduceOp::avg &&
      (request.collective == Collective::scan || request.collective == Collective::exscan)) {
    refuse(request, "avg of a part of the members", "use sum, then divide in the program");
  }
  check_overlap(request, spec, index);
  if (may_be_narrow(spec)) spec.wire = request.wire;
  return spec;
}

}  // namespace lockstep::detail
