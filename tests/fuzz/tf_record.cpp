// SPDX-License-Identifier: Apache-2.0
// An example is the same when it is encoded again, also in a TFRecord; other records are read or refused.
#include "runtime/data/files/tf_record.hpp"
#include "runtime/data/files/crc32c.hpp"
#include "runtime/data/files/example.hpp"
#include "tests/fuzz/memory_file.hpp"

namespace {

// Returns the record as the writer leaves it in a file.
std::string record_of(std::string_view bytes) {
  const auto put = [](auto number) { return std::string(reinterpret_cast<const char*>(&number), sizeof number); };
  const std::string length = put(static_cast<std::uint64_t>(bytes.size()));
  return length + put(lockstep::data::masked_crc32c(length)) + std::string(bytes) +
         put(lockstep::data::masked_crc32c(bytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    using namespace lockstep;
    const std::string record = record_of(text);
    auto records = data::from_tf_records(fuzz::file_with(record + record)).open();
    fuzz::require(records.next() == std::string(text) && records.next() == std::string(text) && !records.next());
    try {
      for (auto others = data::from_tf_records(fuzz::file_with(text)).open(); others.next();) continue;
    } catch (const Error& error) {
      fuzz::require(error.code() == Code::file || error.code() == Code::corrupt);
    }
    const data::Example example = data::parse_example(text);
    const std::string encoded = example.encode();
    fuzz::require(data::parse_example(encoded).encode() == encoded);
  });
}
