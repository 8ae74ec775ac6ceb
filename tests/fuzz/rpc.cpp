// SPDX-License-Identifier: Apache-2.0
// The values of a remote call, as they come from the other side.
#include "runtime/rpc/codec.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    using namespace lockstep;
    const auto bytes = std::as_bytes(std::span(text));
    const auto try_as = [&]<class T>(const T& /*type*/) {
      Writer writer;
      writer.put(std::string_view(rpc::Codec<T>::name()));
      Bytes whole = writer.take();
      whole.insert(whole.end(), bytes.begin(), bytes.end());
      try {
        const T value = rpc::decode<T>(whole);
        fuzz::require(rpc::Codec<T>::name().empty() || rpc::decode<T>(rpc::encode(value)) == value || value != value);
      } catch (const Error& error) {
        fuzz::require(error.code() == Code::bad_message || error.code() == Code::usage);
      }
    };
    try_as(std::vector<std::string>());
    try_as(std::tuple<int, std::optional<std::vector<bool>>, Tensor<float>>());
    try_as(std::vector<std::pair<Tensor<std::int8_t>, std::string>>());
    try_as(Tensor<std::int64_t>());
  });
}
