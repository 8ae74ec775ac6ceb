// SPDX-License-Identifier: Apache-2.0
#include "tools/lockstep/options.hpp"

#include <boost/program_options.hpp>
#include <cstdlib>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/launcher.hpp"

namespace lockstep::command {
namespace {

namespace po = boost::program_options;

[[noreturn]] void refuse(const Manual& manual, std::string_view what, std::string_view mend = {}) {
  const std::string help = text("`lockstep ", manual.name, manual.name.empty() ? "" : " ", "--help` lists the options");
  throw Error(Code::usage, what, mend.empty() ? help : text(mend, "; ", help));
}

std::string boost_name(const Option& option) {
  return option.letter == 0 ? std::string(option.name) : text(option.name, ",", option.letter);
}

[[noreturn]] void refuse_unknown(const Manual& manual, const std::string& word) {
  std::vector<std::string> names{"--help"};
  for (const Option& option : manual.options) names.push_back(text("--", option.name));
  const auto near = nearest(word.substr(0, word.find('=')), names);
  refuse(manual, text("there is no option \"", printable(word), "\""), near ? text("did you mean ", *near, "?") : "");
}

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

}  // namespace

Parsed parse(const Manual& manual, const std::vector<std::string>& arguments) {
  Parsed parsed;
  parsed.arguments_ = arguments;
  try {
    const po::options_description description = describe(manual);
    namespace style = po::command_line_style;
    const auto result = po::command_line_parser(arguments)
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

std::optional<std::string> Parsed::value(std::string_view name) const {
  const auto found = values_.find(std::string(name));
  if (found == values_.end() || found->second.empty()) return std::nullopt;
  return found->second.back();
}

std::vector<std::string> Parsed::values(std::string_view name) const {
  const auto found = values_.find(std::string(name));
  return found == values_.end() ? std::vector<std::string>{} : found->second;
}

std::int64_t Parsed::integer(std::string_view name, std::int64_t least, std::int64_t most,
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

double number_of(std::string_view name, const std::string& given, std::string_view digits, double least, double most) {
  const auto number = parse_number(digits);
  if (number && *number >= least && *number <= most) return *number;
  throw Error(Code::usage, text("--", name, " is \"", printable(given), '"'),
              text("give a number from ", least, " to ", most));
}

}  // namespace

double Parsed::decimal(std::string_view name, double least, double most, double built_in) const {
  const auto given = value(name);
  return given ? number_of(name, *given, *given, least, most) : built_in;
}

double Parsed::percent(std::string_view name, double least, double most, double built_in) const {
  const auto given = value(name);
  if (!given) return built_in / 100;
  const std::string_view digits(*given);
  return number_of(name, *given, digits.ends_with('%') ? digits.substr(0, digits.size() - 1) : digits, least, most) /
         100;
}

namespace {

// Text behind a column, wrapped at 100.
std::string wrapped(std::string_view words, std::size_t column) {
  std::string all;
  std::size_t at = column;
  for (const std::string& word : split(words, ' ')) {
    if (at + word.size() + 1 > 100 && at > column) {
      all += text("\n", std::string(column, ' '));
      at = column;
    } else if (at > column) {
      all += ' ';
      ++at;
    }
    all += word;
    at += word.size();
  }
  return all;
}

}  // namespace

std::string page(const Manual& manual) {
  std::string all = text("lockstep ", manual.name, " - ", manual.one_line, "\n\nUSE\n  ", manual.synopsis, "\n");
  if (!manual.description.empty()) all += text("\n", manual.description, "\n");
  all += "\nOPTIONS\n";
  std::vector<Option> options = manual.options;
  options.push_back({"help", 'h', "", "This page."});
  for (const Option& option : options) {
    std::string left =
        option.letter == 0 ? text("      --", option.name) : text("  -", option.letter, ", --", option.name);
    if (!option.value.empty()) left += text(" ", option.value);
    constexpr std::size_t column = 30;
    if (left.size() + 2 > column)
      left += text("\n", std::string(column, ' '));
    else
      left.resize(column, ' ');
    all += text(left, wrapped(option.meaning, column), "\n");
  }
  if (!manual.examples.empty()) all += text("\nEXAMPLES\n", manual.examples);
  if (!manual.exit_codes.empty()) all += text("\nEXIT CODES\n", manual.exit_codes);
  return all;
}

bool speaks() {
  const auto rank = launcher_rank([](const char* name) { return static_cast<const char*>(std::getenv(name)); });
  return rank.value_or(0) == 0;
}

}  // namespace lockstep::command
