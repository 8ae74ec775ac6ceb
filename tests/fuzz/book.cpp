// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <vector>

#include "collectives/engine/book.hpp"
#include "collectives/engine/book_reading.hpp"
#include "tests/fuzz/fuzz.hpp"

// The bytes lie over a book that is otherwise in order: its heads, the first page, and some calls.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using lockstep::book::Book;
  static std::vector<std::byte> bytes(sizeof(Book));
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    std::memcpy(bytes.data() + offsetof(Book, magic), &lockstep::book::magic, sizeof lockstep::book::magic);
    std::memcpy(bytes.data() + offsetof(Book, layout), &lockstep::book::layout, sizeof lockstep::book::layout);
    for (const std::size_t begin : {offsetof(Book, process), offsetof(Book, pages), offsetof(Book, pages) + 1100}) {
      const std::size_t count = std::min(text.size(), bytes.size() - begin);
      std::memcpy(bytes.data() + begin, text.data(), count);
    }
    const auto seen = lockstep::book::read(bytes, 0, 1);
    lockstep::fuzz::require(seen.size() <= lockstep::book::most_pages);
    lockstep::book::to_json({.host = "fuzz", .process = 0, .communicators = seen});
  });
}
