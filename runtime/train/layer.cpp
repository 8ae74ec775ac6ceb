// SPDX-License-Identifier: Apache-2.0
// Implements the building, the names and the table of layers.
#include "runtime/train/layer.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "runtime/variable.hpp"
#include "runtime/variable_scope.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

// Returns Keras' name of a class's objects: "max_pooling2d" for "MaxPooling2D".
std::string snake_case(std::string_view kind) {
  std::string name;
  for (const char each : kind) {
    const auto letter = static_cast<unsigned char>(each);
    if (std::isupper(letter) != 0 && !name.empty() && std::islower(static_cast<unsigned char>(name.back())) != 0)
      name += '_';
    name += static_cast<char>(std::tolower(letter));
  }
  return name;
}

std::string numbered(const std::string& name, std::size_t number) {
  return number == 0 ? name : text(name, '_', number);
}

// Returns the next name of the program's layers of a kind.
std::string next_name(std::string_view kind) {
  static std::mutex mutex;
  static std::map<std::string, std::size_t, std::less<>> made;
  const std::string name = snake_case(kind);
  const std::lock_guard lock(mutex);
  return numbered(name, made[name]++);
}

// Returns "(None, 28, 28)" for the shape (28, 28) of an example.
std::string batch_text(const TensorShape& example) {
  std::string whole = "(None";
  for (const std::int64_t length : example.lengths()) whole += text(", ", length);
  return whole + ')';
}

// Is the model whose operator() this thread calls.
thread_local const Layer* called_model = nullptr;

bool is_inside_of(const Layer& layer, const Layer& model) {
  return std::ranges::any_of(model.layers(),
                             [&](const Layer* each) { return each == &layer || is_inside_of(layer, *each); });
}

}  // namespace

Layer::CallOfModel::CallOfModel(const Layer& model) : outer_(std::exchange(called_model, &model)) {}
Layer::CallOfModel::~CallOfModel() { called_model = outer_; }

Layer::Layer(std::string_view kind, LayerOptions options)
    : kind_(kind),
      has_own_name_(!options.name.empty()),
      name_(has_own_name_ ? std::move(options.name) : next_name(kind)),
      trainable_(options.trainable),
      input_shape_(std::move(options.input_shape)) {}

TapeTensor Layer::operator()(const TapeTensor& x, bool training) {
  if (!is_built()) {
    if (x.shape().rank() == 0)
      throw Error(Code::usage, text("layer \"", printable(name_), "\" was called with a scalar"),
                  "give a batch: the first axis counts its examples");
    build_for_all(x.shape().without(0));
  } else if (!weights_.empty() && has_strategy() && &weights_.front().strategy() != &get_strategy()) {
    check_made_in(weights_, get_strategy());
  }
  return call(x, training);
}

void Layer::build_for_all(const TensorShape& example) {
  ReplicaContext* const replica = replica_context();
  if (replica == nullptr || !has_strategy()) return build(example);
  const auto build_once = [&](Strategy& /*strategy*/, const PerReplica<Layer*>& same) {
    for (Layer* each : same.local()) {
      if (each != this)
        throw Error(Code::usage, text("layer \"", printable(name_), "\" was made in each replica"),
                    "make it before run(), in the strategy's scope");
    }
    build(example);
  };
  replica->merge_call(build_once, this);
}

void Layer::build(const TensorShape& example) {
  if (is_built()) throw Error(Code::usage, text("layer \"", printable(name_), "\" is built already"), "build it once");
  weights_.clear();
  std::optional<NameScope> scope;
  if (is_inside_ || layers().empty()) scope.emplace(name_);
  make_variables(example);
  if (called_model != nullptr && !weights_.empty() && !is_inside_of(*this, *called_model))
    throw Error(Code::usage,
                text("layer \"", printable(name_), "\" is called by the model \"", printable(called_model->name()),
                     "\", whose fields do not name it, so it would not be trained"),
                "name it in lockstep::Fields of the struct, or in layers() of the layer that owns it");
  example_ = example;
}

const AnyVariable& Layer::add_weight(std::string_view name, const TensorShape& shape, const Initializer& initializer,
                                     const WeightOptions& options) {
  const Variable<float> made([&] { return initializer(shape); }, {.name = std::string(name),
                                                                  .synchronization = options.synchronization,
                                                                  .aggregation = options.aggregation,
                                                                  .trainable = options.trainable});
  return weights_.emplace_back(made);
}

std::vector<AnyVariable> Layer::variables() const {
  std::vector<AnyVariable> all = weights_;
  for (const Layer* each : layers()) {
    const std::vector<AnyVariable> inside = each->variables();
    all.insert(all.end(), inside.begin(), inside.end());
  }
  return all;
}

std::vector<AnyVariable> Layer::trainable_variables() const {
  std::vector<AnyVariable> all;
  if (trainable_) std::ranges::copy_if(weights_, std::back_inserter(all), &AnyVariable::trainable);
  for (const Layer* each : layers()) {
    const std::vector<AnyVariable> inside = each->trainable_variables();
    all.insert(all.end(), inside.begin(), inside.end());
  }
  return all;
}

void Layer::set_trainable(bool is_trainable) {
  trainable_ = is_trainable;
  for (Layer* each : layers()) each->set_trainable(is_trainable);
}

void Layer::check_last_axis(const TensorShape& example, std::int64_t length) const {
  if (example.rank() > 0 && example[-1] == length) return;
  throw Error(Code::usage,
              text("Input 0 of layer \"", printable(name_), "\" is incompatible with the layer: expected axis -1 of ",
                   "input shape to have value ", length, ", but received input with shape ", batch_text(example)),
              "give examples of the shape for which the layer was built");
}

void Layer::check_rank(const TensorShape& example, int rank) const {
  if (example.rank() + 1 == rank) return;
  throw Error(Code::usage,
              text("Input 0 of layer \"", printable(name_), "\" is incompatible with the layer: expected ndim=", rank,
                   ", found ndim=", example.rank() + 1, ". Full shape received: ", batch_text(example)),
              "reshape the examples, as by the layer Reshape({28, 28, 1})");
}

void Layer::refuse_shape() const {
  throw Error(Code::usage, text("output_shape() of \"", printable(name_), "\", a model of the program's own"),
              "call the model with a batch");
}

void name_layers(const std::vector<Layer*>& layers) {
  std::set<std::string> taken;
  for (const Layer* each : layers) {
    if (!each->has_own_name_ && !each->is_built()) continue;
    if (taken.insert(each->name_).second) continue;
    throw Error(Code::usage,
                text("All layers added to a model should have unique names. Name \"", printable(each->name_),
                     "\" is already the name of a layer in this model"),
                "update the `name` option to pass a unique name");
  }
  for (Layer* each : layers) {
    each->is_inside_ = true;
    if (each->has_own_name_ || each->is_built()) continue;
    const std::string name = snake_case(each->kind_);
    for (std::size_t number = 0;; ++number) {
      each->name_ = numbered(name, number);
      if (taken.insert(each->name_).second) break;
    }
  }
}

void check_made_in(const std::vector<AnyVariable>& variables, const Strategy& strategy) {
  for (const AnyVariable& each : variables) {
    if (&each.strategy() == &strategy) continue;
    throw Error(Code::usage,
                text("Variable (", printable(each.path()), ") was not created in the distribution strategy scope of (",
                     strategy.describe(),
                     "). It is most likely because some layers, model, or optimizer was being created outside the "
                     "distribution strategy scope"),
                "make the model, its optimizer and its metrics in one scope: auto scope = strategy.scope();");
  }
}

namespace {

// Returns 1234567 as "1,234,567".
std::string grouped_text(std::size_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string memory_text(std::size_t bytes) {
  constexpr std::array<std::string_view, 5> units{"B", "KB", "MB", "GB", "TB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < units.size(); ++unit) size /= 1024;
  const auto hundredths = static_cast<std::size_t>(std::lround(size * 100));
  return text(hundredths / 100, '.', hundredths % 100 / 10, hundredths % 10, ' ', units[unit]);
}

struct ParameterCount {
  std::size_t elements = 0;
  std::size_t bytes = 0;
};
ParameterCount count_parameters(const std::vector<AnyVariable>& variables) {
  ParameterCount sum;
  for (const AnyVariable& each : variables) {
    sum.elements += each.shape().count();
    sum.bytes += each.shape().count() * size_of(each.type());
  }
  return sum;
}

// Draws a table with three columns, the last one aligned to the right.
class SummaryTable {
 public:
  using Row = std::array<std::string, 3>;

  explicit SummaryTable(const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      for (std::size_t i = 0; i < row.size(); ++i) widths_[i] = std::max(widths_[i], row[i].size());
    }
  }
  std::string line(std::string_view left, std::string_view bar, std::string_view cross, std::string_view right) const {
    std::string whole(left);
    for (std::size_t i = 0; i < widths_.size(); ++i) {
      for (std::size_t n = 0; n < widths_[i] + 2; ++n) whole += bar;
      whole += i + 1 < widths_.size() ? cross : right;
    }
    return whole + '\n';
  }
  std::string cells(const Row& row, std::string_view bar) const {
    std::string whole(bar);
    for (std::size_t i = 0; i < widths_.size(); ++i) {
      const std::string space(widths_[i] - row[i].size(), ' ');
      const bool is_last = i + 1 == widths_.size();
      whole += text(' ', is_last ? space : "", row[i], is_last ? "" : space, ' ', bar);
    }
    return whole + '\n';
  }

 private:
  std::array<std::size_t, 3> widths_{31, 22, 13};  // Are Keras' widths.
};

// Returns the rows of a layer. A long name has its kind in a second row.
std::vector<SummaryTable::Row> summary_rows(const Layer& layer) {
  const std::string kind = text('(', layer.kind(), ')');
  std::string shape = "?";
  if (layer.built_shape()) shape = batch_text(layer.output_shape(*layer.built_shape()));
  const std::string count =
      layer.is_built() ? grouped_text(count_parameters(layer.variables()).elements) : "0 (unbuilt)";
  const std::string whole = text(layer.name(), ' ', kind);
  if (whole.size() <= 31) return {{whole, shape, count}};
  return {{layer.name(), shape, count}, {kind, "", ""}};
}

}  // namespace

std::string Layer::summary() const {
  std::vector<std::vector<SummaryTable::Row>> all;
  std::vector<SummaryTable::Row> rows{{"Layer (type)", "Output Shape", "Param #"}};
  for (const Layer* each : layers()) {
    all.push_back(summary_rows(*each));
    rows.insert(rows.end(), all.back().begin(), all.back().end());
  }
  const SummaryTable table(rows);
  std::string whole = text("Model: \"", name_, "\"\n", table.line("┏", "━", "┳", "┓"), table.cells(rows.front(), "┃"),
                           table.line("┡", "━", "╇", "┩"));
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i > 0) whole += table.line("├", "─", "┼", "┤");
    for (const SummaryTable::Row& row : all[i]) whole += table.cells(row, "│");
  }
  whole += table.line("└", "─", "┴", "┘");
  const ParameterCount total = count_parameters(variables());
  const ParameterCount trainable = count_parameters(trainable_variables());
  const auto add = [&](std::string_view title, std::size_t elements, std::size_t bytes) {
    whole += text(' ', title, " params: ", grouped_text(elements), " (", memory_text(bytes), ")\n");
  };
  add("Total", total.elements, total.bytes);
  add("Trainable", trainable.elements, trainable.bytes);
  add("Non-trainable", total.elements - trainable.elements, total.bytes - trainable.bytes);
  return whole;
}

}  // namespace lockstep::train
