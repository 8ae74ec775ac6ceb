// SPDX-License-Identifier: Apache-2.0
// Decodes the four messages of tf.train.Example: an example has features, which map names to features, each of which
// has a list of bytes, floats or integers. Unknown fields are skipped.
#include "runtime/data/files/example.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::data {
namespace {

enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

// Are the numbers of the fields, and of the kinds of a feature's list.
constexpr std::uint64_t features_field = 1;
constexpr std::uint64_t entry_field = 1;
constexpr std::uint64_t name_field = 1;
constexpr std::uint64_t feature_field = 2;
constexpr std::uint64_t texts_field = 1;
constexpr std::uint64_t floats_field = 2;
constexpr std::uint64_t ints_field = 3;
constexpr std::uint64_t values_field = 1;

constexpr std::array kind_names = {"floats", "ints", "bytes"};  // in the order of Example's variant

struct MessageField {
  std::uint64_t number;
  WireType type;
};

// Reads the fields of a message.
class MessageReader {
 public:
  MessageReader(std::string_view bytes, std::size_t offset) : bytes_(bytes), offset_(offset) {}

  bool is_done() const { return at_ == bytes_.size(); }
  MessageField field() {
    const std::uint64_t key = varint();
    const std::uint64_t type = key & 7U;
    if (key >> 3U == 0 || (type != 0 && type != 1 && type != 2 && type != 5)) refuse("no field begins here");
    return {key >> 3U, static_cast<WireType>(type)};
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
    refuse("a number has more than 64 bits");
  }
  float fixed_float() {
    std::uint32_t bits = 0;
    std::memcpy(&bits, take(sizeof bits).data(), sizeof bits);
    return std::bit_cast<float>(bits);
  }
  // Returns the reader of the bytes of a field.
  MessageReader inner() {
    const std::uint64_t size = varint();
    const std::size_t begin = at_;
    return {take(size), offset_ + begin};
  }
  std::string_view rest() { return take(bytes_.size() - at_); }
  void skip(WireType type) {
    if (type == WireType::varint)
      varint();
    else if (type == WireType::bytes)
      inner();
    else
      take(type == WireType::fixed64 ? 8 : 4);
  }
  // True for a field of this number and of bytes; other fields are skipped.
  bool take_bytes_field(MessageField found, std::uint64_t number) {
    if (found.number == number && found.type == WireType::bytes) return true;
    skip(found.type);
    return false;
  }
  [[noreturn]] void refuse(std::string_view fault) const {
    throw Error(Code::file, text("byte ", offset_ + at_, " of a tf.train.Example: ", fault),
                "give the whole bytes of one, as TFRecord files have them");
  }

 private:
  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - at_) refuse("the bytes end too early");
    const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(size));
    at_ += taken.size();
    return taken;
  }

  std::string_view bytes_;
  std::size_t offset_;  // Is that of the message in the example.
  std::size_t at_ = 0;
};

// Appends the values of lists, which may be packed or not.
void append_list(MessageReader list, Example::Floats& to) {
  while (!list.is_done()) {
    const MessageField field = list.field();
    if (field.number == values_field && field.type == WireType::fixed32) {
      to.push_back(list.fixed_float());
    } else if (list.take_bytes_field(field, values_field)) {
      for (MessageReader packed = list.inner(); !packed.is_done();) to.push_back(packed.fixed_float());
    }
  }
}
void append_list(MessageReader list, Example::Ints& to) {
  while (!list.is_done()) {
    const MessageField field = list.field();
    if (field.number == values_field && field.type == WireType::varint) {
      to.push_back(static_cast<std::int64_t>(list.varint()));
    } else if (list.take_bytes_field(field, values_field)) {
      for (MessageReader packed = list.inner(); !packed.is_done();)
        to.push_back(static_cast<std::int64_t>(packed.varint()));
    }
  }
}
void append_list(MessageReader list, Example::Texts& to) {
  while (!list.is_done()) {
    if (list.take_bytes_field(list.field(), values_field)) to.emplace_back(list.inner().rest());
  }
}

using FeatureValues = std::variant<std::monostate, Example::Floats, Example::Ints, Example::Texts>;

// Continues a list of the same kind, or begins another one: the last kind counts.
template <class List>
void read_list(MessageReader list, FeatureValues& values) {
  if (!std::holds_alternative<List>(values)) values.emplace<List>();
  append_list(list, std::get<List>(values));
}

void read_feature(MessageReader feature, FeatureValues& values) {
  while (!feature.is_done()) {
    const MessageField field = feature.field();
    if (field.type != WireType::bytes || field.number > ints_field) {
      feature.skip(field.type);
      continue;
    }
    const MessageReader list = feature.inner();
    if (field.number == texts_field) read_list<Example::Texts>(list, values);
    if (field.number == floats_field) read_list<Example::Floats>(list, values);
    if (field.number == ints_field) read_list<Example::Ints>(list, values);
  }
}

void read_entry(MessageReader entry, Example& example) {
  std::string name;
  FeatureValues values;
  while (!entry.is_done()) {
    const MessageField field = entry.field();
    if (field.type == WireType::bytes && field.number == name_field)
      name = entry.inner().rest();
    else if (entry.take_bytes_field(field, feature_field))
      read_feature(entry.inner(), values);
  }
  if (auto* const floats = std::get_if<Example::Floats>(&values)) example.set_floats(name, std::move(*floats));
  if (auto* const ints = std::get_if<Example::Ints>(&values)) example.set_ints(name, std::move(*ints));
  if (auto* const texts = std::get_if<Example::Texts>(&values)) example.set_bytes(name, std::move(*texts));
}

void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7U) to += static_cast<char>(value | 0x80U);
  to += static_cast<char>(value);
}
void put_bytes(std::string& to, std::uint64_t field, std::string_view bytes) {
  put_varint(to, field << 3U | static_cast<std::uint64_t>(WireType::bytes));
  put_varint(to, bytes.size());
  to += bytes;
}

std::string encoded_feature(const Example::Floats& values) {
  std::string packed(values.size() * sizeof(float), '\0');
  if (!values.empty()) std::memcpy(packed.data(), values.data(), packed.size());
  std::string list;
  put_bytes(list, values_field, packed);
  std::string feature;
  put_bytes(feature, floats_field, list);
  return feature;
}
std::string encoded_feature(const Example::Ints& values) {
  std::string packed;
  for (const std::int64_t value : values) put_varint(packed, static_cast<std::uint64_t>(value));
  std::string list;
  put_bytes(list, values_field, packed);
  std::string feature;
  put_bytes(feature, ints_field, list);
  return feature;
}
std::string encoded_feature(const Example::Texts& values) {
  std::string list;
  for (const std::string& value : values) put_bytes(list, values_field, value);
  std::string feature;
  put_bytes(feature, texts_field, list);
  return feature;
}

}  // namespace

template <class List>
const List& Example::find(std::string_view name) const {
  const auto found = features_.find(name);
  if (found != features_.end() && std::holds_alternative<List>(found->second)) return std::get<List>(found->second);
  std::vector<std::string> names;
  for (const auto& [each, values] : features_) names.push_back(text(kind_names[values.index()], "(\"", each, "\")"));
  const std::size_t kind = Values(List()).index();
  throw Error(Code::usage, text("an example without ", kind_names[kind], "(\"", printable(name), "\")"),
              names.empty() ? "it has no features" : text("it has ", join(names, ", ")));
}

const Example::Floats& Example::floats(std::string_view name) const { return find<Floats>(name); }
const Example::Ints& Example::ints(std::string_view name) const { return find<Ints>(name); }
const Example::Texts& Example::bytes(std::string_view name) const { return find<Texts>(name); }

std::string Example::encode() const {
  std::string features;
  for (const auto& [name, values] : features_) {
    std::string entry;
    put_bytes(entry, name_field, name);
    put_bytes(entry, feature_field, std::visit([](const auto& each) { return encoded_feature(each); }, values));
    put_bytes(features, entry_field, entry);
  }
  std::string example;
  put_bytes(example, features_field, features);
  return example;
}

Example parse_example(std::string_view bytes) {
  Example example;
  MessageReader message(bytes, 0);
  while (!message.is_done()) {
    if (!message.take_bytes_field(message.field(), features_field)) continue;
    MessageReader features = message.inner();
    while (!features.is_done()) {
      if (features.take_bytes_field(features.field(), entry_field)) read_entry(features.inner(), example);
    }
  }
  return example;
}

}  // namespace lockstep::data
