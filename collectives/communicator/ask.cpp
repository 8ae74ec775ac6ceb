// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/ask.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

constexpr std::size_t largest_count = std::numeric_limits<std::size_t>::max() / 2;

[[noreturn]] void refuse(const Ask& ask, std::string_view what, std::string_view mend) {
  throw Error(Code::usage, text(name_of(ask), ": ", what), mend);
}

// a * b, or the sentence that this is more than any memory.
std::size_t product(const Ask& ask, std::size_t a, std::size_t b) {
  std::size_t all = 0;
  if (__builtin_mul_overflow(a, b, &all) || all > largest_count)
    refuse(ask, text(a, " times ", b, " is more than any memory holds"), "look whether the count was negative once");
  return all;
}

void check_sizes(const Ask& ask, int size) {
  if (ask.wrong != nullptr) refuse(ask, ask.wrong, "give a number of runs that the number of members divides");
  for (const Data* each : {&ask.input, &ask.output}) {
    const auto wrong = complaint(*each, ask.element_bytes, each == &ask.output);
    if (wrong) refuse(ask, wrong->what, wrong->mend);
  }
  if (ask.root < 0 || ask.root >= size) {
    refuse(ask, text("root ", ask.root, ", but the members are 0 to ", size - 1),
           "give a rank of this communicator; ranks of its parent do not count");
  }
}

void need(const Ask& ask, std::string_view which, const Data& data, std::size_t count, std::string_view because) {
  if (data.count == count) return;
  refuse(ask, text("the ", which, " has ", data.count, " elements, ", count, " are needed (", because, ")"),
         "give a span of exactly that part of the buffer");
}

void need_counts(const Ask& ask, std::string_view which, std::span<const std::size_t> counts,
                 std::span<const std::size_t> offsets, int size) {
  const auto members = static_cast<std::size_t>(size);
  if (counts.size() != members)
    refuse(ask, text(counts.size(), " counts for the ", which, ", but there are ", size, " members"),
           "give one count for every member, 0 for those with nothing");
  if (!offsets.empty() && offsets.size() != members)
    refuse(ask, text(offsets.size(), " offsets for the ", which, ", but there are ", size, " members"),
           "give one offset for every member, or none for blocks one after the other");
  std::size_t all = 0;
  for (std::size_t i = 0; i < members; ++i) {
    const std::size_t offset = offsets.empty() ? all : offsets[i];
    if (counts[i] > largest_count || offset > largest_count || (all += counts[i]) > largest_count) {
      refuse(ask, text("count ", counts[i], " at offset ", offset, " for member ", i, " of the ", which),
             "it looks like a negative number that became unsigned; check how it is computed");
    }
  }
  product(ask, all, ask.element_bytes);
}

// Blocks that lie inside the buffer and, where they are written, apart from each other.
void need_room(const Ask& ask, std::string_view which, const Cuts::Cut& cut, const Data& data, bool written) {
  if (cut.extent > data.count)
    refuse(ask, text("the blocks of the ", which, " end at element ", cut.extent, ", it has ", data.count),
           "give a longer buffer, or smaller counts and offsets");
  if (written && cut.overlap)
    refuse(ask, text("two blocks of the ", which, " overlap at element ", *cut.overlap),
           "give offsets that keep the blocks apart");
}

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

struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;
};

Extent extent_of(const Ask& ask, const Data& data) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data.data);
  if (data.contiguous()) return {begin, begin + data.count * ask.element_bytes};
  const std::size_t run = data.count / data.blocks;
  return {begin, begin + ((data.blocks - 1) * data.stride + run) * ask.element_bytes};
}

// Where the input lies in the output (or the output in the input) when the two are one memory.
bool is_in_place(const Ask& ask, const Spec& spec, int index) {
  if (ask.input.data == nullptr || ask.output.data == nullptr) return false;
  const Data& in = ask.input;
  const Data& out = ask.output;
  if (in.blocks != out.blocks || (in.blocks > 1 && (in.stride != out.stride || in.count != out.count))) return false;
  std::size_t input_shift = 0;
  std::size_t output_shift = 0;
  if (spec.takes.parts() > 1 && spec.gives.parts() == 1) input_shift = spec.takes.offset(index);
  if (spec.gives.parts() > 1 && spec.takes.parts() == 1) output_shift = spec.gives.offset(index);
  const auto begin = [&](const Data& data, std::size_t shift) {
    return reinterpret_cast<std::uintptr_t>(data.data) - shift * ask.element_bytes;
  };
  return begin(ask.input, input_shift) == begin(ask.output, output_shift);
}

void check_overlap(const Ask& ask, Spec& spec, int index) {
  spec.in_place = is_in_place(ask, spec, index);
  if (spec.in_place || ask.input.count == 0 || ask.output.count == 0) return;
  // What is strided is read before, or written after, everything else.
  if (!ask.input.contiguous() || !ask.output.contiguous()) return;
  const Extent in = extent_of(ask, ask.input);
  const Extent out = extent_of(ask, ask.output);
  if (in.begin < out.end && out.begin < in.end) {
    refuse(ask, "input and output overlap without being in place",
           "give separate memory, or the form with one buffer (docs/collectives says where the input lies in it)");
  }
}

void cut_equal(const Ask& ask, Spec& spec, int size, int index) {
  const auto members = static_cast<std::size_t>(size);
  const bool root = index == ask.root;
  switch (ask.collective) {
    case Collective::all_gather:
    case Collective::gather:
      spec.count = ask.input.count;
      spec.takes = Blocks::even(spec.count, size);
      if (ask.collective == Collective::all_gather || root)
        need(ask, "output", ask.output, product(ask, spec.count, members), "one input for every member");
      break;
    case Collective::reduce_scatter:
    case Collective::scatter:
      spec.count = ask.output.count;
      spec.gives = Blocks::even(spec.count, size);
      if (ask.collective == Collective::reduce_scatter || root)
        need(ask, "input", ask.input, product(ask, spec.count, members), "one output for every member");
      break;
    case Collective::all_to_all:
      need(ask, "output", ask.output, ask.input.count, "as many as the input");
      if (ask.input.count % members != 0)
        refuse(ask, text(ask.input.count, " elements for ", size, " members"), "give as many for every member");
      spec.count = ask.input.count / members;
      spec.gives = spec.takes = Blocks::even(spec.count, size);
      break;
    case Collective::broadcast:
      spec.count = ask.output.count;
      break;
    case Collective::barrier:
      spec.count = 1;
      break;
    case Collective::reduce:
      spec.count = ask.input.count;
      if (root) need(ask, "output", ask.output, ask.input.count, "as many as the input");
      break;
    default:
      spec.count = ask.input.count;
      need(ask, "output", ask.output, ask.input.count, "as many as the input");
  }
}

void cut_unequal(const Ask& ask, Spec& spec, int size, int index, Cuts& cuts) {
  const bool root = index == ask.root;
  const auto own = static_cast<std::size_t>(index);
  if (ask.collective == Collective::gather_v && !root) {
    spec.takes = cuts.only(size, index, ask.input.count).blocks;
    return;
  }
  if (ask.collective == Collective::scatter_v && !root) {
    spec.gives = cuts.only(size, index, ask.output.count).blocks;
    return;
  }
  const bool gives = ask.collective != Collective::all_gather_v && ask.collective != Collective::gather_v;
  const bool takes = ask.collective == Collective::all_gather_v || ask.collective == Collective::gather_v ||
                     ask.collective == Collective::all_to_all_v;
  if (gives) {
    need_counts(ask, "input", ask.gives, ask.gives_offsets, size);
    const Cuts::Cut& cut = cuts.find(ask.gives, ask.gives_offsets);
    need_room(ask, "input", cut, ask.input, false);
    spec.gives = cut.blocks;
    if (!takes) need(ask, "output", ask.output, ask.gives[own], "this member's count");
  }
  if (takes) {
    need_counts(ask, "output", ask.takes, ask.takes_offsets, size);
    const Cuts::Cut& cut = cuts.find(ask.takes, ask.takes_offsets);
    need_room(ask, "output", cut, ask.output, true);
    spec.takes = cut.blocks;
    if (!gives) need(ask, "input", ask.input, ask.takes[own], "this member's count");
  }
  if (gives && takes && ask.gives[own] != ask.takes[own])
    refuse(ask,
           text("this member gives itself ", ask.gives[own], " elements and takes ", ask.takes[own], " from itself"),
           "give the same count at its own place in both lists");
}

}  // namespace

const Cuts::Cut& Cuts::find(std::span<const std::size_t> counts, std::span<const std::size_t> offsets) {
  const auto same = [&](const Cut& cut) {
    const Blocks& blocks = cut.blocks;
    if (blocks.parts() != static_cast<int>(counts.size())) return false;
    std::size_t packed = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const auto block = static_cast<int>(i);
      if (blocks.count(block) != counts[i] || blocks.offset(block) != (offsets.empty() ? packed : offsets[i]))
        return false;
      packed += counts[i];
    }
    return true;
  };
  const auto found = std::ranges::find_if(all_, same);
  if (found != all_.end()) return *found;
  constexpr std::size_t kept = 64;
  if (all_.size() == kept) all_.erase(all_.begin());
  Blocks blocks = offsets.empty() ? Blocks::packed(counts) : Blocks::placed(offsets, counts);
  const std::size_t extent = blocks.extent();
  const auto overlap = offsets.empty() ? std::nullopt : find_overlap(blocks);
  all_.push_back({std::move(blocks), extent, overlap});
  return all_.back();
}

const Cuts::Cut& Cuts::only(int members, int index, std::size_t count) {
  counts_.assign(static_cast<std::size_t>(members), 0);
  counts_[static_cast<std::size_t>(index)] = count;
  return find(counts_, {});
}

std::string name_of(const Ask& ask) {
  if (ask.origin.line == 0) return std::string(to_string(ask.collective));
  const std::string_view file = ask.origin.file;
  const std::size_t slash = file.find_last_of('/');
  return text(to_string(ask.collective), " (", slash == std::string_view::npos ? file : file.substr(slash + 1), ':',
              ask.origin.line, ')');
}

Spec spec_of(const Ask& ask, int size, int index, Cuts& cuts) {
  check_sizes(ask, size);
  Spec spec{.collective = ask.collective,
            .type = ask.type,
            .op = ask.reduction.op,
            .order = ask.order,
            .element_bytes = ask.element_bytes,
            .root = ask.root,
            .commutes = ask.reduction.commutes};
  if (is_unequal(ask.collective))
    cut_unequal(ask, spec, size, index, cuts);
  else
    cut_equal(ask, spec, size, index);
  if (reduces(ask.collective) && ask.reduction.op == ReduceOp::avg &&
      (ask.collective == Collective::scan || ask.collective == Collective::exscan)) {
    refuse(ask, "avg of a part of the members", "use sum and divide by what you mean");
  }
  check_overlap(ask, spec, index);
  if (may_be_narrow(spec)) spec.wire = ask.wire;
  return spec;
}

}  // namespace lockstep::detail
