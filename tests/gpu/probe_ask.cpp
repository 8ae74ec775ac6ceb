// How gpu-probe asks: a process per question, a deadline, the answer through a file, and a second process where a
// question needs two. Knows nothing of GPUs. What a crashed or killed process said before its end is kept.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "probe.hpp"

namespace gpu_probe {

using Clock = std::chrono::steady_clock;

std::string place(const std::source_location& where) {
  const std::string_view file = where.file_name();
  return text(file.substr(file.rfind('/') + 1), ":", where.line());
}

void require(bool holds, std::string_view sentence) {
  if (!holds) throw Refused(std::string(sentence));
}

long check_system(long result, std::source_location where) {
  if (result < 0) throw Refused(text("the system says \"", std::strerror(errno), "\" at ", place(where)));
  return result;
}

void Answer::write(std::string_view key, std::string_view value) {
  std::string line = text(key, "\t", value);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  line += '\n';
  if (::write(descriptor_, line.data(), line.size()) < 0) std::abort();
}

void Answer::figure(std::string_view name, double value, std::string_view unit) {
  write("figure", text(name, "\t", value, "\t", unit));
}

// ---- two processes ----

void Channel::send_bytes(char kind, const void* data, std::size_t size) {
  std::string message(1, kind);
  message.append(static_cast<const char*>(data), size);
  check_system(::send(socket_, message.data(), message.size(), MSG_NOSIGNAL));
}

void Channel::receive_bytes(void* data, std::size_t size) {
  pollfd waiting{socket_, POLLIN, 0};
  require(poll(&waiting, 1, 40'000) == 1, "the other process said nothing for 40 s");
  std::array<char, 4096> buffer{};
  const long length = check_system(recv(socket_, buffer.data(), buffer.size(), 0));
  require(length > 0, "the other process ended before it answered");
  if (buffer[0] == 'f') throw Refused(text("in the other process: ", std::string(&buffer[1], length - 1)));
  require(static_cast<std::size_t>(length) == size + 1, "the other process said something else than expected");
  std::memcpy(data, &buffer[1], size);
}

void Channel::send_failure(std::string_view sentence) {
  send_bytes('f', sentence.data(), std::min<std::size_t>(sentence.size(), 2000));
}

void Channel::meet() {
  send(std::uint8_t{1});
  receive<std::uint8_t>();
}

void Channel::send_descriptor(int descriptor) {
  char kind = 'd';
  iovec part{&kind, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  check_system(sendmsg(socket_, &message, MSG_NOSIGNAL));
}

int Channel::receive_descriptor() {
  pollfd waiting{socket_, POLLIN, 0};
  require(poll(&waiting, 1, 40'000) == 1, "the other process sent no descriptor for 40 s");
  std::array<char, 4096> buffer{};
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const long length = check_system(recvmsg(socket_, &message, 0));
  if (length > 0 && buffer[0] == 'f')
    throw Refused(text("in the other process: ", std::string(&buffer[1], length - 1)));
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  require(length > 0 && header != nullptr && header->cmsg_type == SCM_RIGHTS, "the other process sent no descriptor");
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}

std::string own_path() {
  std::array<char, 4096> path{};
  const long length = check_system(readlink("/proc/self/exe", path.data(), path.size() - 1));
  return {path.data(), static_cast<std::size_t>(length)};
}

pid_t start_process(const std::vector<std::string>& command, int keep_open) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t process = static_cast<pid_t>(check_system(fork()));
  if (process != 0) return process;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  if (keep_open >= 0) fcntl(keep_open, F_SETFD, 0);
  execv(words[0], words.data());
  _exit(127);
}

Partner::Partner(std::string_view question_id)
    : sockets_{-1, -1},
      channel_((check_system(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets_)), sockets_[0])) {
  process_ =
      start_process({own_path(), "--partner", std::string(question_id), std::to_string(sockets_[1])}, sockets_[1]);
  close(sockets_[1]);
}

Partner::~Partner() {
  close(sockets_[0]);
  for (int waited_ms = 0; waited_ms < 5000; waited_ms += 5) {
    if (waitpid(process_, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

int answer_as_partner(const Question& question, int channel_descriptor) {
  Channel channel(channel_descriptor);
  try {
    question.partner(channel);
    return 0;
  } catch (const std::exception& failure) {
    try {
      channel.send_failure(failure.what());
    } catch (const std::exception&) {  // the first process has already gone: nobody is left to tell
    }
    return 1;
  }
}

int answer_alone(const Question& question, int answer_descriptor) {
  Answer answer(answer_descriptor);
  try {
    question.ask(answer);
    return 0;
  } catch (const NoGpu& reason) {
    answer.no_gpu(reason.what());
  } catch (const std::exception& reason) {
    answer.refused(reason.what());
  }
  return 0;
}

// ---- asking ----

namespace {

std::string read_all(int descriptor) {
  std::string all;
  std::array<char, 4096> part{};
  lseek(descriptor, 0, SEEK_SET);
  for (long length; (length = read(descriptor, part.data(), part.size())) > 0;) all.append(part.data(), length);
  return all;
}

void read_answer(const std::string& lines, Outcome& outcome) {
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const std::size_t tab = line.find('\t');
    const std::string key = line.substr(0, tab);
    const std::string value = line.substr(tab + 1);
    if (key == "detail") outcome.details.push_back(value);
    if (key == "answer") outcome.answer = value;
    if (key == "refused" || key == "no_gpu") {
      outcome.state = key == "refused" ? State::refused : State::no_gpu;
      outcome.answer = key == "refused" ? "no: " + value : value;
    }
    if (key != "figure") continue;
    const std::size_t second = value.find('\t');
    const std::size_t third = value.find('\t', second + 1);
    const double number = std::strtod(value.c_str() + second + 1, nullptr);
    outcome.figures.push_back({value.substr(0, second), number, value.substr(third + 1)});
  }
}

// Waits without reaping, so that the process group's number cannot be given to someone else meanwhile.
bool ended(pid_t process, Clock::time_point limit) {
  for (;;) {
    siginfo_t info{};
    if (waitid(P_PID, process, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == process) return true;
    if (Clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

pid_t start_asked(const Question& question, int answer, int output) {
  const std::vector<std::string> command{own_path(), "--ask", question.id, std::to_string(answer)};
  const pid_t parent = getpid();
  const pid_t process = static_cast<pid_t>(check_system(fork()));
  if (process != 0) return process;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  setpgid(0, 0);
  fcntl(answer, F_SETFD, 0);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execl(command[0].c_str(), command[0].c_str(), command[1].c_str(), command[2].c_str(), command[3].c_str(), nullptr);
  _exit(127);
}

}  // namespace

Outcome ask(const Question& question, int deadline_s) {
  Outcome outcome;
  const int answer = static_cast<int>(check_system(memfd_create("answer", MFD_CLOEXEC)));
  const int output = static_cast<int>(check_system(memfd_create("output", MFD_CLOEXEC)));
  const Clock::time_point start = Clock::now();
  const pid_t process = start_asked(question, answer, output);
  const bool in_time = ended(process, start + std::chrono::seconds(deadline_s));
  kill(-process, SIGKILL);  // after its end: what it left running
  const bool gone = in_time || ended(process, Clock::now() + std::chrono::seconds(10));
  int status = 0;
  if (gone) waitpid(process, &status, 0);
  outcome.seconds = seconds_since(start);
  read_answer(read_all(answer), outcome);
  const std::string said = read_all(output);
  if (!said.empty()) outcome.details.push_back("output: " + said.substr(said.size() > 2000 ? said.size() - 2000 : 0));
  if (!in_time) {
    outcome.state = State::timeout;
    outcome.details.push_back(outcome.answer);
    outcome.answer = text("no answer within ", deadline_s, " s", gone ? "" : "; its process cannot be ended");
  } else if (WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) != 0)) {
    outcome.state = State::crashed;
    outcome.details.push_back(outcome.answer);
    outcome.answer = WIFSIGNALED(status) ? text("crashed: ", strsignal(WTERMSIG(status)))
                                         : text("ended by itself with status ", WEXITSTATUS(status));
  }
  close(answer);
  close(output);
  return outcome;
}

// ---- programs and libraries ----

std::string capture(const std::vector<std::string>& command, int limit_s) {
  std::array<int, 2> ends{};
  check_system(pipe2(ends.data(), O_CLOEXEC));
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t process = static_cast<pid_t>(check_system(fork()));
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(STDIN_FILENO);
    execv(words[0], words.data());
    _exit(127);
  }
  close(ends[1]);
  std::string said;
  std::array<char, 4096> part{};
  const Clock::time_point start = Clock::now();
  for (pollfd waiting{ends[0], POLLIN, 0}; seconds_since(start) < limit_s;) {
    if (poll(&waiting, 1, 100) == 0) continue;
    const long length = read(ends[0], part.data(), part.size());
    if (length <= 0) break;
    if (said.size() < 1'000'000) said.append(part.data(), length);
  }
  close(ends[0]);
  if (!ended(process, Clock::now() + std::chrono::seconds(1))) kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  return said;
}

std::string find_program(std::string_view name) {
  const char* path = std::getenv("PATH");
  const char* cuda = std::getenv("CUDA_HOME");
  std::istringstream folders(text(path ? path : "", ":", cuda ? text(cuda, "/bin") : "", ":/usr/local/cuda/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = text(folder, "/", name);
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

std::string first_line_with(std::string_view all, std::string_view part) {
  const std::size_t found = all.find(part);
  if (found == std::string_view::npos) return {};
  const std::size_t before = all.rfind('\n', found);
  const std::size_t start = before == std::string_view::npos ? 0 : before + 1;
  return std::string(all.substr(start, all.find('\n', found) - start));
}

Library::Library(const std::vector<std::string>& names) {
  std::string reasons;
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    name_ = name;
    if (handle_ != nullptr) return;
    reasons += text(reasons.empty() ? "" : "; ", dlerror());
  }
  throw Refused(reasons);
}

void* Library::find_address(const char* name) const {
  void* address = dlsym(handle_, name);
  require(address != nullptr, text(name_, " has no ", name));
  return address;
}

// ---- the probe probes itself: it must outlive what a question can do to it ----

namespace {

void ask_crash(Answer& answer) {
  answer.detail("said before the crash");
  raise(SIGSEGV);
}

void ask_hang(Answer&) {
  Partner partner("self_hang");  // both hang: the deadline must end both
  for (;;) pause();
}

void hang(Channel&) {
  for (;;) pause();
}

void ask_refusal(Answer& answer) {
  Partner partner("self_refusal");
  partner.channel().meet();
  const int descriptor = partner.channel().receive_descriptor();
  answer.figure("descriptor", descriptor >= 0 ? 1 : 0, "");
  partner.channel().receive<int>();
}

void refuse(Channel& channel) {
  channel.meet();
  channel.send_descriptor(STDERR_FILENO);
  throw Refused("planted refusal");
}

constexpr std::array self{
    Question{"self_crash", "is a crash seen as one?", Needs::nothing, ask_crash},
    Question{"self_hang", "is a hang ended?", Needs::nothing, ask_hang, hang, 1},
    Question{"self_refusal", "does a refusal in the second process arrive?", Needs::nothing, ask_refusal, refuse},
};

}  // namespace

std::span<const Question> self_questions() { return self; }

}  // namespace gpu_probe
