// SPDX-License-Identifier: Apache-2.0
// Keeps one copy of a program's data on each node, in memory that the processes there share.
//   const auto images = strategy.shared_on_node([] { return read_images(); });
//   const auto dataset = data::from_tensor_slices(images).shuffle(60'000).batch(128);
#pragma once

#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/strategy.hpp"
#include "runtime/values/shared_tensor.hpp"
#include "runtime/values/structure.hpp"

namespace lockstep {
namespace detail {

// Gives the type of a loader's data once they are shared.
template <class R>
struct SharedOf {
  static_assert(sizeof(R) == 0,
                "lockstep: the loader of shared_on_node() returns a Tensor, or a pair or tuple of them");
};
template <class T>
struct SharedOf<Tensor<T>> {
  using Type = SharedTensor<T>;
};
template <class... E>
struct SharedOf<std::tuple<E...>> {
  using Type = std::tuple<typename SharedOf<E>::Type...>;
};
template <class A, class B>
struct SharedOf<std::pair<A, B>> {
  using Type = std::pair<typename SharedOf<A>::Type, typename SharedOf<B>::Type>;
};

// Holds a SharedTensor of a type that is known at run time.
struct LoadedTensor {
  TensorShape shape;
  std::shared_ptr<const std::byte> elements;
};
using LoadTensors = std::function<std::vector<LoadedTensor>()>;

// Calls `load` in one process of each node, and returns its tensors in all processes of the node. All processes call it
// with the same types. Throws one Error on all of them if `load` throws in one.
std::vector<LoadedTensor> share_on_node(Communicator& channel, const Log& log, std::vector<DataType> types,
                                        const LoadTensors& load);

// Calls a loader, and returns its tensors in order.
template <class R, class F>
std::vector<LoadedTensor> load_tensors(F& loader) {
  R loaded = std::invoke(loader);
  std::vector<LoadedTensor> all;
  for_each_leaf(loaded, [&]<class T>(Tensor<T>& leaf) {
    const SharedTensor<T> shared(std::move(leaf));
    const auto* const bytes = reinterpret_cast<const std::byte*>(shared.data());
    all.push_back({shared.shape(), std::shared_ptr<const std::byte>(shared.elements(), bytes)});
  });
  return all;
}

}  // namespace detail

// The data are one copy for each node, which its processes map read-only. The node needs memory for the largest tensor
// twice while it is copied there. The loader may take any time, but must not call collectives. If processes cannot
// share memory, each calls its loader, and the first logs a line. A strategy of one process copies nothing. All
// processes call it, outside of run(). If the loader throws in one process, all get an Error with its text.
template <class F>
typename detail::SharedOf<std::invoke_result_t<F&>>::Type Strategy::shared_on_node(F&& loader) {
  using R = std::invoke_result_t<F&>;
  detail::require_cross_replica(*this, "shared_on_node");
  typename detail::SharedOf<R>::Type result;
  std::vector<DataType> types;
  detail::for_each_leaf(result, [&]<class T>(SharedTensor<T>&) { types.push_back(data_type_of<T>); });
  const std::vector<detail::LoadedTensor> all = detail::share_on_node(channel(Channel::input), log(), std::move(types),
                                                                      [&] { return detail::load_tensors<R>(loader); });
  auto next = all.begin();
  detail::for_each_leaf(result, [&]<class T>(SharedTensor<T>& leaf) {
    const auto* const elements = reinterpret_cast<const T*>(next->elements.get());
    leaf = SharedTensor<T>(next->shape, std::shared_ptr<const T>(next->elements, elements));
    ++next;
  });
  return result;
}

}  // namespace lockstep
