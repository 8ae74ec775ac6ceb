// SPDX-License-Identifier: Apache-2.0
// Refuses packed data in a build without zlib.
#include "runtime/data/files/files.hpp"
#include "runtime/data/files/gzip.hpp"

namespace lockstep::data {
namespace {

[[noreturn]] void refuse_packed(const std::string& path) {
  throw Error(Code::file, text(place_of(path), " is compressed, and Lockstep was built without zlib"),
              "install zlib (Debian: zlib1g-dev) and build again, or use a file that is not compressed");
}

}  // namespace

bool has_zlib() { return false; }

struct Inflater::Stream {};

Inflater::Inflater(Wrapping /*wrapping*/, std::string path) { refuse_packed(path); }
Inflater::Inflater(Inflater&&) noexcept = default;
Inflater& Inflater::operator=(Inflater&&) noexcept = default;
Inflater::~Inflater() = default;
std::size_t Inflater::unpack(std::span<const std::byte>& /*packed*/, std::span<std::byte> /*out*/) { return 0; }
bool Inflater::is_complete() const { return true; }

std::string pack_gzip(std::string_view /*content*/, const std::string& path) { refuse_packed(path); }
std::uint32_t crc32(std::span<const std::byte> /*bytes*/) { return 0; }

}  // namespace lockstep::data
