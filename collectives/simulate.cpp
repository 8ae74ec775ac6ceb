// SPDX-License-Identifier: Apache-2.0
#include "collectives/simulate.hpp"

#include <algorithm>
#include <deque>
#include <optional>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/symbols.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using symbols::Expression;
using symbols::Expressions;
using symbols::Memory;
using symbols::Piece;
using symbols::unset;
using symbols::Value;

struct Fault {
  std::string text;
};

// A slice where it lies: scratch is one memory; input and output are two, or one when in place.
struct Location {
  int memory;
  std::int64_t begin;
  std::int64_t end;
  bool operator==(const Location&) const = default;
  bool overlaps(const Location& other) const {
    return memory == other.memory && begin < other.end && other.begin < end;
  }
};

struct Posted {
  int member;
  int peer;
  Location where;
  std::size_t begun;  // when the round was posted
};

struct MemberState {
  const Schedule* schedule = nullptr;
  Shape shape;
  std::size_t extents[3] = {};    // by Space
  std::optional<Overlap> as_one;  // where input and output are one memory
  std::size_t round = 0;
  int lap = 0;
  bool posted = false;
  std::size_t waiting = 0;  // messages of the round that are not through
  std::size_t begun = 0;
  std::size_t ended = 0;  // of the messages that are through
  std::size_t sent = 0;
  Memory memories[3];         // by Space; in place the input's is the output's
  std::vector<Posted> sends;  // posted, not yet met, in their order
  std::vector<Posted> receives;
  std::vector<bool> heard;  // whose start lies before now
  std::vector<bool> told;   // what it had heard when it posted its round
  bool done() const { return round == schedule->rounds.size(); }
};

class Simulation {
 public:
  Simulation(const Problem& problem, std::span<const Schedule> schedules)
      : problem_(problem), expressions_(problem.size), members_(static_cast<std::size_t>(problem.size)) {
    for (int i = 0; i < problem.size; ++i) begin_member(i, schedules[static_cast<std::size_t>(i)]);
  }

  Proof run();

 private:
  MemberState& at(int member) { return members_[static_cast<std::size_t>(member)]; }
  const Round& round_of(const MemberState& member) const { return member.schedule->rounds[member.round]; }

  void begin_member(int index, const Schedule& schedule);
  Location locate(int index, const Slice& slice) const;
  void post(int index);
  void check_races(int index, std::size_t first_send, std::size_t first_receive);
  void match(Posted& send, Posted& receive);
  bool find_partner(std::vector<Posted>& sends, std::vector<Posted>& receives, int from, int to);
  void end_round(int index);
  void do_local(int index, const Local& local, int lap);
  void reduce(int index, const Location& target, const Location& left, const Location& right);
  void read(int index, const Location& where, std::vector<Piece>& pieces, std::string_view doing);
  void check_deadlock() const;
  void check_result(int index, Proof& proof);
  void check_piece(int index, std::int64_t begin, std::int64_t end, int first, int last, std::int64_t shift,
                   Proof& proof);
  void check_gaps(int index);
  void check_same(int index);
  [[noreturn]] void fail(int index, std::string_view what) const;

  const Problem& problem_;
  Expressions expressions_;
  std::vector<MemberState> members_;
  std::deque<int> ready_;
  std::vector<Piece> left_;
  std::vector<Piece> right_;
};

void Simulation::fail(int index, std::string_view what) const {
  const MemberState& member = members_[static_cast<std::size_t>(index)];
  throw Fault{text("member ", index, ", round ", member.round, ", lap ", member.lap, ": ", what)};
}

void Simulation::begin_member(int index, const Schedule& schedule) {
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
  const Value own{static_cast<Expression>(index), -given.begin};
  member.memories[given.memory].set(given.begin, given.end, own);
  ready_.push_back(index);
}

Location Simulation::locate(int index, const Slice& slice) const {
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

void Simulation::post(int index) {
  MemberState& member = at(index);
  const Round& round = round_of(member);
  const std::size_t first_send = member.sends.size();
  const std::size_t first_receive = member.receives.size();
  const auto each = [&](const Message& message, std::vector<Posted>& list) {
    const Slice slice = message.walk.at(member.lap);
    if (slice.count == 0) return;
    const int peer = message.peer_at(member.lap);
    if (peer < 0 || peer >= problem_.size || peer == index) fail(index, text("a message with member ", peer));
    list.push_back({index, peer, locate(index, slice), member.begun});
  };
  for (const Message& message : round.sends) each(message, member.sends);
  for (const Message& message : round.receives) {
    if (message.walk.space() == Space::input) fail(index, "receives into its input");
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

void Simulation::check_races(int index, std::size_t first_send, std::size_t first_receive) {
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

void Simulation::read(int index, const Location& where, std::vector<Piece>& pieces, std::string_view doing) {
  at(index).memories[where.memory].get(where.begin, where.end, pieces);
  for (const Piece& piece : pieces) {
    if (piece.value.expression == unset) fail(index, text(doing, " what nobody has set"));
  }
}

void Simulation::match(Posted& send, Posted& receive) {
  MemberState& from = at(send.member);
  MemberState& to = at(receive.member);
  const std::int64_t length = send.where.end - send.where.begin;
  if (length != receive.where.end - receive.where.begin) {
    fail(receive.member, text("expects ", receive.where.end - receive.where.begin, " elements from member ",
                              send.member, ", which sends ", length));
  }
  read(send.member, send.where, left_, "sends");
  const std::int64_t way = receive.where.begin - send.where.begin;
  for (const Piece& piece : left_) {
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

// Meets the first send of `from` to `to` with the first receive of `to` from `from`.
bool Simulation::find_partner(std::vector<Posted>& sends, std::vector<Posted>& receives, int from, int to) {
  const auto send = std::ranges::find(sends, to, &Posted::peer);
  const auto receive = std::ranges::find(receives, from, &Posted::peer);
  if (send == sends.end() || receive == receives.end()) return false;
  match(*send, *receive);
  sends.erase(send);
  receives.erase(receive);
  return true;
}

void Simulation::end_round(int index) {
  MemberState& member = at(index);
  const Round& round = round_of(member);
  for (const Local& local : round.locals) do_local(index, local, member.lap);
  member.begun = member.ended;
  member.posted = false;
  if (++member.lap == round.times) {
    member.lap = 0;
    ++member.round;
  }
}

void Simulation::do_local(int index, const Local& local, int lap) {
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
  if (local.kind == Local::Kind::reduce) {
    reduce(index, target, left, right);
    return;
  }
  if (left == target) return;
  read(index, left, left_, "copies");
  const std::int64_t way = target.begin - left.begin;
  for (const Piece& piece : left_) {
    at(index).memories[target.memory].set(piece.begin + way, piece.end + way,
                                          {piece.value.expression, piece.value.shift - way});
  }
}

void Simulation::reduce(int index, const Location& target, const Location& left, const Location& right) {
  read(index, left, left_, "reduces");
  read(index, right, right_, "reduces");
  Memory& memory = at(index).memories[target.memory];
  std::size_t i = 0;
  std::size_t j = 0;
  std::int64_t done = 0;  // elements from the beginning
  while (done < target.end - target.begin) {
    const Piece& a = left_[i];
    const Piece& b = right_[j];
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

void Simulation::check_deadlock() const {
  for (int i = 0; i < problem_.size; ++i) {
    const MemberState& member = members_[static_cast<std::size_t>(i)];
    if (member.done()) continue;
    const Posted& stuck = member.sends.empty() ? member.receives.front() : member.sends.front();
    fail(i, text(member.sends.empty() ? "waits for ever to receive from member " : "waits for ever to send to member ",
                 stuck.peer));
  }
}

void Simulation::check_piece(int index, std::int64_t begin, std::int64_t end, int first, int last, std::int64_t shift,
                             Proof& proof) {
  if (begin == end) return;
  const Location where =
      locate(index, {Space::output, static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)});
  read(index, where, left_, "leaves");
  const std::int64_t moved = where.begin - begin;
  const Expression tree = expressions_.balanced(first, last);
  for (const Piece& piece : left_) {
    if (piece.value.shift + moved != shift) fail(index, text("has at ", piece.begin, " what belongs elsewhere"));
    if (!expressions_.holds_exactly(piece.value.expression, first, last))
      fail(index, text("has at ", piece.begin, " not exactly every contribution"));
    if (!expressions_.in_order(piece.value.expression)) proof.in_order = false;
    if (piece.value.expression != tree) proof.balanced = false;
  }
}

void Simulation::check_result(int index, Proof& proof) {
  const Shape& shape = at(index).shape;
  const auto count = static_cast<std::int64_t>(at(index).extents[static_cast<int>(Space::output)]);
  const auto from_blocks = [&] {  // block i of the output is what member i gave to this one
    for (int i = 0; i < problem_.size; ++i) {
      const auto offset = static_cast<std::int64_t>(shape.takes.offset(i));
      const Shape& other = at(i).shape;
      const bool cut = other.gives.parts() == problem_.size && problem_.size > 1;
      const auto given = cut ? static_cast<std::int64_t>(other.gives.offset(index)) : 0;
      check_piece(index, offset, static_cast<std::int64_t>(shape.takes.end(i)), i, i + 1, given - offset, proof);
    }
    check_gaps(index);
  };
  const auto own_block = static_cast<std::int64_t>(shape.gives.parts() > 1 ? shape.gives.offset(index) : 0);
  switch (problem_.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return check_piece(index, 0, count, 0, problem_.size, 0, proof);
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      return check_piece(index, 0, count, 0, problem_.size, own_block, proof);
    case Collective::scan:
      return check_piece(index, 0, count, 0, index + 1, 0, proof);
    case Collective::exscan:
      return index == 0 ? void() : check_piece(index, 0, count, 0, index, 0, proof);
    case Collective::broadcast:
      return check_piece(index, 0, count, problem_.root, problem_.root + 1, 0, proof);
    case Collective::scatter:
    case Collective::scatter_v:
      return check_piece(index, 0, count, problem_.root, problem_.root + 1,
                         static_cast<std::int64_t>(at(problem_.root).shape.gives.offset(index)), proof);
    case Collective::barrier:
      if (std::ranges::find(at(index).heard, false) != at(index).heard.end())
        fail(index, "leaves before all have come");
      return;
    case Collective::gather:
    case Collective::gather_v:
      return index == problem_.root ? from_blocks() : void();
    default:
      return from_blocks();
  }
}

// Where the blocks of an output lie apart, nobody writes between them. The blocks themselves are all set.
void Simulation::check_gaps(int index) {
  const MemberState& member = at(index);
  const Location all = locate(index, {Space::output, 0, member.extents[static_cast<int>(Space::output)]});
  member.memories[all.memory].get(all.begin, all.end, left_);
  std::size_t written = 0;
  for (const Piece& piece : left_) {
    if (piece.value.expression != unset) written += static_cast<std::size_t>(piece.end - piece.begin);
  }
  if (written != member.shape.takes.total()) fail(index, "writes between its blocks");
}

// Of an all-reduce all members must have combined in the same way, or their bits would differ.
void Simulation::check_same(int index) {
  if (problem_.collective != Collective::all_reduce || problem_.count == 0) return;
  const auto all = [&](int member, std::vector<Piece>& pieces) {
    const Location where = locate(member, {Space::output, 0, problem_.count});
    at(member).memories[where.memory].get(where.begin, where.end, pieces);
  };
  all(0, left_);
  all(index, right_);
  if (left_ != right_) fail(index, "combines in another way than member 0");
}

Proof Simulation::run() {
  Proof proof;
  while (!ready_.empty()) {
    const int index = ready_.front();
    ready_.pop_front();
    MemberState& member = at(index);
    while (!member.done()) {
      if (!member.posted) {
        post(index);
        // Each pair is tried until nothing of it meets: messages of a pair are met in their order.
        std::vector<int> peers;
        for (const Posted& each : member.sends) peers.push_back(each.peer);
        for (const int peer : peers) {
          if (find_partner(member.sends, at(peer).receives, index, peer) && at(peer).waiting == 0)
            ready_.push_back(peer);
        }
        peers.clear();
        for (const Posted& each : member.receives) peers.push_back(each.peer);
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

}  // namespace

Proof simulate(const Problem& problem, std::span<const Schedule> schedules) {
  try {
    if (static_cast<int>(schedules.size()) != problem.size) throw Fault{"not one schedule for each member"};
    return Simulation(problem, schedules).run();
  } catch (const Fault& fault) {
    Proof proof;
    proof.fault = fault.text;
    return proof;
  }
}

}  // namespace lockstep
