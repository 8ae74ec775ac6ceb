// SPDX-License-Identifier: Apache-2.0
// Cuts rows into fields, and reads numbers.
#include "runtime/data/files/csv.hpp"

#include <algorithm>
#include <charconv>

#include "runtime/data/files/input_file.hpp"

namespace lockstep::data {
namespace {

// Returns the text without blanks around it, and without a plus.
std::string_view bare_number(std::string_view field) {
  field = trim(field);
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
  return field;
}

// True if a number beyond the range of its type is too near to zero. Else it is too far from zero.
bool is_tiny(std::string_view number) {
  const std::size_t end = std::min(number.find_first_of("eE"), number.size());
  const std::size_t point = std::min(number.find('.'), end);
  const std::size_t first_digit = number.find_first_of("123456789");
  std::string_view digits = number.substr(std::min(end + 1, number.size()));
  if (digits.starts_with('+')) digits.remove_prefix(1);
  std::int64_t exponent = 0;
  const auto [unused, error] = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
  if (error == std::errc::result_out_of_range) return digits.starts_with('-');
  return static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first_digit) < -exponent;
}

template <class T>
bool parse_whole(std::string_view field, T& number) {
  field = bare_number(field);
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (field.empty() || end != field.data() + field.size()) return false;
  if constexpr (std::is_floating_point_v<T>) {
    if (error == std::errc::result_out_of_range && is_tiny(field)) {
      number = field[0] == '-' ? -T{} : T{};
      return true;
    }
  }
  return error == std::errc();
}

}  // namespace

bool parse_csv_number(std::string_view field, std::int64_t& number) { return parse_whole(field, number); }
bool parse_csv_number(std::string_view field, std::uint64_t& number) { return parse_whole(field, number); }
bool parse_csv_number(std::string_view field, double& number) { return parse_whole(field, number); }
bool parse_csv_number(std::string_view field, float& number) { return parse_whole(field, number); }
bool parse_csv_number(std::string_view field, bool& number) {
  field = trim(field);
  number = field == "1" || field == "true" || field == "True" || field == "TRUE";
  return number || field == "0" || field == "false" || field == "False" || field == "FALSE";
}

void require_csv_options(const CsvOptions& options, std::size_t parts) {
  if (std::string_view("\"\r\n").find(options.separator) != std::string_view::npos)
    throw Error(Code::usage, "from_csv() with a quote or an end of line as separator",
                "give a comma, a tab or the like");
  if (!options.columns.empty() && options.columns.size() != parts)
    throw Error(Code::usage,
                text("from_csv() of ", options.columns.size(), " columns for elements of ", parts, " parts"),
                "name one column for each part of the element");
}

CsvReader::CsvReader(const std::vector<std::string>& paths, const CsvOptions& options, std::size_t parts)
    : files_(std::make_unique<FileSequence>(paths)), options_(options), parts_(parts) {}
CsvReader::~CsvReader() = default;

bool CsvReader::read() {
  for (;; files_->leave()) {
    InputFile* const file = files_->current();
    if (file == nullptr) return false;
    if (begun_files_ != files_->number() + 1) begin_file(*file);
    if (!read_row(*file)) continue;
    if (fields_.size() == names_.size()) return true;
    refuse_row(text(fields_.size(), fields_.size() == 1 ? " column" : " columns", " in a table of ", names_.size()),
               "correct the row, or quote separators in its texts");
  }
}

void CsvReader::accept() {
  files_->current()->skip(row_bytes_);
  line_ += row_lines_;
}

// Learns the columns from the first row, and returns to the position.
void CsvReader::begin_file(InputFile& file) {
  const std::uint64_t position = file.offset();
  const std::uint64_t line = line_;
  path_ = file.path();
  names_.clear();
  file.seek(0);
  line_ = 1;
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  if (file.peek(byte_order_mark.size()).starts_with(byte_order_mark)) file.skip(byte_order_mark.size());
  if (read_row(file)) {
    for (const std::string_view field : fields_)
      names_.push_back(options_.has_header ? std::string(field) : text(names_.size()));
    choose_columns();
    if (options_.has_header) accept();
  } else if (options_.has_header) {
    refuse_row("the file has no header", "write one, or set has_header to false");
  }
  if (position > 0) {
    file.seek(position);
    line_ = line;
  }
  begun_files_ = files_->number() + 1;
}

void CsvReader::choose_columns() {
  constexpr std::size_t most_names = 400;
  chosen_.clear();
  for (const std::string& name : options_.columns) {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end())
      refuse_row(text("the table has no column \"", printable(name), '"'),
                 text("it has ", printable(join(names_, ", "), most_names)));
    chosen_.push_back(static_cast<std::size_t>(found - names_.begin()));
  }
  if (!options_.columns.empty()) return;
  if (names_.size() != parts_)
    refuse_row(text("the table has ", names_.size(), " columns, and elements have ", parts_, " parts"),
               "choose columns by CsvOptions::columns");
  for (std::size_t i = 0; i < parts_; ++i) chosen_.push_back(i);
}

// Reads the next row that is not blank; false at the end of the file.
bool CsvReader::read_row(InputFile& file) {
  for (;; accept()) {
    std::string_view bytes = file.peek(1);
    if (bytes.empty()) return false;
    row_bytes_ = cut(bytes, false);
    while (row_bytes_ == 0) {
      const std::size_t before = bytes.size();
      bytes = file.peek(before + 1);
      row_bytes_ = cut(bytes, bytes.size() == before);
    }
    const std::string_view row = bytes.substr(0, row_bytes_);
    row_lines_ = static_cast<std::size_t>(std::ranges::count(row, '\n'));
    if (row.find_first_not_of("\r\n") != std::string_view::npos) return true;
  }
}

// Returns the size of the row at the beginning of the bytes, with its end of line; 0 if the bytes end in it.
std::size_t CsvReader::cut(std::string_view bytes, bool is_all) {
  fields_.clear();
  unquoted_.clear();
  for (std::size_t at = 0;; ++at) {
    const bool is_quoted = at < bytes.size() && bytes[at] == '"';
    at = is_quoted ? cut_quoted(bytes, at, is_all) : cut_plain(bytes, at, is_all);
    if (at == std::string_view::npos) return 0;
    if (at == bytes.size()) return at;
    if (bytes[at] == '\n') return at + 1;
  }
}

// Append a field, and return the position of the separator or the end of line behind it; npos if the bytes end before.
std::size_t CsvReader::cut_plain(std::string_view bytes, std::size_t begin, bool is_all) {
  std::size_t end = begin;
  while (end < bytes.size() && bytes[end] != options_.separator && bytes[end] != '\n') {
    if (bytes[end] == '"')
      refuse_row(text("column ", fields_.size() + 1, " has a quote within a text that does not begin with one"),
                 "quote the whole text, and double the quotes in it");
    ++end;
  }
  if (end == bytes.size() && !is_all) return std::string_view::npos;
  std::string_view field = bytes.substr(begin, end - begin);
  if (field.ends_with('\r') && (end == bytes.size() || bytes[end] == '\n')) field.remove_suffix(1);
  fields_.push_back(field);
  return end;
}

std::size_t CsvReader::cut_quoted(std::string_view bytes, std::size_t begin, bool is_all) {
  std::size_t first = begin + 1;  // Is the beginning of the part that has no doubled quote.
  std::string* unquoted = nullptr;
  std::size_t end = 0;
  for (;;) {
    end = bytes.find('"', first);
    if (end == std::string_view::npos && is_all)
      refuse_row(text("the quote before column ", fields_.size() + 1, " does not end"), "end it by another quote");
    if (end == std::string_view::npos || (end + 1 == bytes.size() && !is_all)) return std::string_view::npos;
    if (end + 1 == bytes.size() || bytes[end + 1] != '"') break;
    if (unquoted == nullptr) unquoted = &unquoted_.emplace_back();
    *unquoted += bytes.substr(first, end + 1 - first);
    first = end + 2;
  }
  if (unquoted != nullptr) *unquoted += bytes.substr(first, end - first);
  fields_.push_back(unquoted != nullptr ? std::string_view(*unquoted) : bytes.substr(first, end - first));
  ++end;
  if (end < bytes.size() && bytes[end] == '\r') {
    ++end;
    if (end == bytes.size() && !is_all) return std::string_view::npos;
  }
  if (end == bytes.size() || bytes[end] == '\n' || (bytes[end] == options_.separator && bytes[end - 1] == '"'))
    return end;
  refuse_row(text("column ", fields_.size(), " goes on behind its last quote"), "double the quotes within a text");
}

void CsvReader::refuse(std::size_t part, DataType type) const {
  const std::size_t column = chosen_[part];
  const std::string_view kind = type == DataType::boolean ? "boolean" : to_string(type);
  throw Error(Code::file,
              text(place(column), " \"", printable(field(part)), "\" is no number of type ", kind,
                   options_.has_header ? text(" for the column \"", printable(names_[column]), '"') : ""),
              "correct the file, or read the column as text or as another type");
}

void CsvReader::refuse_row(std::string_view fault, std::string_view remedy) const {
  constexpr std::size_t most_path = 200;
  throw Error(Code::file, text(printable(path_, most_path), ':', line_, ": ", fault), remedy);
}

// Returns "file:line:column:".
std::string CsvReader::place(std::size_t column) const {
  constexpr std::size_t most_path = 200;
  return text(printable(path_, most_path), ':', line_, ':', column + 1, ':');
}

void CsvReader::save(Writer& to) const {
  files_->save(to);
  to.put(line_);
}

void CsvReader::seek(Reader& from) {
  files_->seek(from);
  line_ = from.get<std::uint64_t>();
  begun_files_ = 0;
}

}  // namespace lockstep::data
