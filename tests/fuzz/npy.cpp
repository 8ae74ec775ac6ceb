// SPDX-License-Identifier: Apache-2.0
// Arrays of .npy files, and those of .npz files whose first letter is no part of them, have the bytes of their shape.
#include "runtime/data/files/npy.hpp"
#include "runtime/data/files/zip.hpp"
#include "tests/fuzz/memory_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    using namespace lockstep;
    const bool is_zip = text.starts_with("z");
    const std::string path = fuzz::file_with(text.substr(is_zip ? 1 : 0));
    std::vector<std::string> names;
    if (is_zip) {
      for (const data::ZipEntry& entry : data::read_zip_directory(path, std::as_bytes(std::span(text.substr(1)))))
        names.push_back(entry.name);
    }
    for (const data::FileArray& array : is_zip ? data::read_npz(path, names) : data::read_npy(path)) {
      const TensorShape shape(array.lengths);
      fuzz::require(array.bytes.size() == shape.count() * size_of(array.type));
    }
  });
}
