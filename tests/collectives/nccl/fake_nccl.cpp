// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/nccl/fake_nccl_group.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/gpu/combining.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

thread_local int calls_until_failure = -1;

struct Works {
  bool is_group = false;
  gpu::Stream stream = nullptr;
  std::vector<std::function<void()>> first;  // what is sent
  std::vector<std::function<void()>> then;
  std::vector<std::function<void()>> last;  // waiting for what was sent
};
thread_local Works works;

}  // namespace

namespace {

// The whole collective, by the last to come.
void run(const FakeGpus& gpus, const FakeNccl::Asked& kind, const std::vector<Part>& parts) {
  const std::size_t bytes = kind.count * size_of(kind.type);
  if (bytes == 0) return;
  const auto at = [&](const void* address, std::size_t size) { return gpus.reach(address, size); };
  const std::size_t members = parts.size();
  const auto root = static_cast<std::size_t>(kind.root);
  if (kind.collective == Collective::all_gather) {
    for (std::size_t to = 0; to < members; ++to) {
      for (std::size_t from = 0; from < members; ++from)
        std::memmove(at(parts[to].out, bytes * members) + from * bytes, at(parts[from].in, bytes), bytes);
    }
    return;
  }
  if (kind.collective == Collective::broadcast) {
    for (const Part& part : parts) std::memmove(at(part.out, bytes), at(parts[root].in, bytes), bytes);
    return;
  }
  const bool scatters = kind.collective == Collective::reduce_scatter;
  const std::size_t blocks = scatters ? members : 1;
  std::vector<std::byte> all(bytes * blocks);
  gpu::CombineArguments combining{};
  combining.input_count = static_cast<int>(members);
  for (std::size_t i = 0; i < members; ++i) combining.inputs[i] = at(parts[i].in, bytes * blocks);
  combining.outputs[0] = all.data();
  combining.output_count = 1;
  combining.count = kind.count * blocks;
  combining.op = kind.op == ReduceOp::avg ? ReduceOp::sum : kind.op;
  combining.divisor = kind.op == ReduceOp::avg ? static_cast<int>(members) : 0;
  gpu::with_format(kind.type, [&]<class F>(F) { gpu::combine_thread<F>(combining, 0, 1); });
  for (std::size_t i = 0; i < members; ++i) {
    if (kind.collective == Collective::reduce && i != root) continue;
    std::memcpy(at(parts[i].out, bytes), all.data() + (scatters ? i * bytes : 0), bytes);
  }
}

// One member's stream has come to its next collective.
template <class Group>
void meet(const FakeGpus& gpus, Group& group, int rank, std::size_t number, const FakeNccl::Asked& kind,
          const Part& part) {
  std::unique_lock lock(group.mutex);
  if (group.is_over(rank)) return;
  while (group.meetings.size() <= number) group.meetings.emplace_back();
  Meeting& meeting = group.meetings[number];
  if (meeting.kind && !(*meeting.kind == kind)) throw Error(Code::internal, "members of NCCL's group differ");
  meeting.kind = kind;
  meeting.parts.resize(static_cast<std::size_t>(group.size));
  meeting.parts[static_cast<std::size_t>(rank)] = part;
  if (++meeting.arrived == group.size && group.left.empty()) {
    run(gpus, kind, meeting.parts);
    meeting.is_done = true;
    group.changed.notify_all();
  }
  group.wait(lock, rank, [&] { return group.meetings[number].is_done; });
}

}  // namespace

void FakeNccl::fail_if_told() {
  if (calls_until_failure >= 0 && calls_until_failure-- == 0)
    throw Error(Code::device, "NCCL: unhandled system error", "look at it");
}

void FakeNccl::fail_after(int more) { calls_until_failure = more; }

void FakeNccl::break_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, group] : groups_) {
    const std::lock_guard inside(group->mutex);
    group->is_broken = true;
    group->changed.notify_all();
  }
}

nccl::NcclId FakeNccl::make_id() {
  fail_if_told();
  const std::lock_guard lock(mutex_);
  nccl::NcclId id{};
  ++ids_;
  std::memcpy(id.data(), &ids_, sizeof ids_);
  return id;
}

nccl::NcclComm* FakeNccl::join(const nccl::NcclId& id, int size, int rank, int device) {
  fail_if_told();
  const std::lock_guard lock(mutex_);
  auto& group = groups_[id];
  if (!group) group = std::make_shared<Group>(size);
  const std::lock_guard inside(group->mutex);
  if (!group->devices.insert(device).second) throw Error(Code::internal, "two members of NCCL's group share a GPU");
  ++group->joined;
  ++living_;
  auto* const member = new FakeMember<Group>(group, rank, device);
  member->busy = polls;
  return member;
}

bool FakeNccl::is_busy(nccl::NcclComm* member) {
  auto& mine = static_cast<FakeMember<Group>&>(*member);
  const std::lock_guard lock(mine.group->mutex);
  if (mine.busy > 0) return --mine.busy >= 0;
  if (mine.group->is_broken) throw Error(Code::device, "NCCL: remote process exited or there was a network error", "");
  return mine.group->joined < mine.group->size ||
         (mine.has_finished && (mine.group->finished < mine.group->size || *mine.in_streams > 0));
}

void FakeNccl::finish(nccl::NcclComm* member) {
  auto& mine = static_cast<FakeMember<Group>&>(*member);
  const std::lock_guard lock(mine.group->mutex);
  if (mine.busy > 0) throw Error(Code::internal, "NCCL's group is ended while a member is busy");
  mine.has_finished = true;
  ++mine.group->finished;
}

void FakeNccl::leave(nccl::NcclComm* member) noexcept {
  while (holds_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::unique_ptr<FakeMember<Group>> gone(static_cast<FakeMember<Group>*>(member));
  const std::lock_guard lock(gone->group->mutex);
  if (!gone->has_finished || gone->group->finished < gone->group->size || *gone->in_streams > 0)
    gone->group->left.insert(gone->rank);
  gone->group->changed.notify_all();
  --living_;
}

void FakeNccl::begin_group() {
  works = {};
  works.is_group = true;
}

void FakeNccl::end_group(nccl::NcclComm* member) {
  Works all = std::exchange(works, {});
  fail_if_told();
  static_cast<FakeMember<Group>&>(*member).busy = polls;
  if (all.first.empty() && all.then.empty()) return;
  ++operations_;
  const auto& mine = static_cast<FakeMember<Group>&>(*member);
  auto in_streams = mine.in_streams;
  const bool is_captured = gpus_.is_captured(all.stream);
  if (!is_captured) ++*in_streams;
  gpus_.put(mine.device, all.stream, [all = std::move(all), in_streams = std::move(in_streams), is_captured] {
    for (const auto& each : all.first) each();
    for (const auto& each : all.then) each();
    for (const auto& each : all.last) each();
    if (!is_captured) --*in_streams;
  });
}

void FakeNccl::put(nccl::NcclComm* member, std::function<void()> work, bool is_first, gpu::Stream stream) {
  if (!works.is_group) throw Error(Code::internal, "an operation of NCCL outside of a group");
  if (static_cast<FakeMember<Group>&>(*member).busy > 0)
    throw Error(Code::internal, "an operation of NCCL's while the member is busy");
  works.stream = stream;
  // Nothing holds the group but the members: it lives until what is in streams is done.
  auto kept = [group = static_cast<FakeMember<Group>&>(*member).group, work = std::move(work)] { work(); };
  (is_first ? works.first : works.then).emplace_back(std::move(kept));
}

void FakeNccl::all_reduce(nccl::NcclComm* member, const void* in, void* out, std::size_t count, DataType type,
                          ReduceOp op, gpu::Stream stream) {
  collective(member, {Collective::all_reduce, count, type, op, 0}, in, out, stream);
}
void FakeNccl::reduce(nccl::NcclComm* member, const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                      int root, gpu::Stream stream) {
  collective(member, {Collective::reduce, count, type, op, root}, in, out, stream);
}
void FakeNccl::reduce_scatter(nccl::NcclComm* member, const void* in, void* out, std::size_t count, DataType type,
                              ReduceOp op, gpu::Stream stream) {
  collective(member, {Collective::reduce_scatter, count, type, op, 0}, in, out, stream);
}
void FakeNccl::all_gather(nccl::NcclComm* member, const void* in, void* out, std::size_t bytes, gpu::Stream stream) {
  collective(member, {Collective::all_gather, bytes, DataType::u8, ReduceOp::sum, 0}, in, out, stream);
}
void FakeNccl::broadcast(nccl::NcclComm* member, const void* in, void* out, std::size_t bytes, int root,
                         gpu::Stream stream) {
  collective(member, {Collective::broadcast, bytes, DataType::u8, ReduceOp::sum, root}, in, out, stream);
}

void FakeNccl::collective(nccl::NcclComm* member, const Asked& asked, const void* in, void* out, gpu::Stream stream) {
  fail_if_told();
  auto& mine = static_cast<FakeMember<Group>&>(*member);
  put(
      member,
      [this, asked, in, out, rank = mine.rank, met = mine.met, group = mine.group.get()] {
        meet(gpus_, *group, rank, (*met)++, asked, {in, out});
      },
      false, stream);
}

// It is read by the one who receives it, and the stream goes on when that is done.
void FakeNccl::send(nccl::NcclComm* member, const void* from, std::size_t bytes, int to, gpu::Stream stream) {
  fail_if_told();
  auto& mine = static_cast<FakeMember<Group>&>(*member);
  auto letter = std::make_shared<Letter>(Letter{from, bytes});
  const auto post = [group = mine.group.get(), path = std::pair(mine.rank, to), letter] {
    const std::lock_guard lock(group->mutex);
    group->letters[path].push_back(letter);
    group->changed.notify_all();
  };
  const auto is_read = [group = mine.group.get(), rank = mine.rank, letter] {
    std::unique_lock lock(group->mutex);
    group->wait(lock, rank, [&] { return letter->is_read; });
  };
  put(member, post, true, stream);
  works.last.emplace_back(is_read);
}

void FakeNccl::receive(nccl::NcclComm* member, void* to, std::size_t bytes, int from, gpu::Stream stream) {
  fail_if_told();
  auto& mine = static_cast<FakeMember<Group>&>(*member);
  const auto take = [this, group = mine.group.get(), path = std::pair(from, mine.rank), to, bytes] {
    std::unique_lock lock(group->mutex);
    auto& letters = group->letters[path];
    if (!group->wait(lock, path.second, [&] { return !letters.empty() && !group->is_over(path.first); })) return;
    Letter& letter = *letters.front();
    if (letter.bytes != bytes) throw Error(Code::internal, "a message of NCCL's has another length");
    std::memcpy(gpus_.reach(to, bytes), gpus_.reach(letter.from, bytes), bytes);
    letter.is_read = true;
    letters.pop_front();
    group->changed.notify_all();
  };
  put(member, take, false, stream);
}

}  // namespace lockstep::test
