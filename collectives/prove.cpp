// SPDX-License-Identifier: Apache-2.0
// Executes the schedules: posts each member's rounds, matches sends with receives, and does the local steps.
#include "collectives/prove.hpp"

#include <algorithm>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/prover.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace symbols {

// Ends the proof with the place of the fault: member, round, and repetition of the round.
void ScheduleProver::fail(int index, std::string_view what) const {
  const MemberState& member = members_[static_cast<std::size_t>(index)];
  throw Fault{text("member ", index, ", round ", member.round, ", lap ", member.lap, ": ", what)};
}

// Gives each member its own symbol in its input. Other memory is unset, so that reading it is a fault.
void ScheduleProver::begin_member(int index, const Schedule& schedule) {
  MemberState& member = at(index);
  member.schedule = &schedule;
  member.shape = shape_of(problem_, index);
  member.extents[static_cast<int>(Space::input)] = input_count(problem_, index);
  member.extents[static_cast<int>(Space::output)] = output_count(problem_, index);
  member.extents[static_cast<int>(Space::scratch)] = schedule.scratch;
  if (problem_.in_place && (!is_rooted(problem_.collective) || index == problem_.root))
    member.as_one = overlap_in_place(problem_, index);
  member.heard.resize(members_.size());
  member.heard[static_cast<std::size_t>(index)] = true;
  const Location given = locate(index, {Space::input, 0, member.extents[static_cast<int>(Space::input)]});
  const SymbolicValue own{static_cast<Expression>(index), -given.begin};
  if (problem_.stride == 0 || !cuts_input(problem_.collective) || given.begin == given.end) {
    member.memories[given.memory].set(given.begin, given.end, own);
  } else {  // nothing is given between blocks that lie apart
    for (int block = 0; block < member.shape.gives.parts(); ++block) {
      const Location part = locate(index, member.shape.gives.slice(Space::input, block));
      member.memories[given.memory].set(part.begin, part.end, own);
    }
  }
  ready_.push_back(index);
}

// Returns the memory and the range of a slice. In place, input and output are one memory.
Location ScheduleProver::locate(int index, const Slice& slice) const {
  const MemberState& member = members_[static_cast<std::size_t>(index)];
  const std::size_t end = slice.offset + slice.count;
  if (slice.count > 0 && end > member.extents[static_cast<int>(slice.space)])
    fail(index, text(to_text(slice), " lies outside"));
  const auto place = [&](Space memory, std::size_t shift) {
    return Location{static_cast<int>(memory), static_cast<std::int64_t>(slice.offset + shift),
                    static_cast<std::int64_t>(end + shift)};
  };
  if (!member.as_one || slice.space == Space::scratch) return place(slice.space, 0);
  return place(Space::output, slice.space == Space::input ? member.as_one->input : member.as_one->output);
}

// Posts the messages of the member's round. A round within the node stands alone, because it meets all members there.
void ScheduleProver::post(int index) {
  MemberState& member = at(index);
  const Round& round = round_of(member);
  if (!round.near.empty()) {
    if (round.times != 1 || !round.sends.empty() || !round.receives.empty() || !round.locals.empty())
      fail(index, "does something else in a round of its node");
    member.near = &round.near;
    member.posted = true;
    member.ended = member.begun;
    member.waiting = 1;
    return;
  }
  const std::size_t first_send = member.sends.size();
  const std::size_t first_receive = member.receives.size();
  const auto each = [&](const Message& message, std::vector<PostedMessage>& list) {
    const Slice slice = message.slice.at(member.lap);
    if (slice.count == 0) return;
    const int peer = message.peer_at(member.lap);
    if (peer < 0 || peer >= problem_.size || peer == index) fail(index, text("a message with member ", peer));
    list.push_back({index, peer, locate(index, slice), member.begun});
  };
  for (const Message& message : round.sends) each(message, member.sends);
  for (const Message& message : round.receives) {
    if (message.slice.space() == Space::input) fail(index, "receives into its input");
    each(message, member.receives);
  }
  check_races(index, first_send, first_receive);
  member.posted = true;
  if (problem_.collective == Collective::barrier) member.told = member.heard;
  member.ended = member.begun;
  member.waiting = member.sends.size() + member.receives.size();
  for (std::size_t i = first_send; i < member.sends.size(); ++i)
    member.sent += static_cast<std::size_t>(member.sends[i].where.end - member.sends[i].where.begin);
}

// Messages of one round complete in any order. So none may be received into memory that another one uses.
void ScheduleProver::check_races(int index, std::size_t first_send, std::size_t first_receive) {
  const MemberState& member = at(index);
  std::vector<Location> written;
  for (std::size_t i = first_receive; i < member.receives.size(); ++i) written.push_back(member.receives[i].where);
  std::ranges::sort(written, {}, [](const Location& each) { return std::pair(each.memory, each.begin); });
  for (std::size_t i = 1; i < written.size(); ++i) {
    if (written[i].overlaps(written[i - 1])) fail(index, "two messages of one round are received into one place");
  }
  if (written.empty()) return;
  for (std::size_t i = first_send; i < member.sends.size(); ++i) {
    const Location& sent = member.sends[i].where;
    auto near = std::ranges::upper_bound(written, std::pair(sent.memory, sent.begin), {},
                                         [](const Location& each) { return std::pair(each.memory, each.begin); });
    const bool after = near != written.end() && near->overlaps(sent);
    const bool before = near != written.begin() && std::prev(near)->overlaps(sent);
    if (after || before) fail(index, "a place is sent and received into in one round");
  }
}

// Reads symbols; elements that were never written are a fault.
void ScheduleProver::read(int index, const Location& where, std::vector<SymbolicRange>& pieces,
                          std::string_view doing) {
  at(index).memories[where.memory].get(where.begin, where.end, pieces);
  for (const SymbolicRange& piece : pieces) {
    if (piece.value.expression == unset) fail(index, text(doing, " elements that nobody has set"));
  }
}

// Moves the symbols of one message. The round of both members lasts at least one step longer than its begin.
void ScheduleProver::match(PostedMessage& send, PostedMessage& receive) {
  MemberState& from = at(send.member);
  MemberState& to = at(receive.member);
  const std::int64_t length = send.where.end - send.where.begin;
  if (length != receive.where.end - receive.where.begin) {
    fail(receive.member, text("expects ", receive.where.end - receive.where.begin, " elements from member ",
                              send.member, ", which sends ", length));
  }
  read(send.member, send.where, left_, "sends");
  const std::int64_t way = receive.where.begin - send.where.begin;
  for (const SymbolicRange& piece : left_) {
    to.memories[receive.where.memory].set(piece.begin + way, piece.end + way,
                                          {piece.value.expression, piece.value.shift - way});
  }
  for (std::size_t i = 0; i < from.told.size(); ++i) {
    if (from.told[i]) to.heard[i] = true;
  }
  const std::size_t end = std::max(send.begun, receive.begun) + 1;
  for (MemberState* each : {&from, &to}) {
    each->ended = std::max(each->ended, end);
    --each->waiting;
  }
}

// Matches the first send of `from` to `to` with the first receive of `to` from `from`. Returns false if one is missing.
bool ScheduleProver::find_partner(std::vector<PostedMessage>& sends, std::vector<PostedMessage>& receives, int from,
                                  int to) {
  const auto send = std::ranges::find(sends, to, &PostedMessage::peer);
  const auto receive = std::ranges::find(receives, from, &PostedMessage::peer);
  if (send == sends.end() || receive == receives.end()) return false;
  match(*send, *receive);
  sends.erase(send);
  receives.erase(receive);
  return true;
}

// Does the local steps after all messages of the round.
void ScheduleProver::end_round(int index) {
  MemberState& member = at(index);
  const Round& round = round_of(member);
  for (const LocalStep& local : round.locals) do_local(index, local, member.lap);
  member.begun = member.ended;
  member.posted = false;
  if (++member.lap == round.times) {
    member.lap = 0;
    ++member.round;
  }
}

// Copies or reduces. Input may not be written, and a target may not overlap a source except as the same range.
void ScheduleProver::do_local(int index, const LocalStep& local, int lap) {
  const Slice slice = local.target.at(lap);
  if (slice.count == 0) return;
  if (slice.space == Space::input) fail(index, "writes its input");
  const Location target = locate(index, slice);
  const Location left = locate(index, local.left.at(lap));
  const Location right = locate(index, local.right.at(lap));
  const std::int64_t length = target.end - target.begin;
  for (const Location& source : {left, right}) {
    if (source.end - source.begin != length) fail(index, "combines slices of different lengths");
    if (source != target && source.overlaps(target)) fail(index, "a target overlaps its source");
  }
  if (local.kind == LocalStepKind::reduce) {
    reduce(index, target, left, right);
    return;
  }
  if (left == target) return;
  read(index, left, left_, "copies");
  const std::int64_t way = target.begin - left.begin;
  for (const SymbolicRange& piece : left_) {
    at(index).memories[target.memory].set(piece.begin + way, piece.end + way,
                                          {piece.value.expression, piece.value.shift - way});
  }
}

// Combines two ranges piece by piece. Elements must have the same position in the members' data, and no contribution
// may be counted twice.
void ScheduleProver::reduce(int index, const Location& target, const Location& left, const Location& right) {
  read(index, left, left_, "reduces");
  read(index, right, right_, "reduces");
  SymbolicMemory& memory = at(index).memories[target.memory];
  std::size_t i = 0;
  std::size_t j = 0;
  std::int64_t done = 0;  // elements from the beginning
  while (done < target.end - target.begin) {
    const SymbolicRange& a = left_[i];
    const SymbolicRange& b = right_[j];
    const std::int64_t end = std::min(a.end - left.begin, b.end - right.begin);
    const std::int64_t id_a = left.begin + a.value.shift;  // of element 0
    const std::int64_t id_b = right.begin + b.value.shift;
    if (id_a != id_b) fail(index, "combines elements of different positions");
    if (!expressions_.disjoint(a.value.expression, b.value.expression)) fail(index, "counts a contribution twice");
    const Expression sum = expressions_.combine(a.value.expression, b.value.expression);
    memory.set(target.begin + done, target.begin + end, {sum, id_a - target.begin});
    done = end;
    if (a.end - left.begin == end) ++i;
    if (b.end - right.begin == end) ++j;
  }
}

// A member that is not done when nothing can advance waits for ever.
void ScheduleProver::check_deadlock() const {
  for (int i = 0; i < problem_.size; ++i) {
    const MemberState& member = members_[static_cast<std::size_t>(i)];
    if (member.done()) continue;
    if (member.near != nullptr) fail(i, "waits for ever for the others of its node");
    const PostedMessage& stuck = member.sends.empty() ? member.receives.front() : member.sends.front();
    fail(i, text(member.sends.empty() ? "waits for ever to receive from member " : "waits for ever to send to member ",
                 stuck.peer));
  }
}

// Advances members until none can. Their order does not matter, since messages of a pair match in the order of posting.
Proof ScheduleProver::run() {
  Proof proof;
  while (!ready_.empty()) {
    const int index = ready_.front();
    ready_.pop_front();
    MemberState& member = at(index);
    while (!member.done()) {
      if (!member.posted) {
        post(index);
        if (member.near != nullptr) meet_near(index);
        // Tries each pair until nothing of it matches; messages of a pair are matched in their order.
        std::vector<int> peers;
        for (const PostedMessage& each : member.sends) peers.push_back(each.peer);
        for (const int peer : peers) {
          if (find_partner(member.sends, at(peer).receives, index, peer) && at(peer).waiting == 0)
            ready_.push_back(peer);
        }
        peers.clear();
        for (const PostedMessage& each : member.receives) peers.push_back(each.peer);
        for (const int peer : peers) {
          if (find_partner(at(peer).sends, member.receives, peer, index) && at(peer).waiting == 0)
            ready_.push_back(peer);
        }
      }
      if (member.waiting > 0) break;
      end_round(index);
    }
  }
  check_deadlock();
  proof.in_order = true;
  proof.balanced = true;
  for (int i = 0; i < problem_.size; ++i) {
    check_result(i, proof);
    check_same(i);
    proof.cost.rounds = std::max(proof.cost.rounds, at(i).begun);
    proof.cost.sent_most = std::max(proof.cost.sent_most, at(i).sent);
    proof.cost.sent_total += at(i).sent;
  }
  return proof;
}

}  // namespace symbols

Proof prove(const Problem& problem, std::span<const Schedule> schedules) {
  try {
    if (static_cast<int>(schedules.size()) != problem.size) throw symbols::Fault{"not one schedule for each member"};
    return symbols::ScheduleProver(problem, schedules).run();
  } catch (const symbols::Fault& fault) {
    Proof proof;
    proof.fault = fault.text;
    return proof;
  }
}

}  // namespace lockstep
