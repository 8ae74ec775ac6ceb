// SPDX-License-Identifier: Apache-2.0
// Copies and prints tensors whose type is known at run time only.
#include "runtime/any_tensor.hpp"

#include <cstring>
#include <type_traits>
#include <vector>

#include "collectives/visit_type.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// Returns the text of an element in the host's memory.
template <class T>
std::string element_text(const std::byte* memory, std::size_t i, bool is_scalar) {
  T element{};
  std::memcpy(&element, memory + i * sizeof(T), sizeof(T));
  return is_scalar ? detail::scalar_words(element) : detail::element_words(element);
}

using ElementText = std::string (*)(const std::byte* memory, std::size_t i, bool is_scalar);
ElementText element_text_of(DataType type) {
  return visit_type(type, [&]<class T>(std::type_identity<T> /*for its type*/) -> ElementText {
    if constexpr (std::is_void_v<T>)
      throw Error(Code::usage, text("a tensor of the type ", to_string(type)), "use numbers, complex numbers or bool");
    else
      return element_text<T>;
  });
}

std::string place_name(gpu::MemoryLocation location) {
  return location.on_device() ? text("the memory of GPU ", location.device) : "the host's memory";
}

}  // namespace

AnyTensor::AnyTensor(TensorShape shape, DataType type, gpu::MemoryLocation location, void* memory)
    : shape_(std::move(shape)),
      type_(type),
      location_(location),
      memory_(std::shared_ptr<void>(), static_cast<std::byte*>(memory)) {
  static_cast<void>(element_text_of(type));  // Refuses types that are no numbers.
}

AnyTensor AnyTensor::zeros(DataType type, TensorShape shape) {
  AnyTensor tensor(std::move(shape), type, {});
  const auto owner = std::make_shared<std::vector<std::byte>>(tensor.view().bytes());
  tensor.memory_ = {owner, owner->data()};
  return tensor;
}

AnyTensor AnyTensor::in_memory(std::shared_ptr<std::byte> memory, DataType type, TensorShape shape) {
  AnyTensor tensor(std::move(shape), type, {});
  tensor.memory_ = std::move(memory);
  return tensor;
}

AnyTensor AnyTensor::reshaped(TensorShape shape) const {
  if (shape.count() != size())
    throw Error(Code::usage, text(size(), " elements in the shape ", shape.to_string()),
                text("name a shape of ", size(), " elements"));
  AnyTensor result = *this;
  result.shape_ = std::move(shape);
  return result;
}

AnyTensor AnyTensor::rows(std::int64_t first, std::int64_t number) const {
  AnyTensor part = *this;
  part.shape_ = shape_.rows(first, number);
  if (size() == 0) return part;
  const std::size_t row_bytes = shape_.inside(0) * size_of(type_);
  part.memory_ = {memory_, memory_.get() + static_cast<std::size_t>(first) * row_bytes};
  return part;
}

AnyTensor AnyTensor::copy_at(gpu::MemoryLocation location) const {
  if (!location.on_device()) {
    AnyTensor result = zeros(type_, shape_);
    copy_to(result.memory_.get());
    return result;
  }
  AnyTensor result(shape_, type_, location);
  result.memory_ = gpu::allocate(location.device, size(), size_of(type_));
  gpu::copy(location.device, result.memory_.get(), memory_.get(), view().bytes());
  return result;
}

void AnyTensor::assign(const AnyTensor& other) const {
  if (other.type_ != type_ || other.shape_ != shape_)
    throw Error(Code::usage, text("assign of ", spec_of(other).to_string(), " to ", spec_of(*this).to_string()),
                "give a tensor of the same type and shape");
  if (!location_.on_device()) return other.copy_to(memory_.get());
  gpu::copy(location_.device, memory_.get(), other.memory_.get(), view().bytes());
}

void AnyTensor::check_count(std::size_t elements) const {
  if (elements != size())
    throw Error(Code::usage, text(elements, " elements for a tensor of shape ", shape_.to_string()),
                text("give ", size()));
}

void AnyTensor::check_type(DataType wanted, std::string_view call) const {
  if (wanted == type_) return;
  throw Error(Code::usage,
              text(call, '<', lockstep::to_string(wanted), ">() of a tensor of ", lockstep::to_string(type_)),
              "ask for the tensor's type(), and convert by cast<float>(tensor)");
}

void AnyTensor::check_place(bool for_host, std::string_view call) const {
  if (location_.on_device() != for_host) return;
  throw Error(Code::usage, text(call, "() of a tensor in ", place_name(location_)),
              for_host ? "use span_on_gpu() for kernels, or to() and copy_at(), which copy" : "use span()");
}

void AnyTensor::copy_to(std::byte* host) const {
  const std::size_t bytes = view().bytes();
  if (bytes == 0) return;
  if (location_.on_device())
    gpu::copy(location_.device, host, memory_.get(), bytes);
  else
    std::memmove(host, memory_.get(), bytes);
}

std::string to_string(const AnyTensor& tensor) {
  const AnyTensor here = tensor.location().on_device() ? tensor.copy_at({}) : tensor;
  const ElementText element = element_text_of(tensor.type());
  const auto* const elements = static_cast<const std::byte*>(here.view().data);
  const bool is_scalar = tensor.shape().rank() == 0;
  return detail::tensor_words(tensor.shape(), tensor.type(),
                              [&](std::size_t i) { return element(elements, i, is_scalar); });
}

std::ostream& operator<<(std::ostream& out, const AnyTensor& tensor) { return out << to_string(tensor); }

}  // namespace lockstep
