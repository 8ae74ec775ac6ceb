// SPDX-License-Identifier: Apache-2.0
// Parses options with Boost.Program_options, and prints help pages.
#include "tools/lockstep/options.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>

#include "topology/base/environment.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/launcher.hpp"

namespace lockstep::command {
namespace {

namespace po = boost::program_options;

// Is the width of help pages in columns; it does not depend on the terminal, so that tests can compare pages.
constexpr std::size_t help_width = 100;

// Throws Error usage, with the help of the subcommand as a remedy.
[[noreturn]] void refuse(const Manual& manual, std::string_view what, std::string_view remedy = {}) {
  const std::string help = text("`lockstep ", manual.name, manual.name.empty() ? "" : " ", "--help` lists the options");
  throw Error(Code::usage, what, remedy.empty() ? help : text(remedy, "; ", help));
}

// Returns the name as Boost takes it: "output,o".
std::string boost_name(const Option& option) {
  return option.letter == 0 ? std::string(option.name) : text(option.name, ",", option.letter);
}

// Names the nearest option, because most unknown options are misspelt.
[[noreturn]] void refuse_unknown(const Manual& manual, const std::string& word) {
  std::vector<std::string> names{"--help"};
  for (const Option& option : manual.options) names.push_back(text("--", option.name));
  const auto near = nearest(word.substr(0, word.find('=')), names);
  refuse(manual, text("there is no option \"", printable(word), "\""), near ? text("did you mean ", *near, "?") : "");
}

// Gives Boost the options. All values are texts here; the accessors check their types.
po::options_description describe(const Manual& manual) {
  po::options_description all;
  all.add_options()("help,h", "");
  for (const Option& option : manual.options) {
    if (option.value.empty()) {
      all.add_options()(boost_name(option).c_str(), "");
    } else {
      all.add_options()(boost_name(option).c_str(), po::value<std::vector<std::string>>(), "");
    }
  }
  return all;
}

// True for options such as --json, which may be without a file.
bool is_option_with_file(const Manual& manual, const std::string& word) {
  return std::ranges::any_of(manual.options, [&](const Option& option) {
    return option.value == "[FILE]" && word == text("--", option.name);
  });
}

// Returns true if the next word is the file of the option. It refuses a word that could be either.
bool names_file(const Manual& manual, const std::string& option, const std::string& next) {
  if (next != "-" && next.starts_with('-')) return false;
  if (manual.positional && !next.empty() && next != "-" && next.find_first_of("./") == std::string::npos)
    refuse(manual, text(option, ' ', printable(next), ": that may be a file, or a word of its own"),
           text("write ", option, '=', printable(next), " for a file, or put ", option, " last"));
  return true;
}

// Inserts "-" after each option that is given without its file.
std::vector<std::string> with_files(const Manual& manual, const std::vector<std::string>& arguments) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--")
      return all.insert(all.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end()), all;
    all.push_back(arguments[i]);
    if (!is_option_with_file(manual, arguments[i])) continue;
    const bool is_named = i + 1 < arguments.size() && names_file(manual, arguments[i], arguments[i + 1]);
    all.push_back(is_named ? arguments[++i] : "-");
  }
  return all;
}

}  // namespace

void refuse_if(bool wrong, std::string_view what, std::string_view remedy) {
  if (wrong) throw Error(Code::usage, what, remedy);
}

// Guessing of abbreviations is off: a new option would change the meaning of a script.
ParsedOptions parse(const Manual& manual, const std::vector<std::string>& arguments) {
  ParsedOptions parsed;
  parsed.arguments_ = arguments;
  try {
    const po::options_description description = describe(manual);
    namespace style = po::command_line_style;
    const auto result = po::command_line_parser(with_files(manual, arguments))
                            .options(description)
                            .style(style::unix_style & ~style::allow_guessing)
                            .allow_unregistered()
                            .run();
    for (const auto& option : result.options) {
      const std::string typed = option.original_tokens.empty() ? option.string_key : option.original_tokens.front();
      if (option.unregistered) refuse_unknown(manual, typed);
      if (option.position_key >= 0) {
        if (!manual.positional) refuse(manual, text("the word \"", printable(typed), "\" is not expected here"));
        parsed.words_.push_back(typed);
        continue;
      }
      auto& values = parsed.values_[option.string_key];
      values.insert(values.end(), option.value.begin(), option.value.end());
    }
  } catch (const po::error& error) {
    refuse(manual, printable(error.what(), 200));
  }
  return parsed;
}

std::optional<std::string> ParsedOptions::value(std::string_view name) const {
  const auto found = values_.find(std::string(name));
  if (found == values_.end() || found->second.empty()) return std::nullopt;
  return found->second.back();
}

std::vector<std::string> ParsedOptions::values(std::string_view name) const {
  const auto found = values_.find(std::string(name));
  return found == values_.end() ? std::vector<std::string>{} : found->second;
}

std::int64_t ParsedOptions::integer(std::string_view name, std::int64_t least, std::int64_t most,
                                    std::int64_t built_in) const {
  const auto given = value(name);
  if (!given) return built_in;
  const auto number = parse_integer(*given);
  if (!number || *number < least || *number > most) {
    throw Error(Code::usage, text("--", name, " \"", printable(*given), "\""),
                text("give a whole number from ", least, " to ", most));
  }
  return *number;
}

namespace {

// Parses the digits, and names the whole given word in the error.
double option_number(std::string_view name, const std::string& given, std::string_view digits, double least,
                     double most) {
  const auto number = parse_number(digits);
  if (number && *number >= least && *number <= most) return *number;
  throw Error(Code::usage, text("--", name, " is \"", printable(given), '"'),
              text("give a number from ", least, " to ", most));
}

}  // namespace

double ParsedOptions::decimal(std::string_view name, double least, double most, double built_in) const {
  const auto given = value(name);
  return given ? option_number(name, *given, *given, least, most) : built_in;
}

double ParsedOptions::percent(std::string_view name, double least, double most, double built_in) const {
  const auto given = value(name);
  if (!given) return built_in / 100;
  const std::string_view digits(*given);
  return option_number(name, *given, digits.ends_with('%') ? digits.substr(0, digits.size() - 1) : digits, least,
                       most) /
         100;
}

// Breaks a line before the width; following lines begin at the margin.
std::string wrapped(std::string_view words, std::size_t margin, std::size_t width) {
  std::string all;
  std::size_t at = margin;
  for (const std::string& word : split(words, ' ')) {
    if (at + word.size() + 1 > width && at > margin) {
      all += text("\n", std::string(margin, ' '));
      at = margin;
    } else if (at > margin) {
      all += ' ';
      ++at;
    }
    all += word;
    at += word.size();
  }
  return all;
}

std::size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return help_width;
  return std::clamp<std::size_t>(size.ws_col, 80, 120);
}

// Returns the help page of a subcommand.
std::string page(const Manual& manual) {
  std::string all = text("lockstep ", manual.name, " - ", manual.one_line, "\n\nUSE\n  ", manual.synopsis, "\n");
  if (!manual.description.empty()) all += text("\n", manual.description, "\n");
  all += "\nOPTIONS\n";
  std::vector<Option> options = manual.options;
  options.push_back({"help", 'h', "", "Print this page."});
  for (const Option& option : options) {
    std::string left =
        option.letter == 0 ? text("      --", option.name) : text("  -", option.letter, ", --", option.name);
    if (!option.value.empty()) left += text(" ", option.value);
    constexpr std::size_t column = 30;
    if (left.size() + 2 > column)
      left += text("\n", std::string(column, ' '));
    else
      left.resize(column, ' ');
    all += text(left, wrapped(option.meaning, column, help_width), "\n");
  }
  if (!manual.examples.empty()) all += text("\nEXAMPLES\n", manual.examples);
  if (!manual.exit_codes.empty()) all += text("\nEXIT CODES\n", manual.exit_codes);
  return all;
}

bool speaks() {
  const auto rank = launcher_rank(process_environment);
  return rank.value_or(0) == 0;
}

}  // namespace lockstep::command
