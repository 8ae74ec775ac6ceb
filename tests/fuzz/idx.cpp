// SPDX-License-Identifier: Apache-2.0
// The array of an IDX file has the bytes that its header says, and is the same one when it is written again.
#include "runtime/data/files/idx.hpp"
#include "tests/fuzz/memory_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    using namespace lockstep;
    const data::FileArray array = data::read_idx(fuzz::file_with(text)).front();
    const TensorShape shape(array.lengths);
    fuzz::require(array.bytes.size() == shape.count() * size_of(array.type));
    if (array.type != DataType::f32) return;
    Tensor<float> values(shape);
    data::copy_from_array(array, 0, values.size(), values.data());
    Bytes again(array.bytes.size());
    data::copy_swapped(std::as_bytes(values.span()), sizeof(float), again.data());
    fuzz::require(std::ranges::equal(again, array.bytes));
  });
}
