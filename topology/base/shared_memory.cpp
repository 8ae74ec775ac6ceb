// SPDX-License-Identifier: Apache-2.0
// Makes nameless shared memory by memfd_create. Neighbours open it through /proc, so no name can be left behind.
#include "topology/base/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "topology/base/cgroup.hpp"
#include "topology/base/descriptor.hpp"
#include "topology/base/error.hpp"
#include "topology/base/proc.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

std::shared_ptr<std::byte> map(int file, std::size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return nullptr;
  return {static_cast<std::byte*>(memory), [bytes](std::byte* begin) { ::munmap(begin, bytes); }};
}

}  // namespace

SharedMemory SharedMemory::make(std::size_t bytes, bool taken) {
  const auto refuse = [&](std::string_view what, int error) {
    return Error(Code::out_of_memory,
                 text(format_bytes(bytes), " of memory to share on this node: ", what, ": ", reason(error)),
                 "check the memory limit of this job's control group, and the number of open files");
  };
  OwnedDescriptor file(::memfd_create("lockstep", MFD_CLOEXEC));
  if (!file) throw refuse("memfd_create", errno);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) throw refuse("ftruncate", errno);
  if (taken) {
    // The system would hand out the last page, and then end the process that asks for one more.
    if (const std::uint64_t free = free_memory_bytes(); bytes > free)
      throw Error(Code::out_of_memory,
                  text(format_bytes(bytes), " of memory to share, but only ", format_bytes(free), " are free"),
                  "ask for less, or start fewer members on this node");
    int error = EINTR;  // a timer of the program's may interrupt the call
    for (int i = 0; i < 1000 && error == EINTR; ++i)
      error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
    if (error != 0) throw refuse("posix_fallocate", error);
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw refuse("fstat", errno);
  SharedMemory made;
  made.memory_ = map(file.get(), bytes);
  if (!made.memory_) throw refuse("mmap", errno);
  made.file_ = std::make_unique<File>(File{-1, status.st_dev, status.st_ino});
  made.file_->number = file.take();
  return made;
}

std::string SharedMemory::ticket() const {
  if (!file_) return {};
  return text(::getpid(), ' ', file_->number, ' ', file_->device, ' ', file_->inode);
}

void SharedMemory::make_read_only(std::size_t bytes) {
  if (::mprotect(memory_.get(), bytes, PROT_READ) != 0) throw system_error("read-only shared memory: mprotect", errno);
}

void SharedMemory::close() {
  if (file_) ::close(file_->number);
  file_.reset();
}

SharedMemory SharedMemory::open(const std::string& ticket, std::size_t bytes) {
  const std::vector<std::string> words = split(ticket, ' ');
  if (words.size() != 4) throw Error(Code::bad_message, text("a ticket for shared memory: ", printable(ticket)));
  const std::string path = text("/proc/", words[0], "/fd/", words[1]);
  const auto refuse = [&](std::string_view why) {
    return Error(Code::shared_memory, text(path, " of a neighbour: ", why),
                 "let the processes of a node run as one user in one process namespace");
  };
  // The process number in the ticket may belong to another namespace.
  const std::string_view another = "it is not the memory that was meant";
  const OwnedDescriptor file(open_memory_file(path, O_RDWR));
  if (!file) throw refuse(errno == 0 ? another : reason(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw refuse(reason(errno));
  if (words[2] != text(status.st_dev) || words[3] != text(status.st_ino)) throw refuse(another);
  SharedMemory opened;
  opened.memory_ = map(file.get(), bytes);
  if (!opened.memory_) throw refuse(reason(errno));
  return opened;
}

}  // namespace lockstep
