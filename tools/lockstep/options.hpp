// SPDX-License-Identifier: Apache-2.0
// Describes a subcommand's help and options in one value, and checks the typed words against it. Boost.Program_options
// parses. An unknown option is an error that suggests the nearest known one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::command {

// Describes one option. The texts must outlive the manual.
struct Option {
  std::string_view name;  // such as "synthetic"
  char letter = 0;        // such as 's' for -s; 0: none
  // Names the value in the help, such as "TEXT". An empty one means a flag. "[FILE]" means that the file may be left
  // out: it is then "-", standard output.
  std::string_view value;
  std::string_view meaning;
};

// Describes a subcommand, and is the source of its help page.
struct Manual {
  std::string_view name;         // such as "topo"
  std::string_view one_line;     // for the list of subcommands
  std::string_view synopsis;     // such as "mpirun -n N lockstep topo [--svg FILE]"
  std::string_view description;  // paragraphs with line feeds
  std::vector<Option> options;
  std::string_view examples;    // such as "  command\n      effect\n"
  std::string_view exit_codes;  // one line each
  bool positional = false;      // true if the subcommand takes words that are not options
};

// Holds the typed options and words of a subcommand.
class ParsedOptions {
 public:
  bool has(std::string_view name) const { return values_.contains(std::string(name)); }
  // Returns the last value, if the option was given several times; nothing if it was not given.
  std::optional<std::string> value(std::string_view name) const;
  std::vector<std::string> values(std::string_view name) const;
  // Returns true if the file of that option is "-": standard output then has it instead of the text.
  bool prints(std::string_view name) const { return value(name) == "-"; }
  // These return the default if the option was not given. They throw Error usage if the value is no number, or is out
  // of range.
  std::int64_t integer(std::string_view name, std::int64_t least, std::int64_t most, std::int64_t built_in) const;
  double decimal(std::string_view name, double least, double most, double built_in) const;
  // Returns 0.05 for "5" and for "5%". The bounds and the default are in per cent.
  double percent(std::string_view name, double least, double most, double built_in) const;
  const std::vector<std::string>& words() const { return words_; }
  // Returns all typed words in their order.
  const std::vector<std::string>& arguments() const { return arguments_; }

 private:
  friend ParsedOptions parse(const Manual& manual, const std::vector<std::string>& arguments);

  std::map<std::string, std::vector<std::string>> values_;
  std::vector<std::string> words_;
  std::vector<std::string> arguments_;
};

// Throws Error usage with the mistake and the remedy if `wrong` is true.
void refuse_if(bool wrong, std::string_view what, std::string_view remedy);

// Checks the arguments against the manual. Throws Error usage. Every manual has `--help` implicitly.
ParsedOptions parse(const Manual& manual, const std::vector<std::string>& arguments);

// Returns the help page.
std::string page(const Manual& manual);

// Wraps words into lines of at most `width` columns; longer words stay whole. Each line but the first begins with a
// margin.
std::string wrapped(std::string_view words, std::size_t margin, std::size_t width);
// Returns the columns of the terminal at standard output, from 80 to 120; 100 if there is no terminal.
std::size_t terminal_width();

// Returns true if this process speaks for all before MPI runs: it is rank 0 according to the launcher, or the only one.
bool speaks();

}  // namespace lockstep::command
