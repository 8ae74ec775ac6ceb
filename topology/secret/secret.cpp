// SPDX-License-Identifier: Apache-2.0
// Makes, reads and uses keys by OpenSSL, and refuses files that others could have written.
#include "topology/secret/secret.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "topology/base/descriptor.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr std::size_t least = 16;   // bytes
constexpr std::size_t most = 4096;  // bytes
constexpr std::string_view remedy =
    "give LOCKSTEP_KEY_FILE a file of 16 to 4096 bytes that only you may read (chmod 600), with the same bytes on all "
    "hosts";

Error refusal(const std::string& path, std::string_view why) {
  return {Code::file, text("the key ", printable(path), ' ', why), remedy};
}

// Refuses a folder of another user, or one that others may write to: they could put another key in place of this one.
void check_folder(const std::filesystem::path& folder) {
  struct stat found {};
  if (::stat(folder.c_str(), &found) != 0) return;
  if (found.st_uid != ::geteuid() && found.st_uid != 0) throw refusal(folder, "is in a folder of another user");
  if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0) throw refusal(folder, "is in a folder that others may write to");
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code failed;
  if (std::filesystem::is_directory(folder, failed)) return;
  if (folder.has_parent_path() && folder.parent_path() != folder) make_folder(folder.parent_path());
  const int made = ::mkdir(folder.c_str(), 0700);
  const int reason = errno;
  if (made != 0 && reason != EEXIST)
    throw refusal(folder, text("cannot be made: ", std::generic_category().message(reason)));
}

// Writes the key whole under another name first, so that a reader finds all of it, or nothing. If two processes make
// one at once, the key of one stays.
void make_secret(const std::string& path) {
  std::array<std::byte, 32> key;
  fill_random(key);
  std::array<std::byte, 8> name;
  fill_random(name);
  const std::string draft = text(path, '.', to_hexadecimal(name));
  const OwnedDescriptor file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const int opened = errno;
  if (!file) throw refusal(path, text("cannot be made: ", std::generic_category().message(opened)));
  const std::string words = text(to_hexadecimal(key), '\n');
  const bool is_written =
      ::write(file.get(), words.data(), words.size()) == static_cast<ssize_t>(words.size()) && ::fsync(file.get()) == 0;
  const int linked = is_written ? ::link(draft.c_str(), path.c_str()) : -1;
  const int reason = errno;
  ::unlink(draft.c_str());
  if (linked != 0 && (!is_written || reason != EEXIST))
    throw refusal(path, text("cannot be written: ", std::generic_category().message(reason)));
}

}  // namespace

bool is_same(std::span<const std::byte> one, std::span<const std::byte> other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

Digest digest_of(std::span<const std::byte> bytes) {
  Digest made{};
  unsigned length = 0;
  const int done = ::EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(made.data()), &length,
                                ::EVP_sha256(), nullptr);
  if (done != 1 || length != made.size()) throw Error(Code::internal, "OpenSSL makes no SHA-256");
  return made;
}

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw system_error("random bytes", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

Secret::Secret(Bytes key, std::string source) : key_(std::move(key)), source_(std::move(source)) {
  if (key_.size() < least)
    throw Error(Code::usage, text("a key of ", key_.size(), " bytes from ", printable(source_)), remedy);
}

Secret::~Secret() { OPENSSL_cleanse(key_.data(), key_.size()); }

Mac Secret::mac(std::span<const std::byte> words) const {
  Mac made{};
  unsigned length = 0;
  const auto* const done = ::HMAC(::EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
                                  reinterpret_cast<const unsigned char*>(words.data()), words.size(),
                                  reinterpret_cast<unsigned char*>(made.data()), &length);
  if (done == nullptr || length != made.size()) throw Error(Code::internal, "OpenSSL makes no HMAC of SHA-256");
  return made;
}

Secret read_secret(const std::string& path) {
  const OwnedDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const int reason = errno;
  if (!file) throw refusal(path, text("cannot be read: ", std::generic_category().message(reason)));
  struct stat found {};
  if (::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode)) throw refusal(path, "is not a file");
  if (found.st_uid != ::geteuid()) throw refusal(path, "belongs to another user");
  if ((found.st_mode & (S_IRWXG | S_IRWXO)) != 0) throw refusal(path, "may be read or written by others");
  Bytes key(most + 1);
  std::size_t size = 0;
  while (size < key.size()) {
    const ssize_t got = ::read(file.get(), key.data() + size, key.size() - size);
    const int failed = errno;
    if (got < 0 && failed == EINTR) continue;
    if (got < 0) throw refusal(path, text("cannot be read: ", std::generic_category().message(failed)));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  key.resize(size);
  while (!key.empty() && (key.back() == std::byte{'\n'} || key.back() == std::byte{'\r'})) key.pop_back();
  if (key.size() < least || size > most)
    throw refusal(path, text("has ", size > most ? "more than " : "", std::min(key.size(), most), " bytes"));
  return {std::move(key), path};
}

Secret secret_of_user(const std::string& path, const Environment& environment) {
  if (!path.empty()) return read_secret(path);
  const auto named = [&](const char* name) { return std::string(environment(name) ? environment(name) : ""); };
  std::string folder = named("XDG_CONFIG_HOME");
  if (!folder.starts_with('/')) folder.clear();  // required by the XDG base directory specification
  if (folder.empty() && !named("HOME").empty()) folder = named("HOME") + "/.config";
  if (folder.empty() && has_raised_rights())
    throw Error(Code::file, "there is no key: a program with raised rights reads neither LOCKSTEP_KEY_FILE nor HOME",
                "let the program set LOCKSTEP_KEY_FILE in its settings");
  if (folder.empty())
    throw Error(Code::file, "there is no key: LOCKSTEP_KEY_FILE names none, and HOME is not set", remedy);
  const std::string usual = folder + "/lockstep/key";
  const std::filesystem::path its_folder = std::filesystem::path(usual).parent_path();
  make_folder(its_folder);
  check_folder(its_folder);
  if (::access(usual.c_str(), F_OK) != 0) make_secret(usual);
  return read_secret(usual);
}

}  // namespace lockstep
