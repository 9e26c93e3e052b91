#include "sim/io/lines.h"

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/io/descriptors.h"
#include "sim/model/error.h"

namespace ddpsim::io {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw InputError{path, std::string(what) + ": " + std::strerror(error)};
}

}  // namespace

std::string each_line(const std::string& path,
                      const std::function<void(const std::string& text)>& line) {
  constexpr std::size_t kLongest = 1 << 20;
  Descriptor in(open_input(path).descriptor);
  std::vector<char> block(1 << 16);
  std::string text;
  while (std::size_t n = read_some(in.number(), path, block.data(), block.size())) {
    std::string_view rest(block.data(), n);
    for (auto end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
      text += rest.substr(0, end);
      rest.remove_prefix(end + 1);
      line(text);
      text.clear();
    }
    text += rest;
    if (text.size() > kLongest)
      throw InputError{path, "has a line of more than 1 MiB; no file of ddpsim has"};
  }
  return text;
}

namespace {

int open_growing(const std::string& path) {
  struct stat s {};
  bool there = ::stat(path.c_str(), &s) == 0;
  if (there && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode)) return open_special(path);
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC, 0666);
}

}  // namespace

LineFile::LineFile(const std::string& path, std::int64_t bytes)
    : path_(path), descriptor_(open_growing(path)) {
  if (descriptor_ < 0) fail(path, "cannot be written", errno);
  struct stat s {};
  bool regular = ::fstat(descriptor_, &s) == 0 &&
                 S_ISREG(s.st_mode);  // else a device or a pipe: written as it is
  if (regular &&
      (::ftruncate(descriptor_, bytes) != 0 || ::lseek(descriptor_, bytes, SEEK_SET) < 0)) {
    int error = errno;
    ::close(descriptor_);
    fail(path, "cannot be written", error);
  }
}

LineFile::~LineFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void LineFile::append(const std::string& lines) {
  write_all(descriptor_, path_, lines);
}

}  // namespace ddpsim::io
