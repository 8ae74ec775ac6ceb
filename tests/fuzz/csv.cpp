// SPDX-License-Identifier: Apache-2.0
// Rows of tables are the same when they are read from a position, and when they are written again.
#include "runtime/data/files/csv.hpp"
#include "tests/fuzz/memory_file.hpp"

namespace lockstep {
namespace {

using Row = std::tuple<std::string, std::string>;

std::string quoted(std::string_view field) {
  std::string all = "\"";
  for (const char letter : field) all.append(letter == '"' ? 2 : 1, letter);
  return all + '"';
}

std::vector<Row> rows_of(DatasetIterator<Row> iterator) {
  std::vector<Row> rows;
  while (std::optional<Row> row = iterator.next()) rows.push_back(*row);
  return rows;
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    using namespace lockstep;
    const data::CsvOptions options{.has_header = text.starts_with("h")};
    const auto rows = data::from_csv<Row>(fuzz::file_with(text.substr(text.empty() ? 0 : 1)), options);
    const std::vector<Row> all = rows_of(rows.open());
    auto iterator = rows.open();
    if (all.size() > 1) iterator.next();
    auto other = rows.open();
    other.seek(iterator.position());
    fuzz::require(rows_of(std::move(other)) == rows_of(std::move(iterator)));
    std::string again = "x,y\n";
    for (const auto& [first, second] : all) again += quoted(first) + ',' + quoted(second) + '\n';
    fuzz::require(rows_of(data::from_csv<Row>(fuzz::file_with(again)).open()) == all);
    double number = 0;
    for (const auto& [first, second] : all) data::read_csv_number(first, number);
  });
}
