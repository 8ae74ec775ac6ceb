// SPDX-License-Identifier: Apache-2.0
// Shows how far training is. Only the chief has a display: a bar on a terminal, and two lines an epoch elsewhere.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "runtime/train/logs.hpp"

namespace lockstep::train {

// Is Keras's verbosity. `automatic` is a bar if the stream is a terminal, and lines otherwise.
enum class Verbose : std::int8_t { automatic = -1, silent = 0, bar = 1, lines = 2 };

// Is the interface of displays. A pass is an epoch of fit(), or a whole evaluate() or predict().
class Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  virtual ~Progress() = default;
  // Is called first, with a number from 0; `epochs` is 0 outside of fit(). `steps` is nothing if nobody knows it yet.
  virtual void begin(std::int64_t epoch, std::int64_t epochs, std::optional<std::int64_t> steps) = 0;
  // True if step() wants numbers now. They cost time, so a display wants them seldom.
  virtual bool wants_step(std::int64_t /*done*/) { return false; }
  // Is called behind a step for which wants_step() was true.
  virtual void step(std::int64_t /*done*/, const Logs& /*logs*/) {}
  // Is called behind the last step, with the final numbers.
  virtual void end(std::int64_t done, const Logs& logs) = 0;
};

// Returns "Epoch 1/2" and "10/10 - loss: 2.4687 - accuracy: 0.5000", for files and pipes.
std::unique_ptr<Progress> make_lines(std::ostream& out);
// Returns Keras's bar, which is drawn again on the same line:
// "10/10 [==============================] - 0s 2ms/step - loss: 2.4687".
std::unique_ptr<Progress> make_bar(std::ostream& out);
// Returns the display of a verbosity; null for a silent one.
std::unique_ptr<Progress> make_progress(Verbose verbose, std::ostream& out);

// Returns " - loss: 2.4687 - accuracy: 0.5000". Numbers of at most 0.001 are written as 1.0000e-04.
std::string to_string(const Logs& logs);
// Returns Keras's bar of 30 places: "[=====>........................]".
std::string bar_text(std::int64_t done, std::int64_t steps);

}  // namespace lockstep::train
