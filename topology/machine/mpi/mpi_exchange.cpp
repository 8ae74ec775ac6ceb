// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/mpi/mpi_exchange.hpp"

#include <algorithm>
#include <set>
#include <thread>

#include "topology/base/error.hpp"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// What travels up: the blocks of a subtree, and the first disagreement seen in it.
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

}  // namespace

// One all-gather under way: its clock, and the search for who is missing.
//
// Who waits longer than the warning time reports to rank 0, which knows then who is present; if rank 0
// does not answer it is missing itself, and rank 1 is asked, and so on until somebody answers or it is
// my own turn to collect. So one member collects, it knows exactly who is missing, and it tells the rest.
class MpiExchange::Call {
 public:
  Call(MpiExchange& exchange, std::string_view what, Patience patience)
      : exchange_(exchange), what_(what), patience_(patience), begin_(Clock::now()) {
    const bool soon = patience.warn > Duration{} && (patience.limit == Duration{} || patience.warn < patience.limit);
    warn_after_ = soon ? patience.warn : patience.limit;
    grace_ = std::clamp<Duration>(warn_after_ / 4, std::chrono::milliseconds(20), std::chrono::milliseconds(500));
    seen_.insert(exchange.rank());
  }

  void note(int rank) { seen_.insert(rank); }

  // Calls `ready` until it is true; throws when another member failed or the limit is reached.
  template <class Ready>
  void wait_until(const Ready& ready) {
    check_verdict();  // also when nothing is left to wait for: the others may have given up on us
    for (int round = 0; !ready(); ++round) {
      check_verdict();
      answer_present();
      if (warn_after_ > Duration{} && elapsed() > warn_after_) search();
      if (patience_.limit > Duration{} && elapsed() > patience_.limit + grace_ * 3 * (collector_ + 3)) give_up();
      pause(round);
    }
  }

 private:
  Duration elapsed() const { return Clock::now() - begin_; }
  bool i_collect() const { return collector_ == exchange_.rank(); }

  static void pause(int round) {
    constexpr int spins = 200;
    constexpr int yields = 2000;
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
    const auto code = reader.get<Code>();
    throw Error(code, reader.get_string());
  }

  // Whoever asks is present, and so am I; the list is empty until I have reported.
  void answer_present() {
    while (const auto arrived = exchange_.try_receive(-1, present)) {
      if (Reader(arrived->bytes).get<std::uint64_t>() != exchange_.sequence_) continue;
      seen_.insert(arrived->source);
      reporters_.insert(arrived->source);
      tell(arrived->source);
    }
  }

  void tell(int rank) { exchange_.send(rank, absent_list, Writer().put(exchange_.sequence_).put(missing_).take()); }

  void search() {
    while (const auto arrived = exchange_.try_receive(-1, absent_list)) take_answer(*arrived);
    if (i_collect()) {
      report();
    } else if (!answered_ && Clock::now() - asked_at_ > grace_ * 3) {
      if (asked_at_ != Clock::time_point{}) ++collector_;  // it did not answer: it is missing itself
      asked_at_ = Clock::now();
      if (!i_collect()) exchange_.send(collector_, present, Writer().put(exchange_.sequence_).take());
    }
  }

  void take_answer(const Wire::Arrived& arrived) {
    Reader reader(arrived.bytes);
    if (reader.get<std::uint64_t>() != exchange_.sequence_) return;
    answered_ = true;
    missing_ = reader.get_set();
  }

  // One member does this: warns for all, and ends the wait of all at the limit.
  void report() {
    const Duration patient = warn_after_ + grace_ * 3 * (collector_ + 1);
    if (!reported_ && elapsed() > patient) {
      missing_ = absent();
      reported_ = true;
      exchange_.log().warn(text(id(Code::stall), " waiting for ", format_duration(elapsed()), " in ", sentence()));
      for (const int rank : reporters_) tell(rank);
    }
    if (patience_.limit > Duration{} && elapsed() > std::max(patience_.limit, patient)) give_up();
  }

  IndexSet absent() const {
    IndexSet all;
    for (int rank = 0; rank < exchange_.size(); ++rank) {
      if (!seen_.contains(rank)) all.insert(rank);
    }
    return all;
  }

  std::string sentence() const {
    const std::string who =
        missing_.empty() ? "nobody could say who is missing" : text("rank ", missing_.to_string(), " did not come");
    return text("\"", what_, "\" (call ", exchange_.sequence_, " among ", exchange_.size(), " members): ", who);
  }

  [[noreturn]] void give_up() {
    if (i_collect()) missing_ = absent();
    const std::string why = text("waited ", format_duration(elapsed()), " in ", sentence(),
                                 " -> look what those members do; LOCKSTEP_TIMEOUT sets the limit");
    for (int rank = 0; rank < exchange_.size() && i_collect(); ++rank) {
      if (rank != exchange_.rank()) exchange_.send(rank, verdict, Writer().put(Code::stall).put(why).take());
    }
    throw Error(Code::stall, why);
  }

  MpiExchange& exchange_;
  std::string what_;
  Patience patience_;
  Clock::time_point begin_;
  Duration warn_after_{};
  Duration grace_{};
  std::set<int> seen_;       // who has shown a sign of life in this call
  std::set<int> reporters_;  // who waits for my answer
  IndexSet missing_;
  int collector_ = 0;
  Clock::time_point asked_at_{};
  bool answered_ = false;
  bool reported_ = false;
};

MpiExchange::MpiExchange(std::shared_ptr<Wire> wire, int channel, std::vector<int> ranks, Patience patience, Log log)
    : Exchange(static_cast<int>(std::ranges::find(ranks, wire->rank()) - ranks.begin()), static_cast<int>(ranks.size()),
               patience, std::move(log)),
      wire_(std::move(wire)),
      channel_(channel),
      ranks_(std::move(ranks)) {
  wire_->take_channel(channel_);
}

MpiExchange::~MpiExchange() {
  // The channel of a failed exchange may still get late messages, so nobody else may have it.
  if (!failed_) wire_->give_back_channel(channel_);
}

void MpiExchange::send(int to, Kind kind, Bytes bytes) {
  wire_->send(ranks_.at(static_cast<std::size_t>(to)), Wire::tag(channel_, kind), std::move(bytes));
}

std::optional<Wire::Arrived> MpiExchange::try_receive(int from, Kind kind) {
  auto arrived =
      wire_->try_receive(from < 0 ? from : ranks_.at(static_cast<std::size_t>(from)), Wire::tag(channel_, kind));
  if (arrived) arrived->source = static_cast<int>(std::ranges::find(ranks_, arrived->source) - ranks_.begin());
  return arrived;
}

std::vector<Bytes> MpiExchange::gather_all(std::string_view what, std::span<const std::byte> mine, Patience patience) {
  ++sequence_;
  Call call(*this, what, patience);
  try {
    Parcel parcel{std::string(what), {}, {{rank(), Bytes(mine.begin(), mine.end())}}};
    const auto receive = [&](int from, Kind kind) {
      std::optional<Wire::Arrived> arrived;
      call.wait_until([&] { return (arrived = try_receive(from, kind)).has_value(); });
      return read(Reader(arrived->bytes), sequence_);
    };
    // Binomial tree: my children are rank + 1, + 2, + 4, ... below my lowest set bit.
    std::vector<int> children;
    for (int step = 1; (rank() & step) == 0 && rank() + step < size(); step *= 2) children.push_back(rank() + step);
    for (const int child : children) {
      Parcel theirs = receive(child, up);
      if (parcel.disagreement.empty()) parcel.disagreement = theirs.disagreement;
      if (parcel.disagreement.empty() && theirs.what != parcel.what) {
        parcel.disagreement =
            text("rank ", rank(), " is in \"", what, "\" while rank ", child, " is in \"", theirs.what, "\"");
      }
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
    call.wait_until([&] { return wire_->flushed(); });
    if (!parcel.disagreement.empty()) {
      throw Error(Code::mismatch, parcel.disagreement, "make the same calls in the same order on all members");
    }
    std::vector<Bytes> all(static_cast<std::size_t>(size()));
    for (auto& [from, bytes] : parcel.blocks) all.at(static_cast<std::size_t>(from)) = std::move(bytes);
    return all;
  } catch (...) {
    failed_ = true;
    throw;
  }
}

void MpiExchange::tell_failure(std::string_view why) {
  failed_ = true;
  for (int to = 0; to < size(); ++to) {
    if (to != rank())
      send(to, verdict, Writer().put(Code::peer_failed).put(text("rank ", rank(), " failed: ", why)).take());
  }
  // A short push: messages this small leave at once wherever the other side lives.
  const auto end = Clock::now() + std::chrono::milliseconds(200);
  while (!wire_->flushed() && Clock::now() < end) std::this_thread::yield();
}

Bytes MpiExchange::channels_in_use() {
  IndexSet used;
  for (const int channel : wire_->channels()) used.insert(channel);
  return Writer().put(used).take();
}

std::unique_ptr<Exchange> MpiExchange::make_split(const std::vector<int>& ranks, const std::vector<Bytes>& used) {
  IndexSet all;
  for (const Bytes& bytes : used) all.insert(Reader(bytes).get_set());
  int channel = 0;
  while (all.contains(channel)) ++channel;
  if (channel > wire_->largest_channel()) {
    throw Error(Code::mpi, text(channel, " exchanges at once are more than MPI's tags allow"),
                "destroy those that are no longer used");
  }
  std::vector<int> on_wire;
  for (const int rank : ranks) on_wire.push_back(ranks_.at(static_cast<std::size_t>(rank)));
  return std::make_unique<MpiExchange>(wire_, channel, std::move(on_wire), patience(), log());
}

}  // namespace lockstep
