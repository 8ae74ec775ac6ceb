// SPDX-License-Identifier: Apache-2.0
// Reads tables of comma-separated values, with quotes as in RFC 4180. Numbers go straight into the columns of a batch.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/data/files/files.hpp"

namespace lockstep::data {

class FileSequence;
class InputFile;

struct CsvOptions {
  // Chooses the columns for the parts of the element, in order: names of the header, or without a header numbers from
  // "0". By default, an element has all columns.
  std::vector<std::string> columns = {};
  bool has_header = true;
  char separator = ',';
};

// Reads rows as texts.
class CsvReader {
 public:
  // The paths and options must outlive it.
  CsvReader(const std::vector<std::string>& paths, const CsvOptions& options, std::size_t parts);
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;
  ~CsvReader();
  // Reads the row at the position; false at the end. accept() goes behind it.
  bool read();
  void accept();
  // Returns the text for a part of the element. It holds until the next read().
  std::string_view field(std::size_t part) const { return fields_[chosen_[part]]; }
  // Throws Error file for the text of this part.
  [[noreturn]] void refuse(std::size_t part, DataType type) const;

  void save(Writer& to) const;
  void seek(Reader& from);

 private:
  void begin_file(InputFile& file);
  void choose_columns();
  bool read_row(InputFile& file);
  std::size_t cut(std::string_view bytes, bool is_all);
  std::size_t cut_quoted(std::string_view bytes, std::size_t begin, bool is_all);
  std::size_t cut_plain(std::string_view bytes, std::size_t begin, bool is_all);
  [[noreturn]] void refuse_row(std::string_view fault, std::string_view remedy) const;
  std::string place(std::size_t column) const;

  std::unique_ptr<FileSequence> files_;
  const CsvOptions& options_;
  std::size_t parts_;
  std::vector<std::string> names_;   // Has the file's columns.
  std::vector<std::size_t> chosen_;  // Holds the column of each part.
  std::vector<std::string_view> fields_;
  std::deque<std::string> unquoted_;  // Holds fields whose quotes were doubled.
  std::size_t row_bytes_ = 0;
  std::size_t row_lines_ = 0;
  std::uint64_t line_ = 1;       // Is that of the row's beginning.
  std::size_t begun_files_ = 0;  // Counts the files up to the one whose columns are known.
  std::string path_;             // Is that of the current file.
};

// Return the number in a text; false if it is none, or does not fit.
bool parse_csv_number(std::string_view field, std::int64_t& number);
bool parse_csv_number(std::string_view field, std::uint64_t& number);
bool parse_csv_number(std::string_view field, double& number);
bool parse_csv_number(std::string_view field, float& number);
bool parse_csv_number(std::string_view field, bool& number);

// Reads a number of the type T.
template <class T>
bool read_csv_number(std::string_view field, T& number) {
  static_assert(std::is_arithmetic_v<T> || lockstep::detail::is_small_float<T>,
                "lockstep: from_csv() reads real numbers and texts");
  using Parsed =
      std::conditional_t<std::is_same_v<T, bool> || std::is_same_v<T, double>, T,
                         std::conditional_t<!std::is_integral_v<T>, float,
                                            std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>>;
  Parsed parsed{};
  if (!parse_csv_number(field, parsed)) return false;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if (!std::in_range<T>(parsed)) return false;
  }
  number = static_cast<T>(parsed);
  return true;
}

// Gives the rows of tables.
template <class E>
class CsvStage final : public FileStage<Columns<E>> {
 public:
  using C = Columns<E>;
  CsvStage(std::vector<std::string> paths, CsvOptions options)
      : FileStage<C>(std::move(paths)), options_(std::move(options)) {}
  std::unique_ptr<Cursor<C>> open(const Opening& /*opening*/) const override {
    return std::make_unique<CsvCursor>(this->files(), options_);
  }
  std::int64_t length() const override { return unknown_length; }
  std::string describe() const override {
    return describe_source("from_csv", this->files(),
                           options_.columns.empty() ? "" : text("columns ", join(options_.columns, ", ")));
  }
  SharedStage<C> with_files(std::vector<std::string> paths) const override {
    return std::make_shared<CsvStage>(std::move(paths), options_);
  }

 private:
  class CsvCursor final : public Cursor<C> {
   public:
    CsvCursor(const std::vector<std::string>& paths, const CsvOptions& options)
        : reader_(paths, options, std::tuple_size_v<C>) {}
    void save(Writer& to) const override { reader_.save(to); }
    void seek(Reader& from) override { reader_.seek(from); }

   private:
    void read_rows(C& out, std::size_t max_rows) override {
      for (std::size_t i = 0; i < max_rows && reader_.read(); ++i) {
        std::size_t part = 0;
        for_each_column(out, [&](auto& column) { append(column, part++); });
        reader_.accept();
      }
    }
    void append(Column<std::string>& column, std::size_t part) { column.append_row(reader_.field(part)); }
    template <class T>
    void append(Column<T>& column, std::size_t part) {
      T number{};
      if (!read_csv_number(reader_.field(part), number)) reader_.refuse(part, data_type_of<T>);
      *column.append(TensorShape(), 1) = number;
    }

    CsvReader reader_;
  };

  CsvOptions options_;
};

// Throws Error usage for options that do not fit the elements.
void require_csv_options(const CsvOptions& options, std::size_t parts);

// Returns the rows of the files' tables as elements: a number, a text, or a tuple or struct of them. The files may be
// gzip files.
template <class E>
Dataset<E> from_csv(const Files& files, CsvOptions options = {}) {
  static_assert(lockstep::detail::all_leaves<E>([]<class Leaf>() { return !is_tensor<Leaf>; }),
                "lockstep: a column of from_csv() is a number or a text; make tensors by map()");
  require_csv_options(options, std::tuple_size_v<Columns<E>>);
  return Dataset<E>(std::make_shared<CsvStage<E>>(files.paths(), std::move(options)));
}

}  // namespace lockstep::data
