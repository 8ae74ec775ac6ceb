// SPDX-License-Identifier: Apache-2.0
// Is the base of layers and models. They have variables, and are called with a tensor. A program's own layer overrides
// make_variables() and call(). Its own model is a struct of layers:
//   struct Classifier {
//     Dense hidden{128, relu}, out{10};
//     TapeTensor operator()(const TapeTensor& x, bool training) { return out(hidden(x, training), training); }
//   };
//   template <> struct lockstep::Fields<Classifier> {
//     static auto of(auto& model) { return std::tie(model.hidden, model.out); }
//   };
#pragma once

#include <algorithm>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/any_variable.hpp"
#include "runtime/train/initializers.hpp"
#include "runtime/train/tape_tensor.hpp"
#include "runtime/values/structure.hpp"

namespace lockstep::train {

struct LayerOptions {
  std::string name = {};                        // Empty: made of the kind, as "dense", "dense_1".
  std::optional<TensorShape> input_shape = {};  // Of one example, without the batch's axis.
  bool trainable = true;
};

struct WeightOptions {
  bool trainable = true;
  Synchronization synchronization = Synchronization::automatic;
  Aggregation aggregation = Aggregation::none;
};

// Is a value that moves until it is built. A built layer stays in its place, or in the model that owns it. All replicas
// share it, and may call it at once.
class Layer {
 public:
  virtual ~Layer() = default;

  // Calls the layer. The first call builds it, from the shape of one example. In a replica all replicas make that call.
  // Throws Error usage if the layer was made for another strategy.
  TapeTensor operator()(const TapeTensor& x, bool training = false);
  // Makes the variables, in the current strategy. Throws Error usage for the second time.
  void build(const TensorShape& example);
  bool is_built() const { return example_.has_value(); }

  const std::string& name() const { return name_; }
  const std::string& kind() const { return kind_; }  // Is Keras' name of the class: "Dense".
  // Return the variables, and those that an optimizer changes, in the order of their creation.
  virtual std::vector<AnyVariable> variables() const;
  virtual std::vector<AnyVariable> trainable_variables() const;
  bool trainable() const { return trainable_; }
  // Takes the variables from trainable_variables(), or gives them back; those of all layers inside as well.
  void set_trainable(bool is_trainable);
  // Returns the layers inside, which the layer owns.
  virtual std::vector<Layer*> layers() const { return {}; }
  // Returns the shape of one result. Throws Error usage for an example that does not fit.
  virtual TensorShape output_shape(const TensorShape& example) const = 0;
  // Return the shapes for which the layer is or will be built.
  const std::optional<TensorShape>& input_shape() const { return input_shape_; }
  const std::optional<TensorShape>& built_shape() const { return example_; }
  // Returns Keras' table of the layers inside.
  std::string summary() const;

 protected:
  explicit Layer(std::string_view kind, LayerOptions options = {});
  Layer(Layer&&) noexcept = default;
  Layer& operator=(Layer&&) noexcept = default;

  // Makes the variables by add_weight(). By default there are none.
  virtual void make_variables(const TensorShape& /*example*/) {}
  virtual TapeTensor call(const TapeTensor& x, bool training) = 0;
  // Makes a variable of f32, which belongs to the layer. Its number counts from 0.
  const AnyVariable& add_weight(std::string_view name, const TensorShape& shape, const Initializer& initializer,
                                const WeightOptions& options = {});
  const AnyVariable& weight(std::size_t number) const { return weights_[number]; }
  // Throws Error usage, with Keras' words, if the example's last length is another one.
  void check_last_axis(const TensorShape& example, std::int64_t length) const;
  void check_rank(const TensorShape& example, int rank) const;
  // Refuses to build a layer that this model does not list, while this thread calls the model: nobody would train it.
  class CallOfModel {
   public:
    explicit CallOfModel(const Layer& model);
    ~CallOfModel();
    CallOfModel(const CallOfModel&) = delete;
    CallOfModel& operator=(const CallOfModel&) = delete;

   private:
    const Layer* outer_;
  };
  [[noreturn]] void refuse_shape() const;

 private:
  friend void name_layers(const std::vector<Layer*>& layers);
  void build_for_all(const TensorShape& example);

  std::string kind_;
  bool has_own_name_;  // The program chose the name.
  std::string name_;
  bool is_inside_ = false;
  bool trainable_;
  std::optional<TensorShape> input_shape_;
  std::optional<TensorShape> example_;
  std::vector<AnyVariable> weights_;
};

// Gives layers of one model different names: those without a name of their own are numbered anew, "dense", "dense_1".
// Throws Error usage, with Keras' words, if two have the same name of their own.
void name_layers(const std::vector<Layer*>& layers);

// Throws Error usage, with TensorFlow's words, unless the strategy made all variables.
void check_made_in(const std::vector<AnyVariable>& variables, const Strategy& strategy);

// Holds for a struct of layers with an operator().
template <class S>
concept ModelStruct = detail::HasFields<S> && requires(S& model, const TapeTensor& x) {
  { model(x, true) } -> std::convertible_to<TapeTensor>;
};

// Return the layers and the variables of a struct, each once, in the order of its fields. A field may be a layer, a
// pointer to one, a variable, or a structure of these.
template <detail::Structure S>
std::vector<Layer*> layers(S& model) {
  std::vector<Layer*> all;
  const auto add = [&](Layer& layer) {
    if (std::ranges::find(all, &layer) == all.end()) all.push_back(&layer);
  };
  detail::for_each_leaf(model, [&](auto& leaf) {
    using Leaf = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (std::derived_from<Leaf, Layer>)
      add(leaf);
    else if constexpr (requires {
                         { *leaf } -> std::convertible_to<Layer&>;
                       })
      add(*leaf);
  });
  return all;
}
template <class T>
inline constexpr bool is_variable_handle = std::is_same_v<T, AnyVariable>;
template <class T>
inline constexpr bool is_variable_handle<Variable<T>> = true;
template <detail::Structure S>
std::vector<AnyVariable> variables(S& model, bool only_trainable = false) {
  std::vector<AnyVariable> all;
  const auto add = [&](const std::vector<AnyVariable>& more) {
    for (const AnyVariable& each : more) {
      if (std::ranges::find(all, each) == all.end()) all.push_back(each);
    }
  };
  const auto add_layer = [&](const Layer& layer) {
    add(only_trainable ? layer.trainable_variables() : layer.variables());
  };
  detail::for_each_leaf(model, [&](auto& leaf) {
    using Leaf = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (std::derived_from<Leaf, Layer>) {
      add_layer(leaf);
    } else if constexpr (requires {
                           { *leaf } -> std::convertible_to<Layer&>;
                         }) {
      add_layer(*leaf);
    } else if constexpr (is_variable_handle<Leaf>) {
      const AnyVariable own = leaf;
      if (!only_trainable || own.trainable()) add({own});
    }
  });
  return all;
}
template <detail::Structure S>
std::vector<AnyVariable> trainable_variables(S& model) {
  return variables(model, true);
}

// Makes a program's struct of layers a layer. The struct must outlive it.
template <ModelStruct S>
class StructLayer : public Layer {
 public:
  explicit StructLayer(S& model, std::string name = "model")
      : Layer("Model", {.name = std::move(name)}), model_(&model) {
    name_layers(layers());
  }
  std::vector<Layer*> layers() const override { return train::layers(*model_); }
  std::vector<AnyVariable> variables() const override { return train::variables(*model_); }
  std::vector<AnyVariable> trainable_variables() const override { return train::trainable_variables(*model_); }
  // Throws Error usage, because only a call tells the shape.
  TensorShape output_shape(const TensorShape& /*example*/) const override { refuse_shape(); }

 protected:
  TapeTensor call(const TapeTensor& x, bool training) override {
    const CallOfModel inside(*this);
    return (*model_)(x, training);
  }

 private:
  S* model_;
};

}  // namespace lockstep::train
