// An anonymous file in memory: nothing has a name that could be left over. Child processes inherit
// it and open it as /proc/self/fd/N.
#pragma once

#include <stdexcept>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

namespace ddpsim::calib {

class MemoryFile {
 public:
  explicit MemoryFile(const std::string& text = {}) : fd_(::memfd_create("ddpsim", 0)) {
    if (fd_ < 0) throw std::runtime_error("no memory for a file");
    for (std::size_t at = 0; at < text.size();) {
      ssize_t n = ::write(fd_, text.data() + at, text.size() - at);
      if (n <= 0) throw std::runtime_error("no memory for a file");
      at += static_cast<std::size_t>(n);
    }
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }
  int descriptor() const { return fd_; }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
  std::string text() const {
    std::string out;
    char block[1 << 16];
    off_t at = 0;
    for (ssize_t n; (n = ::pread(fd_, block, sizeof block, at)) > 0; at += n)
      out.append(block, static_cast<std::size_t>(n));
    return out;
  }

 private:
  int fd_;
};

}  // namespace ddpsim::calib
