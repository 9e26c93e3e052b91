#include "sim/io/descriptors.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/model/error.h"

namespace ddpsim::io {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw InputError{path, std::string(what) + ": " + std::strerror(error)};
}
constexpr const char* kRead = "cannot be read";
constexpr const char* kWritten = "cannot be written";

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}
bool Descriptor::close() {
  return ::close(std::exchange(number_, -1)) == 0;
}

Input open_input(const std::string& path) {
  const InputError irregular{path, "is not a regular file; save it to a file first"};
  // Without waiting: neither for somebody to write into a pipe, nor for the next line of a log.
  Input in;
  in.descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (in.descriptor < 0 && errno == ENOENT) throw InputError{path, "no such file", "no_such_file"};
  if (in.descriptor < 0 && errno == ENXIO) throw irregular;  // a socket, or no such device
  if (in.descriptor < 0) fail(path, kRead, errno);
  Descriptor guard(in.descriptor);
  struct stat status {};
  if (::fstat(in.descriptor, &status) != 0) fail(path, kRead, errno);
  if (S_ISDIR(status.st_mode)) throw InputError{path, "is a folder; expected a file"};
  if (!S_ISREG(status.st_mode)) throw irregular;
  in.id = {status.st_dev, status.st_ino};
  in.bytes = status.st_size;
  guard.release();
  return in;
}

std::size_t read_some(int descriptor, const std::string& path, char* to, std::size_t most) {
  for (;;) {
    ssize_t n = ::read(descriptor, to, most);
    if (n >= 0) return n;
    if (errno == EAGAIN)
      throw InputError{path, "is not a regular file: it has no end; save what it holds first"};
    if (errno != EINTR) fail(path, kRead, errno);
  }
}

int open_special(const std::string& path) {
  constexpr int kTries = 50;
  constexpr useconds_t kWait = 100'000;
  for (int k = 0;; ++k) {
    int d = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (d >= 0) {
      ::fcntl(d, F_SETFL, ::fcntl(d, F_GETFL) & ~O_NONBLOCK);
      return d;
    }
    if (errno != ENXIO) fail(path, kWritten, errno);
    if (k == kTries) throw InputError{path, "cannot be written: nobody reads this pipe"};
    ::usleep(kWait);
  }
}

void write_all(int descriptor, const std::string& path, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    ssize_t n = ::write(descriptor, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(path, kWritten, n < 0 ? errno : ENOSPC);
    done += n;
  }
}

}  // namespace ddpsim::io
