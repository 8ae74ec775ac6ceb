// gpu-probe: asks a machine what it permits lockstep's GPU paths to do, and prints a table, JSON or Markdown.
// This file holds the options and the reports; the questions are in the files beside it. The process that prints
// never calls CUDA. Exit status: 0 asked a GPU, whatever it answered; 77 there is no GPU to ask; 6 there is a driver
// that does not work; 1 wrong usage or a report not written. SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>

#include "probe.hpp"

namespace gpu_probe {

namespace {

std::vector<Question> all_questions() {
  std::vector<Question> all;
  for (const auto& part : {host_questions(), device_questions(), our_questions(), nccl_questions(), share_questions(),
                           end_questions(), held_questions()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

const Question* find_question(std::string_view id) {
  for (const auto& part : {host_questions(), device_questions(), our_questions(), nccl_questions(), share_questions(),
                           end_questions(), held_questions(), self_questions()})
    for (const Question& question : part)
      if (id == question.id) return &question;
  return nullptr;
}

namespace {

struct Options {
  std::vector<std::string> only;
  std::vector<std::string> skip;
  std::string json;
  std::string markdown;
  int deadline_s = 0;  // 0: each question's own
  bool list = false;
  bool self_test = false;
};

struct Row {
  Question question;
  Outcome outcome;
};

constexpr const char* usage =
    "usage: gpu-probe [--only ID,...] [--skip ID,...] [--deadline SECONDS] [--json FILE] [--markdown FILE]\n"
    "       gpu-probe --list | --self-test\n"
    "An ID may be the beginning of several, such as ipc or rate. --list prints them all.\n";

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

bool begins_with_any(std::string_view id, const std::vector<std::string>& beginnings) {
  for (const std::string& beginning : beginnings)
    if (id.starts_with(beginning)) return true;
  return false;
}

int positive(const std::string& word) {
  char* end = nullptr;
  const long value = std::strtol(word.c_str(), &end, 10);
  if (*end != '\0' || value < 1 || value > 100'000)
    throw std::invalid_argument("--deadline wants whole seconds, 1 to 100000");
  return static_cast<int>(value);
}

Options read_options(const std::vector<std::string>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto next = [&]() -> const std::string& {
      if (i + 1 == words.size()) throw std::invalid_argument(words[i] + " wants a value");
      return words[++i];
    };
    if (words[i] == "--only")
      options.only = split(next());
    else if (words[i] == "--skip")
      options.skip = split(next());
    else if (words[i] == "--json")
      options.json = next();
    else if (words[i] == "--markdown")
      options.markdown = next();
    else if (words[i] == "--deadline")
      options.deadline_s = positive(next());
    else if (words[i] == "--list")
      options.list = true;
    else if (words[i] == "--self-test")
      options.self_test = true;
    else
      throw std::invalid_argument("unknown option " + words[i]);
  }
  for (const auto* chosen : {&options.only, &options.skip})
    for (const std::string& beginning : *chosen) {
      bool known = false;
      for (const Question& question : all_questions())
        known = known || std::string_view(question.id).starts_with(beginning);
      if (!known) throw std::invalid_argument("no question begins with " + beginning);
    }
  return options;
}

const char* name_of(State state) {
  constexpr std::array names{"answered", "refused", "no_gpu", "crashed", "timeout"};
  return names[static_cast<std::size_t>(state)];
}

std::string number(double value) {
  std::array<char, 40> digits{};
  std::snprintf(digits.data(), digits.size(), "%.6g", value);
  return digits.data();
}

std::string figures_of(const Outcome& outcome) {
  std::string all;
  for (const Figure& figure : outcome.figures)
    all += text(all.empty() ? "" : "; ", figure.name, " ", number(figure.value), figure.unit.empty() ? "" : " ",
                figure.unit);
  return all;
}

// Printable ASCII only: what a driver or a tool says may be any bytes, and JSON must stay valid.
std::string quoted(std::string_view words) {
  std::string out = "\"";
  for (const char c : words) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n' || c == '\t')
      out += c == '\n' ? "\\n" : "\\t";
    else
      out += byte < 0x20 || byte > 0x7e ? '?' : c;
  }
  return out + '"';
}

// nan and inf are no JSON.
std::string json_number(double value) { return value - value == 0 ? number(value) : "null"; }

void write_json(std::ostream& out, const std::vector<Row>& rows, const Outcome& driver) {
  const bool gpu = driver.state == State::answered;
  out << "{\n  \"program\": \"gpu-probe\",\n  \"schema\": 1,\n  \"gpu\": " << (gpu ? "true" : "false");
  out << ",\n  \"driver\": " << quoted(driver.answer) << ",\n  \"questions\": [";
  const char* comma = "\n";
  for (const auto& [question, outcome] : rows) {
    out << comma << "    {\"id\": " << quoted(question.id) << ", \"question\": " << quoted(question.question)
        << ", \"needs_gpu\": " << (question.needs == Needs::gpu ? "true" : "false") << ", \"state\": \""
        << name_of(outcome.state) << "\", \"answer\": " << quoted(outcome.answer)
        << ",\n     \"seconds\": " << json_number(outcome.seconds) << ", \"figures\": [";
    const char* between = "";
    for (const Figure& figure : outcome.figures) {
      out << between << "{\"name\": " << quoted(figure.name) << ", \"value\": " << json_number(figure.value)
          << ", \"unit\": " << quoted(figure.unit) << '}';
      between = ", ";
    }
    out << "], \"details\": [";
    between = "";
    for (const std::string& detail : outcome.details) {
      out << between << quoted(detail);
      between = ", ";
    }
    out << "]}";
    comma = ",\n";
  }
  out << "\n  ]\n}\n";
}

std::string cell(std::string words) {
  for (std::size_t at = 0; (at = words.find('|', at)) != std::string::npos; at += 2) words.insert(at, "\\");
  return words;
}

void write_markdown(std::ostream& out, const std::vector<Row>& rows, const Outcome&) {
  out << "| id | question | answer | figures |\n| --- | --- | --- | --- |\n";
  for (const auto& [question, outcome] : rows)
    out << "| " << question.id << " | " << question.question << " | " << cell(outcome.answer) << " | "
        << cell(figures_of(outcome)) << " |\n";
}

void print_row(const Question& question, const Outcome& outcome) {
  std::printf("%-24s | %-44s | %s | %s\n", question.id, question.question, outcome.answer.c_str(),
              figures_of(outcome).c_str());
  std::fflush(stdout);
}

using Writer = std::function<void(std::ostream&, const std::vector<Row>&, const Outcome&)>;

bool write_report(const std::string& path, const Writer& writer, const std::vector<Row>& rows, const Outcome& driver) {
  if (path.empty()) return true;
  std::ofstream out(path);
  writer(out, rows, driver);
  out.flush();
  if (!out) std::fprintf(stderr, "gpu-probe: %s cannot be written\n", path.c_str());
  return static_cast<bool>(out);
}

int ask_all(const Options& options) {
  const Question& first = device_questions().front();
  const Outcome driver = ask(first, options.deadline_s > 0 ? options.deadline_s : first.deadline_s);
  std::printf("%-24s | %-44s | %s | %s\n", "id", "question", "answer", "figure");
  std::vector<Row> rows;
  for (const Question& question : all_questions()) {
    if (!options.only.empty() && !begins_with_any(question.id, options.only)) continue;
    if (begins_with_any(question.id, options.skip)) continue;
    const bool known = question.id == first.id || (question.needs == Needs::gpu && driver.state == State::no_gpu);
    const int deadline_s = options.deadline_s > 0 ? options.deadline_s : question.deadline_s;
    rows.push_back({question, known ? driver : ask(question, deadline_s)});
    print_row(question, rows.back().outcome);
    // After every question: what was learnt stays even if the machine is taken away in the middle.
    if (!write_report(options.json, write_json, rows, driver)) return 1;
  }
  if (!write_report(options.markdown, write_markdown, rows, driver)) return 1;
  if (driver.state == State::answered) return 0;
  const bool none = driver.state == State::no_gpu;
  std::printf("%s: %s\n", none ? "No question that needs a GPU was asked" : "The driver is there but does not work",
              driver.answer.c_str());
  return none ? 77 : 6;
}

int self_test() {
  const auto& questions = self_questions();
  const std::array expected{State::crashed, State::timeout, State::refused};
  int wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Outcome outcome = ask(questions[i], questions[i].deadline_s);
    const bool well = outcome.state == expected[i] && outcome.seconds < 10;
    std::printf("%s %s: %s, %s\n", well ? "ok  " : "FAIL", questions[i].id, name_of(outcome.state),
                outcome.answer.c_str());
    wrong += well ? 0 : 1;
  }
  return wrong == 0 ? 0 : 1;
}

int run(const std::vector<std::string>& words) {
  // Started by ask() or Partner: --ask ID DESCRIPTOR, --partner ID DESCRIPTOR.
  if (words.size() == 3 && (words[0] == "--ask" || words[0] == "--partner")) {
    const Question* question = find_question(words[1]);
    if (question == nullptr || (words[0] == "--partner" && question->partner == nullptr)) return 1;
    const int descriptor = std::atoi(words[2].c_str());
    return words[0] == "--ask" ? answer_alone(*question, descriptor) : answer_as_partner(*question, descriptor);
  }
  const Options options = read_options(words);
  if (options.self_test) return self_test();
  if (!options.list) return ask_all(options);
  for (const Question& question : all_questions())
    std::printf("%-24s | %-8s | %s\n", question.id, question.needs == Needs::gpu ? "GPU" : "anywhere",
                question.question);
  return 0;
}

}  // namespace
}  // namespace gpu_probe

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  try {
    return gpu_probe::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::invalid_argument& wrong) {
    std::fprintf(stderr, "gpu-probe: %s\n%s", wrong.what(), gpu_probe::usage);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "gpu-probe: %s\n", failure.what());
  }
  return 1;
}
