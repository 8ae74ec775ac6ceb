// SPDX-License-Identifier: Apache-2.0
// A subcommand's manual and options in one value, and what was typed checked against it. Parsing is
// Boost.Program_options'; unknown words are answered with the nearest known one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::command {

struct Option {
  std::string_view name;  // "synthetic"
  char letter = 0;        // 's' for -s; 0: none
  // What stands for the value in the manual, "TEXT"; empty: a flag; "[FILE]": "-", which is standard output, if none
  // follows.
  std::string_view value;
  std::string_view meaning;
};

struct Manual {
  std::string_view name;         // "topo"
  std::string_view one_line;     // for the list of subcommands
  std::string_view synopsis;     // "mpirun -n N lockstep topo [--svg FILE]"
  std::string_view description;  // paragraphs, wrapped at 80
  std::vector<Option> options;
  std::string_view examples;    // "  command\n      what it does\n"
  std::string_view exit_codes;  // one line each
  bool positional = false;      // takes words that are not options
};

class ParsedOptions {
 public:
  bool has(std::string_view name) const { return values_.contains(std::string(name)); }
  // The last one given.
  std::optional<std::string> value(std::string_view name) const;
  std::vector<std::string> values(std::string_view name) const;
  // True if the file of that option is "-", which is standard output and takes the place of the text.
  bool prints(std::string_view name) const { return value(name) == "-"; }
  // These throw Error usage when it is no number, or no whole one, in the range.
  std::int64_t integer(std::string_view name, std::int64_t least, std::int64_t most, std::int64_t built_in) const;
  double decimal(std::string_view name, double least, double most, double built_in) const;
  // "5" or "5%" is 0.05.
  double percent(std::string_view name, double least, double most, double built_in) const;
  const std::vector<std::string>& words() const { return words_; }
  // All that was typed, in its order.
  const std::vector<std::string>& arguments() const { return arguments_; }

 private:
  friend ParsedOptions parse(const Manual& manual, const std::vector<std::string>& arguments);

  std::map<std::string, std::vector<std::string>> values_;
  std::vector<std::string> words_;
  std::vector<std::string> arguments_;
};

// Throws Error usage if something is wrong: what it is, and the remedy.
void refuse_if(bool wrong, std::string_view what, std::string_view mend);

// Throws Error usage. `--help` is in every manual.
ParsedOptions parse(const Manual& manual, const std::vector<std::string>& arguments);

std::string page(const Manual& manual);

// Returns the words in lines of at most `width` columns (longer words stay whole), each but the first behind a margin.
std::string wrapped(std::string_view words, std::size_t margin, std::size_t width);
// Returns the columns of the terminal that standard output is, from 80 to 120; 100 for anything else.
std::size_t terminal_width();

// Whether this process is the one that speaks for all before MPI is up: rank 0 by the launcher's
// account, or the only one.
bool speaks();

}  // namespace lockstep::command
