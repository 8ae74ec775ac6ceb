// SPDX-License-Identifier: Apache-2.0
// Holds the writer and, in the same order, the reader. The reader checks each field itself, and uses the library's
// parser only. The library's conversions throw errors without a place.
#include "bench/run_json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Json = nlohmann::json;

constexpr std::string_view schema = "lockstep.bench/1";
constexpr std::string_view of_what = "max over ranks";
constexpr std::string_view gpu_clock = "gpu";  // the clock of the two marks in a stream

std::string dump(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

OrderedJson word_or_null(const std::string& word) { return word.empty() ? OrderedJson(nullptr) : OrderedJson(word); }

template <class T>
OrderedJson or_null(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson json_of(const Interval& interval) { return OrderedJson::array({interval.low, interval.high}); }

OrderedJson json_of(const Summary& time) {
  OrderedJson json = {{"median", time.median}};
  if (time.n > 0) {
    json.update({{"mean", time.mean},
                 {"min", time.min},
                 {"p95", time.p95},
                 {"p99", time.p99},
                 {"max", time.max},
                 {"mad", time.mad}});
  }
  json.update({{"n", time.n}, {"ci95", json_of(time.ci)}, {"of", of_what}});
  return json;
}

OrderedJson json_of(const std::vector<Baseline>& baselines) {
  OrderedJson json = OrderedJson::array();
  for (const Baseline& each : baselines) {
    json.push_back({{"name", each.name},
                    {"algorithm", word_or_null(each.algorithm)},
                    {"time_us", json_of(each.time)},
                    {"ratio", each.ratio.value},
                    {"ratio_ci95", json_of(each.ratio.ci)},
                    {"blocks", each.ratio.blocks}});
  }
  return json;
}

OrderedJson json_of(const StreamTiming& row) {
  return {{"clock", gpu_clock},           {"operations", row.operations},
          {"time_us", json_of(row.time)}, {"algbw_gbs", row.algbw},
          {"busbw_gbs", row.busbw},       {"moved_gbs", row.moved},
          {"copied_gbs", row.copied},     {"baselines", json_of(row.baselines)}};
}

OrderedJson json_of(const Row& row) {
  OrderedJson limit;
  if (row.limit) {
    limit = {{"us", row.limit->us},
             {"binding", row.limit->binding},
             {"percent", row.time.median > 0 ? 100 * row.limit->us / row.time.median : NAN}};
  }
  OrderedJson json = {{"collective", row.collective},
                      {"size_bytes", row.bytes},
                      {"count", row.count},
                      {"type", row.type},
                      {"op", word_or_null(row.op)},
                      {"root", or_null(row.root)},
                      {"in_place", row.in_place},
                      {"cache", row.cold ? "cold" : "hot"},
                      {"algorithm", row.algorithm},
                      {"rounds", row.rounds},
                      {"sent_bytes", row.sent_bytes},
                      {"launch", row.launch},
                      {"time_us", json_of(row.time)},
                      {"algbw_gbs", row.algbw},
                      {"busbw_gbs", row.busbw},
                      {"limit", std::move(limit)},
                      {"baselines", json_of(row.baselines)},
                      {"check",
                       {{"wrong", row.check.wrong},
                        {"ranks_equal", row.check.ranks_equal},
                        {"hash", word_or_null(row.check.hash)},
                        {"same", or_null(row.check.same)}}},
                      {"noise",
                       {{"noisy", row.noise.noisy},
                        {"steal_percent", row.noise.steal_percent},
                        {"involuntary_switches", row.noise.involuntary_switches},
                        {"throttled_us", row.noise.throttled_us}}},
                      {"slowest_rank", or_null(row.slowest_rank)},
                      {"slowest_percent", row.slowest_percent}};
  if (row.in_stream) json["in_stream"] = json_of(*row.in_stream);
  return json;
}

OrderedJson json_of(const PairLink& link) {
  return {{"a", link.a},
          {"b", link.b},
          {"kind", link.kind},
          {"latency_us", link.latency_us},
          {"there_gbs", link.there},
          {"back_gbs", link.back},
          {"both_gbs", link.both},
          {"together_gbs", link.together},
          {"slow", link.slow},
          {"why", word_or_null(link.why)}};
}

OrderedJson json_of(const Fact& fact) { return {{"name", fact.name}, {"value", fact.value}}; }

// Writes a line for each element.
template <class T>
std::string list(const std::vector<T>& elements) {
  std::string all;
  for (const T& each : elements) all += text(all.empty() ? "[\n    " : ",\n    ", dump(json_of(each)));
  return all.empty() ? "[]" : all + "\n  ]";
}

// Holds a value and its place in the file.
class JsonField {
 public:
  JsonField(const Json& value, std::string path, std::string_view file)
      : value_(&value), path_(std::move(path)), file_(file) {}

  JsonField at(std::string_view name) const {
    if (!value_->is_object()) refuse("is not an object");
    const auto found = value_->find(name);
    JsonField field(found == value_->end() ? *value_ : *found,
                    path_.empty() ? std::string(name) : text(path_, '.', name), file_);
    if (found == value_->end()) field.refuse("is missing");
    return field;
  }
  bool has(std::string_view name) const { return value_->is_object() && value_->contains(name); }
  bool is_null() const { return value_->is_null(); }

  std::vector<JsonField> elements() const {
    if (!value_->is_array()) refuse("is not a list");
    std::vector<JsonField> all;
    for (const Json& each : *value_) all.emplace_back(each, text(path_, '[', all.size(), ']'), file_);
    return all;
  }
  std::string word() const {
    if (!value_->is_string()) refuse("is not a text");
    return value_->get<std::string>();
  }
  std::string word_if_any() const { return is_null() ? std::string() : word(); }
  bool flag() const {
    if (!value_->is_boolean()) refuse("is neither true nor false");
    return value_->get<bool>();
  }
  double number() const {
    if (is_null()) return NAN;  // a number that was not finite
    if (!value_->is_number()) refuse("is not a number");
    return value_->get<double>();
  }
  // Accepts 8.0 for 8, because other programs may write that.
  std::uint64_t whole() const {
    if (value_->is_number_unsigned()) return value_->get<std::uint64_t>();
    const double value = value_->is_number() ? value_->get<double>() : -1;
    if (!(value >= 0 && value <= 0x1p53 && value == std::floor(value)))
      refuse("is not a whole number from 0 to 2^64 - 1");
    return static_cast<std::uint64_t>(value);
  }
  int integer() const {
    const double value = value_->is_number() ? value_->get<double>() : NAN;
    if (!(std::abs(value) <= std::numeric_limits<int>::max() && value == std::floor(value)))
      refuse("is not a whole number of 32 bits");
    return static_cast<int>(value);
  }

  [[noreturn]] void refuse(std::string_view what) const {
    throw Error(Code::file, text(file_, ": ", path_.empty() ? "the whole" : path_, ' ', what),
                "docs/bench-json.md describes the fields; write the file again if it was changed by hand");
  }

 private:
  const Json* value_;
  std::string path_;
  std::string_view file_;
};

template <class T, class Read>
std::vector<T> read_all(const JsonField& list, Read read) {
  std::vector<T> all;
  for (const JsonField& each : list.elements()) all.push_back(read(each));
  return all;
}

std::optional<int> integer_if_any(const JsonField& field) {
  return field.is_null() ? std::nullopt : std::optional(field.integer());
}

Interval interval_of(const JsonField& field) {
  const std::vector<JsonField> both = field.elements();
  if (both.size() != 2) field.refuse("does not have two elements");
  return {both[0].number(), both[1].number()};
}

Summary summary_of(const JsonField& field) {
  const JsonField of = field.at("of");
  if (of.word() != of_what) of.refuse(text("is not \"", of_what, '"'));
  Summary time;
  time.n = field.at("n").whole();
  const JsonField median = field.at("median");
  time.median = median.number();
  // A time is 0 (none), or from a picosecond to thirty years.
  if (time.median < 0 || (time.median > 0 && time.median < 1e-6) || time.median > 1e15)
    median.refuse("is not a measured time");
  time.ci = interval_of(field.at("ci95"));
  if (time.n == 0) return time;
  time.mean = field.at("mean").number();
  time.min = field.at("min").number();
  time.p95 = field.at("p95").number();
  time.p99 = field.at("p99").number();
  time.max = field.at("max").number();
  time.mad = field.at("mad").number();
  return time;
}

Baseline baseline(const JsonField& field) {
  return {field.at("name").word(),
          field.at("algorithm").word_if_any(),
          summary_of(field.at("time_us")),
          {field.at("ratio").number(), interval_of(field.at("ratio_ci95")), field.at("blocks").whole()}};
}

StreamTiming stream_timing_of(const JsonField& field) {
  const JsonField its_clock = field.at("clock");
  if (its_clock.word() != gpu_clock) its_clock.refuse(text("is not \"", gpu_clock, '"'));
  StreamTiming row;
  row.operations = field.at("operations").whole();
  row.time = summary_of(field.at("time_us"));
  row.algbw = field.at("algbw_gbs").number();
  row.busbw = field.at("busbw_gbs").number();
  row.moved = field.at("moved_gbs").number();
  row.copied = field.at("copied_gbs").number();
  row.baselines = read_all<Baseline>(field.at("baselines"), baseline);
  return row;
}

ResultCheck check(const JsonField& field) {
  const JsonField same = field.at("same");
  return {field.at("wrong").whole(), field.at("ranks_equal").flag(), field.at("hash").word_if_any(),
          same.is_null() ? std::nullopt : std::optional(same.flag())};
}

Noise noise(const JsonField& field) {
  return {field.at("steal_percent").number(), field.at("involuntary_switches").whole(),
          field.at("throttled_us").number(), field.at("noisy").flag()};
}

bool is_cold(const JsonField& cache) {
  const std::string word = cache.word();
  if (word != "cold" && word != "hot") cache.refuse("is neither \"hot\" nor \"cold\"");
  return word == "cold";
}

Row row_of(const JsonField& field) {
  Row row;
  row.collective = field.at("collective").word();
  row.bytes = field.at("size_bytes").whole();
  row.count = field.at("count").whole();
  row.type = field.at("type").word();
  row.op = field.at("op").word_if_any();
  row.root = integer_if_any(field.at("root"));
  row.in_place = field.at("in_place").flag();
  row.cold = is_cold(field.at("cache"));
  row.algorithm = field.at("algorithm").word();
  if (field.has("rounds")) row.rounds = field.at("rounds").whole();
  if (field.has("sent_bytes")) row.sent_bytes = field.at("sent_bytes").whole();
  row.launch = field.at("launch").integer();
  row.time = summary_of(field.at("time_us"));
  row.algbw = field.at("algbw_gbs").number();
  row.busbw = field.at("busbw_gbs").number();
  const JsonField limit = field.at("limit");
  if (!limit.is_null()) row.limit = Limit{limit.at("us").number(), limit.at("binding").word()};
  row.baselines = read_all<Baseline>(field.at("baselines"), baseline);
  row.check = check(field.at("check"));
  row.noise = noise(field.at("noise"));
  row.slowest_rank = integer_if_any(field.at("slowest_rank"));
  row.slowest_percent = field.at("slowest_percent").number();
  if (field.has("in_stream")) row.in_stream = stream_timing_of(field.at("in_stream"));
  return row;
}

PairLink pair_link(const JsonField& field) {
  return {field.at("a").integer(),         field.at("b").integer(),           field.at("kind").word(),
          field.at("latency_us").number(), field.at("there_gbs").number(),    field.at("back_gbs").number(),
          field.at("both_gbs").number(),   field.at("together_gbs").number(), field.at("slow").flag(),
          field.at("why").word_if_any()};
}

// Both members must be ranks of the run, the smaller first.
PairLink pair_among(const JsonField& field, int ranks) {
  PairLink link = pair_link(field);
  if (link.a < 0 || link.b <= link.a || link.b >= ranks) field.refuse(text("is not a pair of ", ranks, " ranks"));
  return link;
}

Fact fact(const JsonField& field) { return {field.at("name").word(), field.at("value").word()}; }

// Returns the line and column of the byte where the parser stopped.
std::string place(std::string_view json, std::size_t byte) {
  const std::string_view before = json.substr(0, byte > 0 ? byte - 1 : 0);
  const auto lines = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
  const std::size_t start = before.rfind('\n');
  return text("line ", lines + 1, ", column ", before.size() - (start == std::string_view::npos ? 0 : start + 1) + 1);
}

Json parse(std::string_view json, std::string_view file) {
  const auto refuse = [&](std::string_view what) {
    throw Error(Code::file, text(file, what), "write the file again, or copy it again if it was cut off");
  };
  if (trim(json).empty()) refuse(" is empty");
  try {
    return Json::parse(json);
  } catch (const Json::parse_error& error) {
    if (error.byte > json.size())
      refuse(text(" is cut off: it ends in the middle of a value, at ", place(json, error.byte)));
    refuse(text(" is not JSON from ", place(json, error.byte), " on"));
  } catch (const Json::exception&) {
    refuse(" has a number that no computer can hold");
  }
  return {};
}

}  // namespace

std::string to_json(const BenchRun& run) {
  return text("{\n  \"schema\": ", dump(OrderedJson(schema)), ",\n  \"version\": ", dump(OrderedJson(run.version)),
              ",\n  \"commit\": ", dump(OrderedJson(run.commit)), ",\n  \"started\": ", dump(OrderedJson(run.started)),
              ",\n  \"arguments\": ", dump(OrderedJson(run.arguments)), ",\n  \"seed\": ", run.seed,
              ",\n  \"ranks\": ", run.ranks, ",\n  \"nodes\": ", run.nodes, ",\n  \"launches\": ", run.launches,
              ",\n  \"oversubscribed\": ", dump(OrderedJson(run.oversubscribed)),
              ",\n  \"machine\": ", list(run.machine), ",\n  \"settings\": ", list(run.settings),
              ",\n  \"limits\": ", list(run.limits), ",\n  \"topology\": ", dump(word_or_null(run.topology)),
              ",\n  \"rows\": ", list(run.rows), ",\n  \"hosts\": ", dump(OrderedJson(run.hosts)),
              ",\n  \"links\": ", list(run.links), ",\n  \"interrupted\": ", dump(OrderedJson(run.interrupted)),
              ",\n  \"verdict\": ", dump(OrderedJson(run.verdict)), ",\n  \"exit_code\": ", run.exit_code, "\n}\n");
}

BenchRun parse_run(std::string_view json, std::string_view name) {
  const std::string file = printable(name, 200);
  const Json parsed = parse(json, file);
  const JsonField whole(parsed, "", file);
  if (!whole.has("schema")) {
    throw Error(Code::file, text(file, " is not a result of lockstep bench: it has no \"schema\""),
                "give a file that lockstep bench has written as JSON");
  }
  const std::string its_schema = whole.at("schema").word();
  if (its_schema != schema) {
    throw Error(Code::file,
                text(file, " has the schema \"", printable(its_schema), "\", and this version reads \"", schema, "\""),
                "read it with the version of Lockstep that wrote it");
  }
  BenchRun run;
  run.version = whole.at("version").word();
  run.commit = whole.at("commit").word();
  run.started = whole.at("started").word();
  run.arguments = read_all<std::string>(whole.at("arguments"), [](const JsonField& each) { return each.word(); });
  run.seed = whole.at("seed").whole();
  run.ranks = whole.at("ranks").integer();
  run.nodes = whole.at("nodes").integer();
  run.launches = whole.at("launches").integer();
  run.oversubscribed = whole.at("oversubscribed").flag();
  run.machine = read_all<Fact>(whole.at("machine"), fact);
  run.settings = read_all<Fact>(whole.at("settings"), fact);
  run.limits = read_all<Fact>(whole.at("limits"), fact);
  run.rows = read_all<Row>(whole.at("rows"), row_of);
  if (whole.has("topology")) run.topology = whole.at("topology").word_if_any();
  if (whole.has("links")) {
    run.links =
        read_all<PairLink>(whole.at("links"), [&](const JsonField& each) { return pair_among(each, run.ranks); });
    run.hosts = read_all<std::string>(whole.at("hosts"), [](const JsonField& each) { return each.word(); });
    if (!run.links.empty() && run.hosts.size() != static_cast<std::size_t>(run.ranks))
      whole.at("hosts").refuse(text("does not have one name for each of ", run.ranks, " ranks"));
  }
  run.interrupted = whole.at("interrupted").flag();
  run.verdict = whole.at("verdict").word();
  run.exit_code = whole.at("exit_code").integer();
  return run;
}

}  // namespace lockstep::bench
