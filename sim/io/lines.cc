#include "sim/io/lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "sim/model/error.h"

namespace ddpsim::io {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error) { throw InputError{path, std::string(what) + ": " + std::strerror(error)}; }

}  // namespace

void each_line(const std::string& path, void (*line)(void* state, const std::string& text), void* state) {
  std::error_code e;
  if (std::filesystem::is_directory(path, e)) throw InputError{path, "is a folder; expected a file"};
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(path, "cannot be read", errno ? errno : EIO);
  std::string text;
  while (std::getline(in, text) && !in.eof()) line(state, text);
  if (in.bad()) fail(path, "cannot be read", errno ? errno : EIO);
}

std::optional<FoundLines> scan_lines(const std::string& path) {
  std::error_code e;
  auto status = std::filesystem::status(path, e);
  if (status.type() == std::filesystem::file_type::not_found) return std::nullopt;
  if (std::filesystem::is_directory(status)) throw InputError{path, "is a folder; expected a file"};
  if (!std::filesystem::is_regular_file(status)) return std::nullopt;  // a device or a pipe holds nothing
  FoundLines out;
  auto count = [](void* state, const std::string& text) {
    auto& found = *static_cast<FoundLines*>(state);
    if (found.lines == 0) found.first = text;
    if (found.lines == 1) found.second = text;
    found.last = text;
    ++found.lines;
    found.bytes += static_cast<std::int64_t>(text.size()) + 1;
  };
  each_line(path, count, &out);
  return out;
}

LineFile::LineFile(const std::string& path, std::int64_t bytes) : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) fail(path, "cannot be written", errno);
  struct stat s {};
  bool regular = ::fstat(descriptor_, &s) == 0 && S_ISREG(s.st_mode);  // else a device or a pipe: written as it is
  if (regular && (::ftruncate(descriptor_, bytes) != 0 || ::lseek(descriptor_, bytes, SEEK_SET) < 0)) {
    int error = errno;
    ::close(descriptor_);
    fail(path, "cannot be written", error);
  }
}

LineFile::~LineFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void LineFile::append(const std::string& lines) {
  std::size_t done = 0;
  while (done < lines.size()) {
    ssize_t n = ::write(descriptor_, lines.data() + done, lines.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(path_, "cannot be written", n < 0 ? errno : ENOSPC);
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace ddpsim::io
