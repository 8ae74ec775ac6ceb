// SPDX-License-Identifier: Apache-2.0
// Knows the shapes of a loop's batches, also in a process that has had no row of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "runtime/gather_layout.hpp"
#include "runtime/strategy.hpp"
#include "runtime/train/model_data.hpp"

namespace lockstep::train {

inline bool is_in_one_process(const Strategy& strategy) {
  return strategy.num_local_replicas() == strategy.num_replicas_in_sync();
}

// Holds the shapes of features and labels, without rows. A process whose replicas have had no row learns them from the
// others. Those unknown have no axes.
class BatchShapes {
 public:
  bool are_known() const { return !shapes_.empty() && features().rank() > 0; }
  const TensorShape& features() const { return shapes_.front(); }
  // Asks the other processes, if there are any. All of them call it alike.
  void learn(Strategy& strategy, const std::vector<Piece>& pieces);
  // Returns a batch of no examples that has the axes of others, if they are known.
  AnyTensor no_examples(const AnyTensor& piece, std::size_t element) const {
    const bool is_known = element < shapes_.size() && shapes_[element].rank() > 0;
    return is_known ? AnyTensor::zeros(piece.type(), shapes_[element]) : piece;
  }

 private:
  std::vector<TensorShape> shapes_;
};

inline void BatchShapes::learn(Strategy& strategy, const std::vector<Piece>& pieces) {
  std::array<lockstep::detail::EncodedShape, 2> mine{};
  for (const Piece& piece : pieces) {
    for (std::size_t i = 0; i < std::min(mine.size(), piece.size()); ++i) {
      const TensorShape& shape = piece[i].shape();
      if (shape.rank() > 1 || (shape.rank() == 1 && shape[0] > 0))
        mine[i] = lockstep::detail::encode_shape(shape.with(0, 0));
    }
  }
  std::vector<std::int64_t> words;
  for (const auto& each : mine) words.insert(words.end(), each.begin(), each.end());
  if (!is_in_one_process(strategy)) strategy.channel(Channel::training).all_reduce(words, max);
  shapes_ = lockstep::detail::decode_shapes(words);
}

}  // namespace lockstep::train
