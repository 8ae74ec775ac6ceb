// SPDX-License-Identifier: Apache-2.0
// Includes the trainer: tapes, ops, layers, losses, optimizers, metrics, and fit. Its names are in lockstep::train.
#pragma once

#include "runtime/train/callbacks.hpp"
#include "runtime/train/initializers.hpp"
#include "runtime/train/layers.hpp"
#include "runtime/train/losses.hpp"
#include "runtime/train/metrics.hpp"
#include "runtime/train/model.hpp"
#include "runtime/train/ops.hpp"
#include "runtime/train/optimizer.hpp"
#include "runtime/train/schedules.hpp"
#include "runtime/train/tape.hpp"
#include "runtime/train/train_and_evaluate.hpp"
