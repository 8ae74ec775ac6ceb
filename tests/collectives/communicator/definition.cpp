// SPDX-License-Identifier: Apache-2.0
// What the collectives are, in the plainest way: see right_outputs.
#include <algorithm>

#include "tests/collectives/execute.hpp"

namespace lockstep::test {
namespace {

using Span = std::span<const Numbers>;

Number fold(Op op, const Numbers& all, std::size_t first, std::size_t last) {
  if (last - first == 1) return all[first];
  std::size_t left = last - first - 1;  // one by one, unless the grouping matters
  if (op == Op::tangle) {
    left = 1;
    while (2 * left < last - first) left *= 2;
  }
  return combine(op, fold(op, all, first, first + left), fold(op, all, first + left, last));
}

// Elements [begin, begin + count) of the first `members` members, combined.
Numbers combined(Op op, Span inputs, std::size_t members, std::size_t begin, std::size_t count) {
  Numbers result(count);
  Numbers column(members);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t member = 0; member < members; ++member) column[member] = inputs[member][begin + i];
    result[i] = fold(op, column, 0, members);
  }
  return result;
}

class Definition {
 public:
  Definition(const Problem& problem, Span inputs, Op op)
      : problem_(problem), inputs_(inputs), op_(op), size_(static_cast<std::size_t>(problem.size)) {}

  Numbers output(std::size_t member) const;

 private:
  std::size_t count(std::size_t block) const {
    return problem_.counts.empty() ? problem_.count : problem_.counts[block];
  }
  std::size_t offset(std::size_t first, std::size_t last) const {
    std::size_t all = 0;
    for (std::size_t block = first; block < last; ++block) all += count(block);
    return all;
  }
  std::size_t offset(std::size_t block) const {
    return problem_.offsets.empty() ? offset(0, block) : problem_.offsets[block];
  }
  Numbers gathered() const {
    Numbers all;
    for (std::size_t block = 0; block < size_; ++block) {
      if (count(block) == 0) continue;
      all.resize(std::max(all.size(), offset(block) + count(block)), untouched);
      std::ranges::copy(inputs_[block], all.begin() + static_cast<std::ptrdiff_t>(offset(block)));
    }
    return all;
  }
  Numbers exchanged(std::size_t to) const {
    Numbers all;
    for (std::size_t from = 0; from < size_; ++from) {
      const bool table = !problem_.counts.empty();
      const std::size_t row = table ? from * size_ : 0;
      const auto begin = inputs_[from].begin() + static_cast<std::ptrdiff_t>(offset(row, row + to));
      all.insert(all.end(), begin, begin + static_cast<std::ptrdiff_t>(count(row + to)));
    }
    return all;
  }

  const Problem& problem_;
  Span inputs_;
  Op op_;
  std::size_t size_;
};

Numbers Definition::output(std::size_t member) const {
  const auto root = static_cast<std::size_t>(problem_.root);
  switch (problem_.collective) {
    case Collective::reduce:
      if (member != root) return {};
      [[fallthrough]];
    case Collective::all_reduce:
      return combined(op_, inputs_, size_, 0, problem_.count);
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      return combined(op_, inputs_, size_, offset(member), count(member));
    case Collective::gather:
    case Collective::gather_v:
      if (member != root) return {};
      [[fallthrough]];
    case Collective::all_gather:
    case Collective::all_gather_v:
      return gathered();
    case Collective::broadcast:
      return inputs_[root];
    case Collective::scatter:
    case Collective::scatter_v: {
      const auto begin = inputs_[root].begin() + static_cast<std::ptrdiff_t>(offset(member));
      return {begin, begin + static_cast<std::ptrdiff_t>(count(member))};
    }
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return exchanged(member);
    case Collective::scan:
      return combined(op_, inputs_, member + 1, 0, problem_.count);
    case Collective::exscan:
      return member == 0 ? Numbers{} : combined(op_, inputs_, member, 0, problem_.count);
    default:
      return {};
  }
}

}  // namespace

std::vector<Numbers> right_outputs(const Problem& problem, std::span<const Numbers> inputs, Op op) {
  const Definition definition(problem, inputs, op);
  std::vector<Numbers> all;
  for (std::size_t member = 0; member < inputs.size(); ++member) all.push_back(definition.output(member));
  return all;
}

}  // namespace lockstep::test
