// SPDX-License-Identifier: Apache-2.0
// Records the ops of a thread, and computes gradients by going backward through them.
//   Tape tape;
//   const TapeTensor loss = square(w * x - y);
//   w -= rate * tape.gradient(loss, w).to<float>();
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/any_variable.hpp"
#include "runtime/train/op.hpp"
#include "runtime/train/tape_tensor.hpp"

namespace lockstep::train {

struct TapeOptions {
  // Lets gradient() be called several times. Otherwise it frees the records as it goes.
  bool persistent = false;
  // Follows all trainable variables that are read. Otherwise only those given to watch().
  bool watch_variables = true;
};

// Holds a variable and the gradient of a target with respect to it.
struct VariableGradient {
  AnyVariable variable;
  Gradient gradient;
};

// Takes gradients of variables while the backward pass runs, the last layer's first.
class GradientReceiver {
 public:
  GradientReceiver() = default;
  GradientReceiver(const GradientReceiver&) = delete;
  GradientReceiver& operator=(const GradientReceiver&) = delete;
  virtual ~GradientReceiver() = default;
  // Tells before the pass which of the variables the target depends on.
  virtual void begin(const std::vector<bool>& has_gradient) = 0;
  // Returns memory in which the gradient of variable `which` shall be made. It is that of the variable's shape and
  // type.
  virtual AnyTensor memory(std::size_t which) = 0;
  // Takes the finished gradient of variable `which`. A dense one is in the memory that was named.
  virtual void take(std::size_t which, Gradient gradient) = 0;
};

// Records from its construction to its end. Tapes of one thread nest, and each follows its own tensors. A tape is used
// by the thread that made it. Gradients are themselves no part of a recording.
class Tape {
 public:
  explicit Tape(TapeOptions options = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Follows a tensor, or a variable that is not trainable or that the options leave out.
  void watch(const TapeTensor& tensor);
  void watch(const AnyVariable& variable);
  template <class T>
  void watch(const Variable<T>& variable) {
    watch(AnyVariable(variable));
  }
  // Stops the recording of this thread's tapes while it lives.
  class [[nodiscard]] Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
  };
  // Forgets all records and all watched tensors.
  void reset();

  // Return the gradients of the sum of the target's elements. A tensor on which the target does not depend has none.
  // Throw Error usage for a second call of a tape that is not persistent.
  Gradient gradient(const TapeTensor& target, const TapeTensor& source);
  Gradient gradient(const TapeTensor& target, const AnyVariable& source);
  template <class T>
  Gradient gradient(const TapeTensor& target, const Variable<T>& source) {
    return gradient(target, AnyVariable(source));
  }
  std::vector<Gradient> gradient(const TapeTensor& target, std::span<const TapeTensor> sources);
  std::vector<VariableGradient> gradient(const TapeTensor& target, const std::vector<AnyVariable>& sources);
  // Hands the gradients to a receiver instead, each as soon as it is finished.
  void gradient(const TapeTensor& target, const std::vector<AnyVariable>& sources, GradientReceiver& receiver);

 private:
  class Call;
  class Records;
  friend TapeTensor apply(const Op& op, std::span<const TapeTensor> inputs, OpAttributes attributes);
  friend class TapeTensor;

  // Are called for all tapes of the thread: a variable was read as a tensor, and an op was called.
  static std::uint64_t id_of_variable(const AnyVariable& variable);
  void begin_gradient();

  std::unique_ptr<Records> records_;
  TapeOptions options_;
  bool is_used_ = false;
};

// Returns the tensor without its history: no gradient goes through it.
TapeTensor stop_gradient(const TapeTensor& tensor);

}  // namespace lockstep::train
