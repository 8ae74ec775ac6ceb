// SPDX-License-Identifier: Apache-2.0
// Implements the exchange over MPI: the tree of an all-gather, and the search for missing members.
#include "topology/machine/mpi/mpi_exchange.hpp"

#include <algorithm>
#include <set>
#include <thread>

#include "topology/base/error.hpp"
#include "topology/base/progress_hooks.hpp"
#include "topology/base/text.hpp"
#include "topology/exchange_rules.hpp"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// Travels up the tree: the blocks of a subtree, and the first disagreement seen in it.
struct Parcel {
  std::string what;
  std::string disagreement;
  std::vector<std::pair<int, Bytes>> blocks;
};

Bytes write(std::uint64_t sequence, const Parcel& parcel) {
  Writer writer;
  writer.put(sequence).put(parcel.what).put(parcel.disagreement);
  writer.put(static_cast<std::uint64_t>(parcel.blocks.size()));
  for (const auto& [rank, bytes] : parcel.blocks) writer.put(rank).put(std::span<const std::byte>(bytes));
  return writer.take();
}

Parcel read(Reader reader, std::uint64_t sequence) {
  if (reader.get<std::uint64_t>() != sequence) throw Error(Code::internal, "set-up messages are out of step");
  Parcel parcel;
  parcel.what = reader.get_string();
  parcel.disagreement = reader.get_string();
  for (std::size_t left = reader.get_count(sizeof(int) + sizeof(std::uint64_t)); left > 0; --left) {
    const int rank = reader.get<int>();
    parcel.blocks.emplace_back(rank, reader.get_bytes());
  }
  return parcel;
}

std::vector<ThreadAddress> one_each(int processes) {
  std::vector<ThreadAddress> all;
  all.reserve(static_cast<std::size_t>(processes));
  for (int process = 0; process < processes; ++process) all.push_back({process, 0});
  return all;
}

}  // namespace

// Is one all-gather under way: its clock, and the search for missing members.
//
// A rank that waits longer than the warning time asks the ranks below it if they are here. It asks rank 0 first, then
// ever more at once. Every waiting rank answers at once. The lowest that answers is the collector. It asks all ranks
// that it has seen nothing of, warns for all, and at the limit ends the wait of all with one error.
class MpiExchange::Call {
 public:
  Call(MpiExchange& exchange, std::string_view what, WaitLimits wait_limits)
      : exchange_(exchange), what_(what), wait_limits_(wait_limits), begin_(Clock::now()) {
    warn_after_ = exchange_rules::warns_first(wait_limits) ? wait_limits.warn : wait_limits.limit;
    grace_ = std::clamp<Duration>(warn_after_ / 4, std::chrono::milliseconds(20), std::chrono::milliseconds(500)) * 3;
    seen_.insert(exchange.rank());
  }

  void note(int rank) { seen_.insert(rank); }

  // Calls `ready` until it is true. Throws when another member failed or the limit is reached.
  template <class Ready>
  void wait_until(const Ready& ready) {
    check_verdict();  // also if nothing is left to wait for: the others may have given up on us
    for (int round = 0; !ready(); ++round) {
      check_verdict();
      answer_questions();
      if (warn_after_ > Duration{} && elapsed() > warn_after_) search();
      if (wait_limits_.limit > Duration{} && elapsed() > wait_limits_.limit + grace_ * (batches_ + 4)) give_up();
      run_progress_hooks(0);
      pause(round);
    }
  }

 private:
  Duration elapsed() const { return Clock::now() - begin_; }

  static void pause(int round) {
    constexpr int spins = 200;    // polls before the first yield; a guess
    constexpr int yields = 2000;  // polls before the first sleep; a guess
    if (round < spins) return;
    if (round < yields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  void check_verdict() {
    const auto arrived = exchange_.try_receive(-1, verdict);
    if (!arrived) return;
    Reader reader(arrived->bytes);
    reader.get<std::uint64_t>();
    const ErrorReport report = get_error_report(reader);
    throw Error(report.code, report.text);
  }

  void ask(int rank) { exchange_.send(rank, question, Writer().put(exchange_.sequence_).take()); }

  // Answers each rank that asks: it is here, and so is this one. The list is empty until this rank has reported. A rank
  // asks again if its question came before this rank had begun the call.
  void answer_questions() {
    while (const auto arrived = exchange_.try_receive(-1, question)) {
      if (Reader(arrived->bytes).get<std::uint64_t>() != exchange_.sequence_) continue;
      seen_.insert(arrived->source);
      reporters_.insert(arrived->source);
      if (reported_) missing_ = absent();
      answer_to(arrived->source);
    }
  }

  void answer_to(int rank) { exchange_.send(rank, answer, Writer().put(exchange_.sequence_).put(missing_).take()); }

  void take_answers() {
    while (const auto arrived = exchange_.try_receive(-1, answer)) {
      Reader reader(arrived->bytes);
      if (reader.get<std::uint64_t>() != exchange_.sequence_) continue;
      seen_.insert(arrived->source);
      if (arrived->source > exchange_.rank() || (collector_ != none_yet && arrived->source > collector_)) continue;
      collector_ = arrived->source;
      missing_ = reader.get_set();
    }
  }

  void search() {
    take_answers();
    const bool due = Clock::now() - asked_at_ > grace_;
    if (collector_ != none_yet && collector_ != exchange_.rank()) {
      if (due) ask_again(collector_, collector_ + 1);
    } else if (asked_below_ < exchange_.rank()) {
      if (!due) return;
      const int end = std::min(exchange_.rank(), asked_below_ + (1 << std::min(batches_++, 20)));
      ask_again(asked_below_, end);
      asked_below_ = end;
    } else if (due || collector_ == exchange_.rank()) {
      collect(due);
    }
  }

  void ask_again(int first, int end) {
    asked_at_ = Clock::now();
    for (int rank = first; rank < end; ++rank) ask(rank);
  }

  // Runs on one member. It asks once more before it reports, and before it gives up.
  void collect(bool due) {
    if (collector_ == none_yet) {
      collector_ = exchange_.rank();
      collecting_since_ = Clock::now();
      due = true;
    }
    if (due) {
      asked_at_ = Clock::now();
      for (const int rank : absent().members()) ask(rank);
    }
    if (Clock::now() - collecting_since_ < grace_) return;
    if (!reported_) {
      reported_ = true;
      missing_ = absent();
      exchange_.log().warn(exchange_rules::stall_warning(elapsed(), sentence()));
      for (const int rank : reporters_) answer_to(rank);
    }
    if (wait_limits_.limit > Duration{} && elapsed() > wait_limits_.limit) give_up();
  }

  IndexSet absent() const {
    return exchange_rules::missing_ranks(exchange_.size(), [this](int rank) { return seen_.contains(rank); });
  }

  std::string sentence() const {
    const std::string who = missing_.empty() ? "all have arrived, but one does not forward its data"
                                             : text(member_names(missing_, places(missing_)), " did not come");
    return text("\"", what_, "\" (call ", exchange_.sequence_ & 0xffffffffU, " among ", exchange_.size(),
                " members): ", who);
  }

  std::vector<MemberPlace> places(const IndexSet& ranks) const {
    std::vector<MemberPlace> all;
    for (const int rank : ranks.members())
      all.push_back(exchange_.wire_->members().place_of(exchange_.process_of(rank)));
    return all;
  }

  [[noreturn]] void give_up() {
    const bool i_collect = collector_ == exchange_.rank();
    if (i_collect) missing_ = absent();
    const std::string why =
        text(exchange_rules::stall_sentence(elapsed(), sentence()), " -> ", exchange_rules::stall_remedy);
    for (int rank = 0; rank < exchange_.size() && i_collect; ++rank) {
      if (rank != exchange_.rank()) exchange_.send_verdict(rank, {Code::stall, why});
    }
    throw Error(Code::stall, why);
  }

  static constexpr int none_yet = -1;

  MpiExchange& exchange_;
  std::string what_;
  WaitLimits wait_limits_;
  Clock::time_point begin_;
  Duration warn_after_{};
  Duration grace_{};
  std::set<int> seen_;       // ranks that have shown a sign of life in this call
  std::set<int> reporters_;  // ranks that asked for a report
  IndexSet missing_;
  int collector_ = none_yet;
  int asked_below_ = 0;  // ranks below this one have been asked
  int batches_ = 0;
  Clock::time_point asked_at_{};
  Clock::time_point collecting_since_{};
  bool reported_ = false;
};

MpiExchange::MpiExchange(const std::shared_ptr<Wire>& wire, WaitLimits wait_limits, Log log)
    : MpiExchange(wire, ChannelBlock{}, one_each(wire->comm().size()), wire->comm().rank(), wait_limits,
                  std::move(log)) {}

MpiExchange::MpiExchange(std::shared_ptr<Wire> wire, ChannelBlock block, std::vector<ThreadAddress> members, int rank,
                         WaitLimits wait_limits, Log log)
    : Exchange(rank, static_cast<int>(members.size()), wait_limits, std::move(log)),
      wire_(std::move(wire)),
      block_(block),
      members_(std::move(members)),
      sequence_(static_cast<std::uint64_t>(block.generation) << 32U),
      sent_to_(members_.size()) {
  for (int i = 0; i < block_.channels(); ++i) wire_->channels().take(block_.channel + i);
}

// Abandons only this thread's messages. Other threads of the process may have theirs under way on these channels.
MpiExchange::~MpiExchange() {
  for (int thread = 0; failed_ && thread < block_.threads; ++thread) {
    wire_->set_up().abandon_leaving(channel(me().thread, thread));
    wire_->set_up().abandon_arriving(channel(thread, me().thread));
  }
  note_unreceived();
  for (int i = 0; i < block_.channels(); ++i) wire_->channels().give_back(block_.channel + i);
}

void MpiExchange::send(int to, MpiMessageKind kind, Bytes bytes) {
  wire_->set_up().send(process_of(to), wire_->comm().tags().set_up(channel_to(to), kind), std::move(bytes));
}

void MpiExchange::send_verdict(int to, const ErrorReport& report) {
  Writer writer;
  put(writer.put(sequence_), report);
  send(to, verdict, writer.take());
}

// Drops messages of earlier exchanges. Every message begins with the number of its call.
std::optional<ReceivedMessage> MpiExchange::try_receive(int from, MpiMessageKind kind) {
  const auto next = [&] {
    if (from < 0) return try_receive_any(kind);
    auto arrived = wire_->set_up().try_receive(process_of(from), wire_->comm().tags().set_up(channel_from(from), kind));
    if (arrived) arrived->source = from;
    return arrived;
  };
  for (auto arrived = next(); arrived; arrived = next()) {
    if (Reader(arrived->bytes).get<std::uint64_t>() >> 32U == generation()) return arrived;
  }
  return std::nullopt;
}

std::optional<ReceivedMessage> MpiExchange::try_receive_any(int kind) {
  for (int thread = 0; thread < block_.threads; ++thread) {
    auto arrived = wire_->set_up().try_receive(-1, wire_->comm().tags().set_up(channel(thread, me().thread), kind));
    if (!arrived) continue;
    const auto source = std::ranges::find(members_, ThreadAddress{arrived->source, thread});
    if (source == members_.end()) continue;  // from an earlier user of the channel
    arrived->source = static_cast<int>(source - members_.begin());
    return arrived;
  }
  return std::nullopt;
}

bool MpiExchange::flushed() {
  for (int thread = 0; thread < block_.threads; ++thread) {
    if (!wire_->set_up().flushed(channel(me().thread, thread))) return false;
  }
  return true;
}

std::vector<Bytes> MpiExchange::gather_all(std::string_view what, std::span<const std::byte> mine,
                                           WaitLimits wait_limits) {
  ++sequence_;
  Call call(*this, what, wait_limits);
  try {
    Parcel parcel{std::string(what), {}, {{rank(), Bytes(mine.begin(), mine.end())}}};
    const auto receive = [&](int from, MpiMessageKind kind) {
      std::optional<ReceivedMessage> arrived;
      call.wait_until([&] { return (arrived = try_receive(from, kind)).has_value(); });
      return read(Reader(arrived->bytes), sequence_);
    };
    // Builds a binomial tree: the children are rank + 1, + 2, + 4, ... below the lowest set bit.
    std::vector<int> children;
    for (int step = 1; (rank() & step) == 0 && rank() + step < size(); step *= 2) children.push_back(rank() + step);
    for (const int child : children) {
      Parcel theirs = receive(child, up);
      if (parcel.disagreement.empty()) parcel.disagreement = theirs.disagreement;
      if (parcel.disagreement.empty() && theirs.what != parcel.what)
        parcel.disagreement = exchange_rules::mismatch_sentence(rank(), what, child, theirs.what);
      for (auto& [from, bytes] : theirs.blocks) {
        call.note(from);
        parcel.blocks.emplace_back(from, std::move(bytes));
      }
    }
    if (rank() != 0) {
      const int parent = rank() & (rank() - 1);
      send(parent, up, write(sequence_, parcel));
      parcel = receive(parent, down);
    }
    for (const int child : children) send(child, down, write(sequence_, parcel));
    call.wait_until([&] { return flushed(); });
    if (!parcel.disagreement.empty()) throw Error(Code::mismatch, parcel.disagreement, exchange_rules::mismatch_remedy);
    std::vector<Bytes> all(static_cast<std::size_t>(size()));
    for (auto& [from, bytes] : parcel.blocks) all.at(static_cast<std::size_t>(from)) = std::move(bytes);
    inherited_.clear();  // all have opened this exchange
    return all;
  } catch (...) {
    failed_ = true;
    throw;
  }
}

void MpiExchange::tell_failure(std::string_view why) {
  failed_ = true;
  for (int to = 0; to < size(); ++to) {
    if (to != rank()) send_verdict(to, {Code::peer_failed, std::string(why)});
  }
  // Gives the messages a short push: messages this small leave at once, on any network.
  const auto end = Clock::now() + std::chrono::milliseconds(200);
  while (!flushed() && Clock::now() < end) std::this_thread::yield();
}

}  // namespace lockstep
