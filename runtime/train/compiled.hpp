// SPDX-License-Identifier: Apache-2.0
// Holds what compile() has set, and the metrics once the first batch has shown which of them a word means.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/train/model.hpp"

namespace lockstep::train {

struct Model::Compiled {
  Loss loss;
  Optimizer optimizer;
  std::vector<MetricChoice> choices;  // Holds those that ignore weights first.
  std::size_t unweighted = 0;         // Counts these.
  std::vector<Metric> metrics = {};   // Is parallel to `choices`, after make_metrics().
  std::vector<std::string> names = {};

  // Makes the metrics that the words mean for such a batch, in cross-replica context, unless they are there.
  void make_metrics(const TensorShape& labels, const TensorShape& predictions);
  void reset_metrics() {
    for (Metric& each : metrics) each.reset();
  }
  // Is called in replicas.
  void update_metrics(const TapeTensor& labels, const TapeTensor& predictions, const TapeTensor* weights) {
    for (std::size_t i = 0; i < metrics.size(); ++i)
      metrics[i].update(labels, predictions, i < unweighted ? nullptr : weights);
  }
  // Adds the results over all replicas. All processes call it.
  void add_results(Logs& logs, const std::string& prefix) const {
    if (metrics.empty()) return;
    const std::vector<float> all = results(metrics);
    for (std::size_t i = 0; i < all.size(); ++i) logs.set(prefix + names[i], static_cast<double>(all[i]));
  }
};

}  // namespace lockstep::train
