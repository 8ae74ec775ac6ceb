// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/node/node_case.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "collectives/types.hpp"
#include "topology/base/shared_memory.hpp"

namespace lockstep::test {
namespace {

constexpr std::int32_t untouched = -7;

std::int32_t value(int member, std::size_t i) {
  return static_cast<std::int32_t>((member + 1) * 1000 + static_cast<std::int32_t>(i % 613));
}

std::vector<std::int32_t> sums(int first, int last, std::size_t count) {
  std::vector<std::int32_t> all(count);
  for (int member = first; member < last; ++member) {
    for (std::size_t i = 0; i < count; ++i) all[i] += value(member, i);
  }
  return all;
}

template <class T>
std::vector<T> part(const std::vector<T>& of, std::size_t begin, std::size_t count) {
  return {of.begin() + static_cast<std::ptrdiff_t>(begin), of.begin() + static_cast<std::ptrdiff_t>(begin + count)};
}

void append(std::vector<std::int32_t>& all, const std::vector<std::int32_t>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Unequal on purpose; some members have nothing.
std::vector<std::size_t> unequal(int members, std::size_t count) {
  std::vector<std::size_t> all;
  for (int i = 0; i < members; ++i) all.push_back(i % 3 == 1 ? 0 : count + static_cast<std::size_t>(i) * 5);
  return all;
}

Case all_to_all_case(Collective collective, int members, std::size_t count) {
  Case one{.spec = {.collective = collective, .type = DataType::i32, .element_bytes = 4}};
  const auto n = static_cast<std::size_t>(members);
  for (int from = 0; from < members; ++from) {
    std::vector<std::size_t> row;
    for (int to = 0; to < members; ++to)
      row.push_back(collective == Collective::all_to_all ? count
                                                         : (static_cast<std::size_t>(3 * from + to) % 4) * count);
    one.counts.push_back(row);
    one.input.push_back(values(from, std::accumulate(row.begin(), row.end(), std::size_t{0})));
  }
  one.output.resize(n);
  one.expected.resize(n);
  for (std::size_t to = 0; to < n; ++to) {
    for (std::size_t from = 0; from < n; ++from) {
      const auto& row = one.counts[from];
      const std::size_t before =
          std::accumulate(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(to), std::size_t{0});
      append(one.expected[to], part(one.input[from], before, row[to]));
    }
    one.output[to].assign(one.expected[to].size(), untouched);
  }
  one.spec.count = count;
  return one;
}

}  // namespace

std::vector<std::unique_ptr<node::Room>> rooms(int members, bool one_process, const node::ProcessMemoryReader& reader) {
  const auto memory = SharedMemory::make(node::RoomMemory::bytes_for(members), false).memory();
  std::vector<std::unique_ptr<node::Room>> all;
  for (int i = 0; i < members; ++i)
    all.push_back(std::make_unique<node::Room>(memory, i, members, one_process, reader));
  return all;
}

std::vector<std::int32_t> values(int member, std::size_t count) {
  std::vector<std::int32_t> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = value(member, i);
  return all;
}

Case case_of(Collective collective, int members, std::size_t count, int root) {
  if (collective == Collective::all_to_all || collective == Collective::all_to_all_v)
    return all_to_all_case(collective, members, count);
  Case one{.spec = {.collective = collective, .type = DataType::i32, .element_bytes = 4, .count = count, .root = root}};
  std::vector<std::size_t> counts(static_cast<std::size_t>(members), count);
  if (is_unequal(collective)) counts = unequal(members, count);
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  std::vector<std::int32_t> gathered;
  for (int i = 0; i < members; ++i) append(gathered, values(i, counts[static_cast<std::size_t>(i)]));
  std::size_t before = 0;
  for (int i = 0; i < members; ++i) {
    const std::size_t own = counts[static_cast<std::size_t>(i)];
    std::vector<std::int32_t> in = values(i, count);
    std::vector<std::int32_t> result;
    switch (collective) {
      case Collective::all_reduce:
        result = sums(0, members, count);
        break;
      case Collective::reduce:
        if (i == root) result = sums(0, members, count);
        break;
      case Collective::scan:
        result = sums(0, i + 1, count);
        break;
      case Collective::exscan:
        result = i == 0 ? std::vector<std::int32_t>(count, untouched) : sums(0, i, count);
        break;
      case Collective::broadcast:
        if (i != root) in.clear();
        result = values(root, count);
        break;
      case Collective::reduce_scatter:
      case Collective::reduce_scatter_v:
        in = values(i, total);
        result = part(sums(0, members, total), before, own);
        break;
      case Collective::scatter:
      case Collective::scatter_v:
        in = i == root ? values(root, total) : std::vector<std::int32_t>();
        result = part(values(root, total), before, own);
        break;
      case Collective::all_gather:
      case Collective::all_gather_v:
        in = values(i, own);
        result = gathered;
        break;
      case Collective::gather:
      case Collective::gather_v:
        in = values(i, own);
        if (i == root) result = gathered;
        break;
      default:
        in.clear();
    }
    before += own;
    one.input.push_back(in);
    one.output.emplace_back(result.size(), untouched);
    one.expected.push_back(result);
    one.counts.push_back(counts);
  }
  return one;
}

Plan plan_of(const Case& one, int member, int members) {
  Plan plan{.spec = one.spec, .size = members, .index = member, .algorithm = "node", .in_node = true};
  const auto m = static_cast<std::size_t>(member);
  plan.input_count = one.input[m].size();
  plan.output_count = one.output[m].size();
  const Collective collective = one.spec.collective;
  const bool root = member == one.spec.root;
  std::vector<std::size_t> row = one.counts[m];
  if (collective == Collective::all_to_all_v || collective == Collective::all_to_all) {
    plan.spec.input_blocks = Blocks::packed(row);
    for (std::size_t from = 0; from < one.counts.size(); ++from) row[from] = one.counts[from][m];
    plan.spec.output_blocks = Blocks::packed(row);
    return plan;
  }
  if ((collective == Collective::gather_v || collective == Collective::scatter_v) && !root) {
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = i == m ? row[i] : 0;
  }
  switch (collective) {
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
    case Collective::scatter:
    case Collective::scatter_v:
      plan.spec.input_blocks = Blocks::packed(row);
      break;
    case Collective::all_gather:
    case Collective::all_gather_v:
    case Collective::gather:
    case Collective::gather_v:
      plan.spec.output_blocks = Blocks::packed(row);
      break;
    default:
      break;
  }
  return plan;
}

void run(std::vector<std::unique_ptr<node::Room>>& all, Case& one, const node::Tuning& tuning, std::mt19937& random) {
  const auto members = static_cast<int>(all.size());
  std::vector<Member> crew(all.size());
  for (int i = 0; i < members; ++i) {
    const auto m = static_cast<std::size_t>(i);
    crew[m].plan = plan_of(one, i, members);
    if (one.spec.in_place) {
      ASSERT_EQ(one.input[m].size(), one.output[m].size());
      one.output[m] = one.input[m];
    }
    crew[m].call = {.plan = {std::shared_ptr<void>(), &crew[m].plan},
                    .input = one.spec.in_place ? one.output[m].data() : one.input[m].data(),
                    .output = one.output[m].data(),
                    .kernel = find_kernel(DataType::i32, ReduceOp::sum)};
  }
  std::vector<bool> begun(all.size());
  std::size_t left = all.size();
  for (std::size_t turns = 0; left > 0; ++turns) {
    ASSERT_LT(turns, 10'000'000U) << "nobody gets on";
    const std::size_t m = random() % all.size();
    Member& member = crew[m];
    if (begun[m] && member.work.is_done()) continue;
    if (!begun[m])
      member.work.begin(*all[m], tuning, member.call, static_cast<const std::byte*>(member.call.input), 77,
                        all[m]->buffers().queries());
    begun[m] = true;
    member.work.advance({});
    if (member.work.is_done()) --left;
  }
}

}  // namespace lockstep::test
