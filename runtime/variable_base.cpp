// SPDX-License-Identifier: Apache-2.0
// Implements the parts of variables that don't depend on the element type: agreement, checks and error texts.
#include "runtime/variable_base.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <map>

#include "runtime/strategy_state.hpp"
#include "topology/base/index_set.hpp"

namespace lockstep::detail {
namespace {

constexpr std::string_view in_scope = "make it in the scope of the strategy that runs the replicas";

std::string quoted(const VariableOptions& options) { return text("variable '", printable(options.name), '\''); }

// Computes a hash of bytes, eight at a time, in four independent rows. It finds differences; it is not for security.
std::uint64_t digest(std::span<const std::byte> bytes) {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15ULL;
  std::uint64_t rows[4] = {1, 2, 3, 4};
  const auto mix = [&](std::size_t row, std::uint64_t word) { rows[row] = std::rotl((rows[row] ^ word) * odd, 31); };
  std::size_t at = 0;
  for (std::size_t i = 0; at + 8 <= bytes.size(); at += 8, ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    mix(i % 4, word);
  }
  std::uint64_t rest = bytes.size();
  for (; at < bytes.size(); ++at) rest = rest << 8U | std::to_integer<std::uint64_t>(bytes[at]);
  mix(0, rest);
  for (std::size_t row = 1; row < 4; ++row) mix(0, rows[row]);
  return rows[0];
}

// Returns the first replica with the most common hash.
int one_of_most(const std::vector<std::uint64_t>& digests) {
  std::map<std::uint64_t, int> number;
  for (const std::uint64_t each : digests) ++number[each];
  const auto most = std::ranges::max_element(digests, {}, [&](std::uint64_t each) { return number[each]; });
  return static_cast<int>(most - digests.begin());
}

// Holds the first element that differs, and the one behind the last.
using DifferenceRange = std::array<std::uint64_t, 2>;
DifferenceRange compare(std::span<const std::byte> mine, std::span<const std::byte> theirs, std::size_t element) {
  DifferenceRange difference = {std::numeric_limits<std::uint64_t>::max(), 0};
  for (std::size_t i = 0; i * element < mine.size(); ++i) {
    if (std::memcmp(mine.data() + i * element, theirs.data() + i * element, element) == 0) continue;
    difference[0] = std::min<std::uint64_t>(difference[0], i);
    difference[1] = i + 1;
  }
  return difference;
}

std::string_view class_name(Strategy::VariablePlacement placement, bool is_on_read) {
  if (is_on_read) return "SyncOnReadVariable";
  return placement == Strategy::VariablePlacement::central ? "AggregatingVariable" : "MirroredVariable";
}

}  // namespace

std::string_view name_of(Aggregation aggregation) {
  switch (aggregation) {
    case Aggregation::sum:
      return "SUM";
    case Aggregation::mean:
      return "MEAN";
    case Aggregation::only_first_replica:
      return "ONLY_FIRST_REPLICA";
    default:
      return "NONE";
  }
}

std::string numpy_name(DataType type) {
  if (type == DataType::boolean) return "bool";
  const std::string name(to_string(type));
  const std::string_view kind = name.starts_with("bf")  ? "bfloat"
                                : name.starts_with('f') ? "float"
                                : name.starts_with('i') ? "int"
                                : name.starts_with('u') ? "uint"
                                                        : "complex";
  return text(kind, name.substr(name.find_first_of("0123456789")));
}

void check_names(const PerReplica<std::string>& names, Origin origin) {
  const auto without_number = [](std::string_view name) {
    const std::size_t last = name.find_last_not_of("0123456789");
    const bool has_one = last != std::string_view::npos && last + 1 < name.size() && name[last] == '_';
    return has_one ? name.substr(0, last) : name;
  };
  for (int i = 1; i < names.size(); ++i) {
    if (without_number(names[i]) == without_number(names[0])) continue;
    throw Error(Code::usage,
                text("one variable, at ", place(origin), ", is named '", printable(names[0]),
                     "' in the first replica of this process and '", printable(names[i]), "' in another"),
                "let all replicas make the same variables in the same order, of the same names");
  }
}

std::uint64_t VariableBase::next_number(Strategy& strategy) { return ++StrategyState::of(strategy).variables; }

VariableBase::VariableBase(Strategy& strategy, std::uint64_t number, VariableOptions options, bool has_fractions,
                           bool adds)
    : here_(StrategyState::of(strategy).here),
      strategy_(&strategy),
      number_(number),
      options_(std::move(options)),
      placement_(strategy.variable_placement()),
      local_(strategy.num_local_replicas()),
      size_(strategy.num_replicas_in_sync()),
      first_(strategy.replica(0).replica_id_in_sync_group()) {
  const auto refuse = [&](const std::string& what, std::string_view mend) {
    throw Error(Code::usage, text(quoted(options_), ": ", what), mend);
  };
  const auto mode = static_cast<unsigned>(options_.synchronization);
  const auto aggregation = static_cast<unsigned>(options_.aggregation);
  if (mode > static_cast<unsigned>(Synchronization::on_read))
    refuse(text("invalid variable synchronization mode ", mode), "use one of Synchronization's");
  if (aggregation > static_cast<unsigned>(Aggregation::only_first_replica))
    refuse(text("invalid variable aggregation mode ", aggregation), "use one of Aggregation's");
  if (options_.synchronization == Synchronization::none)
    refuse("the synchronization mode NONE is not supported by strategies", "leave it out, or use on_write or on_read");
  if (options_.aggregation == Aggregation::mean && !has_fractions)
    refuse("the aggregation MEAN of a type without fractions is not supported",
           "use sum, only_first_replica, or a type with fractions");
  if (options_.aggregation == Aggregation::sum && !adds)
    refuse("the aggregation SUM of bool is not supported", "use integers, or only_first_replica");
  const bool reads = options_.synchronization == Synchronization::on_read;
  if (reads && options_.trainable.value_or(false))
    refuse("a variable that is synchronised on read cannot be trained: its replicas differ",
           "leave out trainable, or synchronise it on write");
  if (!options_.trainable) options_.trainable = !reads;
  if (options_.synchronization == Synchronization::automatic || placement_ == Strategy::VariablePlacement::plain)
    options_.synchronization = Synchronization::on_write;
}

Strategy& VariableBase::strategy() const {
  if (here_.expired())
    throw Error(Code::usage, text(quoted(options_), " has outlived its strategy"), "let the strategy live longer");
  return *strategy_;
}

void VariableBase::agree_on_shape(Strategy& strategy, const TensorShape* mine, Origin origin) {
  if (strategy.num_replicas_in_sync() == strategy.num_local_replicas()) return;
  EncodedShape words{};
  if (mine != nullptr) words = encode_shape(*mine);
  words[0] = mine == nullptr ? -1 : words[0];
  const std::vector<EncodedShape> local(static_cast<std::size_t>(strategy.num_local_replicas()), words);
  if (mine == nullptr) {
    try {
      ReplicaCalls::of(strategy).values_of_all(local, origin);
    } catch (const Error&) {  // Other processes failed too; the caller rethrows this one's error.
    }
    return;
  }
  const std::vector<std::int64_t> all = ReplicaCalls::of(strategy).values_of_all(local, origin);
  for (std::size_t i = 0; i < all.size(); i += words.size()) {
    if (all[i] < 0)
      throw Error(Code::peer_failed,
                  text("replica ", i / words.size(), " could not make its variable, at ", place(origin)),
                  "look at what it says itself");
  }
  const std::vector<TensorShape> shapes = decode_shapes(all);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i] != shapes.front())
      throw Error(Code::usage,
                  text("one variable, at ", place(origin), ", begins with the shape ", shapes.front().to_string(),
                       " at replica 0 and ", shapes[i].to_string(), " at replica ", i),
                  "let all processes begin with the same shape");
  }
}

void VariableBase::require_all(std::string_view call) const {
  if (caller_context(call).kind != CallerKind::all)
    throw Error(Code::usage,
                text(call, " of ", quoted(options_), " is for all replicas, and was called in one, or in update()"),
                "call it outside of run(), or inside the context's merge_call()");
}

CallerContext VariableBase::caller_context(std::string_view call) const {
  const CallerContext who = lockstep::detail::caller_context(strategy());
  if (who.kind == CallerKind::foreign_replica && call != "read")
    throw Error(Code::usage,
                text(call, " in a replica of ", get_strategy().describe(), ": ", quoted(options_),
                     " was made outside of its scope, and the replicas would change it all at once"),
                in_scope);
  return who;
}

bool VariableBase::is_agreed(const CallerContext& who) const {
  if (is_on_read() || size_ == 1 || who.replica == nullptr) return false;
  if (is_central() && options_.aggregation == Aggregation::none)
    throw Error(Code::usage,
                text("an assignment in a replica to ", quoted(options_),
                     ", which all have in common and which has no aggregation"),
                "make it with an aggregation, or assign outside of the replicas");
  return options_.aggregation != Aggregation::none;
}

void VariableBase::run_all(const std::function<Request(Communicator&, int)>& start, Origin origin) const {
  ReplicaCalls::of(strategy()).run_all(start, origin, subject());
}

bool VariableBase::is_spread() const { return size_ > local_; }

int VariableBase::gpu_of(int part) const { return StrategyState::of(strategy()).devices.gpu_of(part); }

void VariableBase::refuse_part(std::string_view call) const {
  throw Error(Code::usage, text(call, "() of ", quoted(options_), " by who has no part of its own of it"),
              "call it in a replica's function, or in update()");
}

void VariableBase::refuse_place(std::string_view call, bool is_here) const {
  throw Error(Code::usage,
              text(call, "() of ", quoted(options_), ", which is ",
                   is_here ? "in the host's memory" : "in a GPU's memory, where the host cannot look"),
              is_here ? "use local()" : "use local_on_gpu() for kernels, or read() and assign(), which copy");
}

void VariableBase::refuse_reading_for_all() const {
  throw Error(
      Code::usage,
      text(quoted(options_), " is synchronised on read and has no aggregation, so for all replicas it has no value"),
      "make it with an aggregation, or read it in a replica");
}

void VariableBase::refuse_change_for_all(std::string_view call) const {
  throw Error(Code::usage,
              text(quoted(options_), ", synchronised on read with the aggregation ", name_of(options_.aggregation),
                   ", does not support ", call, " for all replicas: nobody knows whose it is"),
              "do it in a replica, or assign the whole");
}

void VariableBase::refuse_scatter(std::string_view call, bool only_of_one, bool in_replica) const {
  const auto refuse = [&](const std::string& why, std::string_view mend) {
    throw Error(Code::usage, text(call, " of ", quoted(options_), ": ", why), mend);
  };
  if (is_on_read()) refuse("it is synchronised on read", "use assign, or local() in a replica");
  const bool adds_up = options_.aggregation == Aggregation::sum || options_.aggregation == Aggregation::mean;
  if (in_replica && size_ > 1 && only_of_one && adds_up)
    refuse(text("in a replica this needs another aggregation than ", name_of(options_.aggregation)),
           "make it with only_first_replica, or call it outside of the replicas");
}

void VariableBase::check_shape(const TensorShape& mine, const TensorShape& given, std::string_view call) const {
  if (mine == given) return;
  throw Error(Code::usage,
              text(call, " of ", quoted(options_), " of shape ", mine.to_string(), ": the value's shape is ",
                   given.to_string()),
              "give a value of the variable's shape");
}

void VariableBase::check_sync(const std::vector<std::span<const std::byte>>& parts, std::size_t element,
                              Origin origin) const {
  if (is_on_read() || is_central() || size_ == 1) return;
  std::vector<std::array<std::uint64_t, 1>> mine;
  mine.reserve(parts.size());
  for (const auto& part : parts) mine.push_back({digest(part)});
  const std::vector<std::uint64_t> digests = ReplicaCalls::of(strategy()).values_of_all(mine, origin, subject());
  if (std::ranges::count(digests, digests.front()) == size_) return;
  say_difference(parts, element, digests, origin);
}

// Throws Error out_of_sync. It compares each part with that of a replica from the largest equal group.
void VariableBase::say_difference(const std::vector<std::span<const std::byte>>& parts, std::size_t element,
                                  const std::vector<std::uint64_t>& digests, Origin origin) const {
  const int good = one_of_most(digests);
  std::vector<std::vector<std::byte>> theirs;
  theirs.reserve(parts.size());
  for (const auto& part : parts) theirs.emplace_back(part.begin(), part.end());
  run_all([&](Communicator& member,
              int local) { return member.broadcast_async(theirs[static_cast<std::size_t>(local)], good, origin); },
          origin);
  std::vector<DifferenceRange> mine;
  mine.reserve(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) mine.push_back(compare(parts[i], theirs[i], element));
  const std::vector<std::uint64_t> all = ReplicaCalls::of(strategy()).values_of_all(mine, origin, subject());
  std::string words;
  IndexSet alike;
  for (std::size_t replica = 0; replica < digests.size(); ++replica) {
    const std::uint64_t begin = all[2 * replica];
    const std::uint64_t end = all[2 * replica + 1];
    if (end == 0)
      alike.insert(static_cast<int>(replica));
    else
      words +=
          text(words.empty() ? "" : "; ", "replica ", replica,
               end - begin == 1 ? text(", element ", begin) : text(", between elements ", begin, " and ", end - 1));
  }
  throw Error(Code::out_of_sync,
              text(quoted(options_), " differs from what replicas ", alike.to_string(), " have: ", words),
              "restore it from a checkpoint, or assign it for all; then look for who writes to one replica alone");
}

std::string VariableBase::to_text(const std::vector<std::string>& values, const TensorShape& shape,
                                  DataType type) const {
  const auto one = [&](int replica) {
    const std::string suffix = replica == 0 ? std::string() : text("/replica_", replica);
    return text("<tf.Variable '", printable(options_.name), suffix, ":0' shape=", shape.to_string(),
                " dtype=", numpy_name(type), ", numpy=", values[static_cast<std::size_t>(replica)], '>');
  };
  if (placement_ == Strategy::VariablePlacement::plain) return one(0);
  std::string all;
  for (int i = 0; i < static_cast<int>(values.size()); ++i) all += text(i == 0 ? "\n  " : ",\n  ", i, ": ", one(i));
  return text(class_name(placement_, is_on_read()), ":{", all, "\n}");
}

}  // namespace lockstep::detail
