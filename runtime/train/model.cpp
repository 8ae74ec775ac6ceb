// SPDX-License-Identifier: Apache-2.0
// Checks that everything that a model trains with belongs to its strategy.
#include "runtime/train/model.hpp"

#include <algorithm>

#include "runtime/train/compiled.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {

Model::Model() : made_in_(&get_strategy()) {}

Strategy& Model::strategy() {
  const std::vector<AnyVariable> variables = network().variables();
  return variables.empty() ? *made_in_ : variables.front().strategy();
}

bool Model::is_chief() { return strategy().replica(0).replica_id_in_sync_group() == 0; }

void Model::compile(CompileOptions options) {
  Strategy& mine = strategy();
  if (!options.loss || !options.optimizer)
    throw Error(Code::usage, text("compile() without ", options.loss ? "an optimizer" : "a loss"),
                R"(give both: compile({.loss = "mse", .optimizer = "sgd"}))");
  check_made_in(network().variables(), mine);
  if (has_strategy() && &get_strategy() != &mine) {
    check_made_in(network().variables(), get_strategy());
    throw Error(Code::usage,
                text("the model was made for ", mine.describe(), ", and is compiled in the scope of ",
                     get_strategy().describe()),
                "make the model, its optimizer and its metrics in the same scope");
  }
  check_made_in(options.optimizer->variables(), mine);
  auto compiled =
      std::make_shared<Compiled>(Compiled{*options.loss, *options.optimizer, options.metrics, options.metrics.size()});
  compiled->choices.insert(compiled->choices.end(), options.weighted_metrics.begin(), options.weighted_metrics.end());
  for (const MetricChoice& each : compiled->choices) {
    if (each.metric()) check_made_in(each.metric()->variables(), mine);
  }
  compiled_ = std::move(compiled);
}

void Model::Compiled::make_metrics(const TensorShape& labels, const TensorShape& predictions) {
  if (metrics.size() == choices.size()) return;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::string& name = choices[i].name();
    const bool is_taken = std::ranges::find(names, name) != names.end();
    names.push_back(is_taken && i >= unweighted ? "weighted_" + name : name);
    metrics.push_back(choices[i].metric() ? *choices[i].metric() : metric_of(name, labels, predictions));
  }
}

Model::Compiled& Model::compiled() {
  if (!compiled_)
    throw Error(Code::usage, "You must compile your model before training or testing",
                R"(use model.compile("mse", "sgd"))");
  return *compiled_;
}
const Loss& Model::loss() { return compiled().loss; }
Optimizer& Model::optimizer() { return compiled().optimizer; }

}  // namespace lockstep::train
