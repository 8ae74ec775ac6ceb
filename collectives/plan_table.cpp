// SPDX-License-Identifier: Apache-2.0
// Parses plan tables and forced algorithms word by word, so that every error can name the word and its line.
#include "collectives/plan_table.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr std::string_view columns = "collective members nodes bytes algorithm segment provenance";
constexpr std::string_view ranges = "a number, a-b, a+ (and more) or * (any); K, M, G and T are powers of 1024";

// Returns the collectives that have algorithms, for error messages.
std::vector<std::string> collective_names() {
  std::set<std::string> names;
  for (const Algorithm& each : algorithms()) names.emplace(to_string(each.collective));
  return {names.begin(), names.end()};
}

// Returns the algorithms of a collective, for error messages.
std::vector<std::string> names_for(Collective collective) {
  std::vector<std::string> names = {std::string(node_algorithm)};
  for (const Algorithm& each : algorithms()) {
    if (each.collective == collective) names.emplace_back(each.name);
  }
  return names;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& names) {
  const auto suggestion = nearest(word, names);
  return text(suggestion ? text("did you mean ", *suggestion, "? ") : "", "choose from ", join(names, ", "));
}

[[noreturn]] void refuse(std::string_view what, std::string_view remedy) {
  throw Error(Code::bad_setting, what, remedy);
}

// Returns the collective of this name. `where` begins the error's sentence, such as "line 3 of the plan table".
Collective collective_named(std::string_view word, std::string_view where) {
  const auto collective = parse_collective(word);
  const std::vector<std::string> names = collective_names();
  if (!collective || std::ranges::find(names, to_string(*collective)) == names.end())
    refuse(text(where, ": there is no collective \"", printable(word), "\" to plan"), suggestion(word, names));
  return *collective;
}

// Returns the algorithm of this name; null for the one without a schedule.
const Algorithm* algorithm_named(Collective collective, std::string_view word, std::string_view where) {
  const Algorithm* found = find_algorithm(collective, word);
  if (found == nullptr && word != node_algorithm)
    refuse(text(where, ": there is no algorithm \"", printable(word), "\" for ", to_string(collective)),
           suggestion(word, names_for(collective)));
  return found;
}

// Takes the next word off the beginning of a line.
std::string_view next_word(std::string_view& line) {
  line = trim(line);
  const std::size_t end = std::min(line.find_first_of(" \t\r"), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

// Parses "8", "8-64", "8+" or "*". Returns nothing for any other text.
std::optional<AmountRange> parse_range(std::string_view word) {
  if (word == "*") return AmountRange{};
  const bool more = word.ends_with('+');
  if (more) word.remove_suffix(1);
  const std::size_t dash = word.find('-');
  const auto least = parse_amount(word.substr(0, dash));
  if (!least || (more && dash != std::string_view::npos)) return std::nullopt;
  if (more) return AmountRange{.least = *least};
  if (dash == std::string_view::npos) return AmountRange{*least, *least};
  const auto most = parse_amount(word.substr(dash + 1));
  if (!most || *most < *least) return std::nullopt;
  return AmountRange{*least, *most};
}

AmountRange range_named(std::string_view word, std::string_view column, std::string_view where) {
  const auto range = parse_range(word);
  if (!range)
    refuse(text(where, ": \"", printable(word), "\" is not a range of ", column), text("allowed is ", ranges));
  return *range;
}

// Returns the size of a segment in bytes; 0 leaves the buffer whole. Refuses a size that the algorithm cannot use.
std::uint64_t segment_named(std::string_view word, const Algorithm* algorithm, std::string_view where) {
  const auto bytes = parse_amount(word);
  if (!bytes)
    refuse(text(where, ": \"", printable(word), "\" is not a number of bytes for the segment"),
           "allowed is 0 (whole) or a number with K, M, G or T");
  if (*bytes > 0 && algorithm == nullptr)
    refuse(text(where, ": ", node_algorithm, " takes segments of its own"), "write 0");
  if (*bytes > 0 && !algorithm->pieces && !can_be_cut(*algorithm))
    refuse(text(where, ": ", to_string(algorithm->collective), " by ", algorithm->name, " is not done in segments"),
           "write 0");
  return *bytes;
}

// Parses the seven columns of a row; the last one holds the rest of the line.
TableRow parse_row(std::string_view line, std::string_view where) {
  std::array<std::string_view, 6> words;
  for (std::string_view& word : words) word = next_word(line);
  const std::string_view provenance = trim(line);
  if (provenance.empty())
    refuse(text(where, " has fewer than seven words"),
           text("the columns are ", columns, "; provenance says where and when it was measured"));
  TableRow row;
  row.collective = collective_named(words[0], where);
  row.members = range_named(words[1], "members", where);
  row.nodes = range_named(words[2], "nodes", where);
  row.bytes = range_named(words[3], "bytes", where);
  const Algorithm* algorithm = algorithm_named(row.collective, words[4], where);
  row.algorithm = words[4];
  row.segment_bytes = segment_named(words[5], algorithm, where);
  row.provenance = printable(provenance, 200);
  return row;
}

// Returns the number in "for 0123456789abcdef"; nothing if the line is a row.
std::optional<std::uint64_t> kind_named(std::string_view line, std::string_view where) {
  if (next_word(line) != "for") return std::nullopt;
  const std::string_view word = trim(line);
  std::uint64_t kind = 0;
  constexpr int hex = 16;
  constexpr std::size_t digits = 16;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), kind, hex);
  if (word.size() != digits || error != std::errc{} || end != word.data() + word.size())
    refuse(text(where, ": \"", printable(word, 200), "\" is not a kind of machine"),
           "after \"for\" come the 16 digits that `lockstep tune` writes");
  return kind;
}

// Calls use(line, number, where) for each line that has text besides a comment.
template <class Use>
void each_line(std::string_view text, std::string_view name, const Use& use) {
  const std::string shown = printable(name, 200);
  if (text.size() > most_table_bytes)
    refuse(lockstep::text(shown, " has ", format_bytes(text.size())),
           lockstep::text("at most ", format_bytes(most_table_bytes), " are read"));
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view said = trim(line.substr(0, line.find('#')));
    if (!said.empty()) use(said, number, lockstep::text("line ", number, " of ", shown));
  }
}

}  // namespace

std::optional<std::uint64_t> parse_amount(std::string_view text) {
  constexpr std::string_view units = "KMGT";
  std::uint64_t scale = 1;
  if (!text.empty()) {
    const auto upper = text.back() >= 'a' ? static_cast<char>(text.back() - 'a' + 'A') : text.back();
    if (const std::size_t unit = units.find(upper); unit != std::string_view::npos) {
      scale = std::uint64_t{1} << (10 * (unit + 1));
      text.remove_suffix(1);
    }
  }
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  constexpr std::uint64_t most = std::uint64_t{1} << 63U;
  if (error != std::errc{} || end != text.data() + text.size() || number > most / scale) return std::nullopt;
  return number * scale;
}

std::vector<TableRow> parse_plan_table(std::string_view text, std::string_view name) {
  std::vector<TableRow> rows;
  each_line(text, name, [&](std::string_view line, int number, const std::string& where) {
    if (kind_named(line, where)) return;
    rows.push_back(parse_row(line, where));
    rows.back().line = number;
  });
  return rows;
}

void refuse_foreign_table(std::string_view text, std::string_view name, const Topology& topology) {
  each_line(text, name, [&](std::string_view line, int, const std::string& where) {
    const auto kind = kind_named(line, where);
    if (kind && *kind != topology.kind())
      refuse(lockstep::text(where, " says that the table is for ", hexadecimal(*kind),
                            ": other machines, or members at other places, than here, ", hexadecimal(topology.kind())),
             "measure here with `lockstep tune`, or unset LOCKSTEP_TABLE; if the table suits, delete that line");
  });
}

std::vector<ForcedAlgorithm> parse_forced_algorithms(std::string_view text, std::string_view name) {
  std::vector<ForcedAlgorithm> all;
  if (trim(text).empty() || trim(text) == "auto") return all;
  for (const std::string& entry : split(text, ',')) {
    const std::string_view word = trim(entry);
    const std::string where = lockstep::text(name, ", \"", printable(word), "\"");
    const std::size_t colon = word.find(':');
    if (colon == std::string_view::npos)
      refuse(where, "write collective:algorithm, with commas between several: all_reduce:ring,broadcast:chain");
    const Collective collective = collective_named(trim(word.substr(0, colon)), where);
    const std::string_view wanted = trim(word.substr(colon + 1));
    algorithm_named(collective, wanted, where);
    if (std::ranges::find(all, collective, &ForcedAlgorithm::collective) != all.end())
      refuse(lockstep::text(where, ": ", to_string(collective), " is named twice"), "leave one of them");
    all.push_back({collective, std::string(wanted)});
  }
  return all;
}

}  // namespace lockstep
