// SPDX-License-Identifier: Apache-2.0
// Counts the parameters of the built-in models, and divides their gradients into buckets.
#include "bench/gradients.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "runtime/gradient_buckets.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

constexpr std::size_t most_tensors = 100'000;
constexpr std::size_t most_elements = std::size_t{1} << 40U;

// Returns the network of the multi-worker tutorial: a convolution of 3 x 3, and two dense layers.
std::vector<std::size_t> cnn() {
  constexpr std::size_t pixels = 9, filters = 32, flat = 21632, width = 128, classes = 10;
  return {pixels * filters, filters, flat * width, width, width * classes, classes};
}

std::vector<std::size_t> mlp() {
  std::vector<std::size_t> counts;
  constexpr std::size_t width = 1024;
  for (int layer = 0; layer < 8; ++layer) counts.insert(counts.end(), {width * width, width});
  return counts;
}

// He et al. 2015 have 53 convolutions without bias, each with a batch norm's weight and bias, and one linear layer.
std::vector<std::size_t> resnet50() {
  std::vector<std::size_t> counts;
  const auto convolution = [&](std::size_t taken, std::size_t made, std::size_t side) {
    counts.insert(counts.end(), {made * taken * side * side, made, made});
  };
  convolution(3, 64, 7);
  std::size_t taken = 64;
  std::size_t width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      convolution(taken, width, 1);
      convolution(width, width, 3);
      convolution(width, 4 * width, 1);
      if (block == 0) convolution(taken, 4 * width, 1);
      taken = 4 * width;
    }
    width *= 2;
  }
  counts.insert(counts.end(), {2'048'000, 1000});
  return counts;
}

[[noreturn]] void refuse_gradients(std::string_view words, std::string_view why) {
  const auto suggestion = nearest(words, model_names());
  throw Error(Code::usage, text("the model \"", printable(words), "\" ", why),
              text(suggestion ? text("did you mean ", *suggestion, "? ") : "", "choose from ",
                   join(model_names(), ", "), ", or list the elements of each gradient: 864,32,256x1000"));
}

// Appends "864" or "256x1000" to the counts.
void append_counts(std::vector<std::size_t>& counts, std::string_view entry, std::string_view words) {
  const std::size_t cross = entry.find('x');
  const auto count = parse_integer(trim(entry.substr(0, cross)));
  const auto number = cross == std::string_view::npos ? 1 : parse_integer(trim(entry.substr(cross + 1)));
  if (!count || !number) refuse_gradients(words, "is neither a model nor a list of counts");
  if (*count < 1 || *number < 1) refuse_gradients(words, "has an empty gradient");
  if (static_cast<std::size_t>(*count) > most_elements)
    refuse_gradients(words, text("has a gradient of more than ", most_elements, " elements"));
  if (static_cast<std::size_t>(*number) > most_tensors - counts.size())
    refuse_gradients(words, text("has more than ", most_tensors, " gradients"));
  counts.insert(counts.end(), static_cast<std::size_t>(*number), static_cast<std::size_t>(*count));
}

}  // namespace

std::size_t GradientList::largest() const {
  std::size_t most = 0;
  for (const GradientBucket& each : buckets) most = std::max(most, each.whole.count);
  return most;
}

std::string GradientList::to_text() const {
  constexpr std::size_t most_sizes = 8;
  std::vector<std::string> sizes;
  for (const GradientBucket& each : buckets) {
    if (sizes.size() < most_sizes) sizes.push_back(format_bytes(each.whole.count * sizeof(float)));
  }
  if (buckets.size() > most_sizes) sizes.emplace_back("...");
  return text(tensors, tensors == 1 ? " tensor in " : " tensors in ", buckets.size(),
              buckets.size() == 1 ? " bucket of " : " buckets of ", join(sizes, ", "));
}

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names{"cnn", "mlp", "resnet50"};
  return names;
}

std::vector<std::size_t> counts_of_model(std::string_view name) {
  if (name == "cnn") return cnn();
  if (name == "mlp") return mlp();
  if (name == "resnet50") return resnet50();
  return {};
}

GradientList gradient_list(std::string name, const std::vector<std::size_t>& counts) {
  if (counts.empty() || std::ranges::find(counts, std::size_t{0}) != counts.end())
    refuse_gradients(name, counts.empty() ? "has no gradients" : "has an empty gradient");
  std::vector<TensorRange> tensors;
  std::vector<std::size_t> bytes;
  GradientList list{.name = std::move(name), .tensors = counts.size()};
  for (const std::size_t count : counts) {
    tensors.push_back({list.count, count});
    bytes.push_back(count * sizeof(float));
    list.count += count;
  }
  std::vector<int> backward(counts.size());
  std::iota(backward.rbegin(), backward.rend(), 0);
  for (const std::vector<int>& bucket :
       detail::divide_into_buckets(bytes, backward, detail::default_bucket_bytes, detail::default_first_bucket_bytes)) {
    GradientBucket made;
    for (const int which : bucket) {
      made.tensors.push_back(tensors[static_cast<std::size_t>(which)]);
      made.whole.count += made.tensors.back().count;
    }
    made.whole.begin = made.tensors.back().begin;
    list.buckets.push_back(std::move(made));
  }
  return list;
}

GradientList parse_gradients(std::string_view words) {
  std::vector<std::size_t> counts = counts_of_model(words);
  if (counts.empty()) {
    for (const std::string& entry : split(words, ',')) append_counts(counts, entry, words);
  }
  return gradient_list(std::string(words), counts);
}

}  // namespace lockstep::bench
