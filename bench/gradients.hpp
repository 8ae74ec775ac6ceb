// SPDX-License-Identifier: Apache-2.0
// Describes the gradients that a model exchanges in each step: their sizes, and the buckets in which they travel.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::bench {

// Is a part of one buffer, in elements.
struct TensorRange {
  std::size_t begin = 0;
  std::size_t count = 0;
  bool operator==(const TensorRange&) const = default;
};

// Is a bucket: gradients that travel together. They lie one behind another, so the bucket is a range as well.
struct GradientBucket {
  TensorRange whole;
  std::vector<TensorRange> tensors;  // in the order of the backward pass
  bool operator==(const GradientBucket&) const = default;
};

// Holds the gradients of a model, all f32, one behind another in the order of the forward pass.
struct GradientList {
  std::string name;  // of the model, or the counts as they were given
  std::size_t tensors = 0;
  std::size_t count = 0;                // elements of all
  std::vector<GradientBucket> buckets;  // as GradientReducer makes them by default, in the order of the backward pass

  // Returns the elements of the largest bucket.
  std::size_t largest() const;
  // Returns text for people, such as "4 tensors in 2 buckets of 10.6 MiB, 1.25 KiB".
  std::string to_text() const;
};

// Returns the built-in models: cnn, mlp and resnet50.
const std::vector<std::string>& model_names();
// Returns the counts of a built-in model's gradients in the order of its forward pass; none for another name.
std::vector<std::size_t> counts_of_model(std::string_view name);
// Returns the gradients with these counts. Throws Error usage for no gradients, or for empty ones.
GradientList gradient_list(std::string name, const std::vector<std::size_t>& counts);
// Parses the name of a model, or counts: "864,32" or "256x1000", which is 1000 gradients of 256 elements. Throws Error
// usage.
GradientList parse_gradients(std::string_view words);

}  // namespace lockstep::bench
