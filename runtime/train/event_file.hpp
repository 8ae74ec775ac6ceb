// SPDX-License-Identifier: Apache-2.0
// Writes event files, which TensorBoard shows: TFRecord records of protobuf messages of type Event.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace lockstep::train {

// Writes one file. Each event is in the file when the call returns, so that TensorBoard shows it while a program runs.
class EventFile {
 public:
  // Makes the folder if it is missing, and a file in it whose name begins with "events.out.tfevents". Throws Error file
  // if that is impossible.
  explicit EventFile(const std::string& folder);
  // Writes one number of a curve. `tag` names the curve. Throws Error file if the disk is full.
  void scalar(std::string_view tag, float value, std::int64_t step);
  const std::string& path() const { return path_; }

 private:
  void write(std::string_view event);

  std::string path_;
  std::ofstream file_;
};

}  // namespace lockstep::train
