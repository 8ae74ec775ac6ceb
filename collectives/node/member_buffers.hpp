// SPDX-License-Identifier: Apache-2.0
// Reads a member's input and writes its output for the forms that go by slots. A form chooses the reader and the writer
// when a call begins: contiguous buffers, buffers in several pieces, or an output on a GPU (slot_copies.hpp).
#pragma once

#include <vector>

#include "collectives/node/call_context.hpp"

namespace lockstep::node {

// Reads the input. It serves many calls, one after another.
class InputReader {
 public:
  InputReader() = default;
  virtual ~InputReader() = default;
  InputReader(const InputReader&) = delete;
  InputReader& operator=(const InputReader&) = delete;
  // Copies a range of the input to a place that others read.
  virtual void publish(std::byte* to, std::size_t offset, std::size_t bytes) = 0;
  // Returns the address of a range of the input, or of a copy that stays until the next read().
  virtual const std::byte* read(std::size_t offset, std::size_t bytes) = 0;
};

// Writes the output. It serves many calls, one after another.
class OutputWriter {
 public:
  OutputWriter() = default;
  virtual ~OutputWriter() = default;
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;
  // Writes a range of the output. Data that lie there already stay.
  virtual void write(std::size_t offset, const std::byte* from, std::size_t bytes) = 0;
  // Returns the place where a range of the output is best combined. write() then brings it to the output.
  virtual std::byte* place_of_result(std::size_t offset, std::size_t bytes) = 0;
};

// Reads a contiguous input in the host's memory.
class ContiguousInput final : public InputReader {
 public:
  void begin(const CallContext& call) { call_ = &call; }
  void publish(std::byte* to, std::size_t offset, std::size_t bytes) override {
    call_->room->add_copied_bytes(bytes);
    call_->room->write_strategy().write(to, call_->input + offset, bytes, call_->tuning.slow_write_from);
  }
  const std::byte* read(std::size_t offset, std::size_t /*bytes*/) override { return call_->input + offset; }

 private:
  const CallContext* call_ = nullptr;
};

// Writes a contiguous output in the host's memory.
class ContiguousOutput final : public OutputWriter {
 public:
  void begin(const CallContext& call) { call_ = &call; }
  void write(std::size_t offset, const std::byte* from, std::size_t bytes) override {
    if (from != call_->output + offset) call_->write_output(call_->output + offset, from, bytes);
  }
  std::byte* place_of_result(std::size_t offset, std::size_t /*bytes*/) override { return call_->output + offset; }

 private:
  const CallContext* call_ = nullptr;
};

// Reads an input in several pieces.
class ScatteredInput final : public InputReader {
 public:
  void begin(const CallContext& call) { call_ = &call; }
  void publish(std::byte* to, std::size_t offset, std::size_t bytes) override;
  const std::byte* read(std::size_t offset, std::size_t bytes) override;

 private:
  const CallContext* call_ = nullptr;
  std::vector<std::byte> gathered_;  // one range, side by side
};

// Writes an output in several pieces.
class ScatteredOutput final : public OutputWriter {
 public:
  void begin(const CallContext& call) { call_ = &call; }
  void write(std::size_t offset, const std::byte* from, std::size_t bytes) override;
  std::byte* place_of_result(std::size_t offset, std::size_t bytes) override;

 private:
  const CallContext* call_ = nullptr;
  std::vector<std::byte> result_;  // one range, side by side
};

}  // namespace lockstep::node
