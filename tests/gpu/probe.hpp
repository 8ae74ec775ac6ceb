// What the files of gpu-probe share: a question and its answer, two processes that talk, a library opened at run time.
// The program asks what a machine with a GPU permits, each question in a process of its own, so that a refusal,
// a crash or a hang of one says nothing about the next. It is no test of lockstep, and it includes none of its headers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gpu_probe {

// The machine was asked and said no; the sentence says how. That is an answer, not a fault of the probe.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Nothing can be asked: there is no driver, or it shows no GPU.
struct NoGpu : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// "file.cu:12", without folders.
std::string place(const std::source_location& where);

void require(bool holds, std::string_view sentence);

// Throws with errno's text when a system call returned a negative number, else returns the number.
long check_system(long result, std::source_location where = std::source_location::current());

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
};

// Written by the process that is asked. Every line is stored at once, so what was said before a crash is kept.
class Answer {
 public:
  explicit Answer(int descriptor) : descriptor_(descriptor) {}
  void say(std::string_view sentence) { write("answer", sentence); }
  void detail(std::string_view sentence) { write("detail", sentence); }
  void refused(std::string_view sentence) { write("refused", sentence); }
  void no_gpu(std::string_view sentence) { write("no_gpu", sentence); }
  void figure(std::string_view name, double value, std::string_view unit);

 private:
  void write(std::string_view key, std::string_view value);
  int descriptor_;
};

enum class State { answered, refused, no_gpu, crashed, timeout };

struct Outcome {
  State state = State::answered;
  std::string answer;
  std::vector<Figure> figures;
  std::vector<std::string> details;
  double seconds = 0;
};

// Two processes talk: small values, descriptors, and the reason when one of them has to give up.
class Channel {
 public:
  explicit Channel(int socket) : socket_(socket) {}
  template <class T>
  void send(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    send_bytes('v', &value, sizeof value);
  }
  template <class T>
  T receive() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    receive_bytes(&value, sizeof value);
    return value;
  }
  void send_failure(std::string_view sentence);
  void send_descriptor(int descriptor);
  int receive_descriptor();
  void meet();  // returns when the other process called it too

 private:
  void send_bytes(char kind, const void* data, std::size_t size);
  void receive_bytes(void* data, std::size_t size);
  int socket_;
};

// Starts this program again as the second process of a question; ends it when the question is done.
class Partner {
 public:
  explicit Partner(std::string_view question_id);
  ~Partner();
  Partner(const Partner&) = delete;
  Partner& operator=(const Partner&) = delete;
  Channel& channel() { return channel_; }

 private:
  int sockets_[2];
  Channel channel_;
  pid_t process_ = -1;
};

enum class Needs { nothing, gpu };

struct Question {
  const char* id;
  const char* question;
  Needs needs;
  void (*ask)(Answer&);
  void (*partner)(Channel&) = nullptr;  // what the second process does, where there is one
  int deadline_s = 60;
};

std::span<const Question> host_questions();    // probe_host.cpp
std::span<const Question> device_questions();  // probe.cu: the first one asks for the driver
std::span<const Question> share_questions();   // probe_share.cu
std::span<const Question> end_questions();     // probe_ends.cu
std::span<const Question> held_questions();    // probe_held.cu
std::span<const Question> nccl_questions();    // probe_nccl.cu
std::span<const Question> our_questions();     // probe_ours.cu
std::span<const Question> self_questions();    // probe_ask.cpp: planted crash, hang and refusal
const Question* find_question(std::string_view id);

// Asks in a process of its own and waits no longer than the deadline.
Outcome ask(const Question& question, int deadline_s);

// The two sides that the program takes when it was started by ask() or by Partner; they return its exit status.
int answer_alone(const Question& question, int answer_descriptor);
int answer_as_partner(const Question& question, int channel_descriptor);

// A process of ours: the child dies with its parent. Output goes where the parent's goes.
pid_t start_process(const std::vector<std::string>& command, int keep_open = -1);

// Runs a command to its end, or to the limit, and returns what it wrote; empty when it cannot be started.
std::string capture(const std::vector<std::string>& command, int limit_s = 20);

std::string find_program(std::string_view name);  // in PATH, $CUDA_HOME/bin, /usr/local/cuda/bin; empty if nowhere
std::string first_line_with(std::string_view text, std::string_view part);
std::string own_path();

// A shared library opened at run time, never linked: the program must start on every machine.
class Library {
 public:
  explicit Library(const std::vector<std::string>& names);  // the first that opens; throws Refused when none does
  template <class F>
  F* find(const char* name) const {
    return reinterpret_cast<F*>(find_address(name));
  }

 private:
  void* find_address(const char* name) const;
  void* handle_ = nullptr;
  std::string name_;
};

std::vector<std::string> nccl_candidates();  // probe_host.cpp: GPU_PROBE_NCCL, the loader's, the toolkit's

}  // namespace gpu_probe
