// A file of lines that grows while it is written, and that is continued after a kill: what a sweep writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddpsim::io {

// Whole lines only: what a killed writer left of its last line does not count.
struct FoundLines {
  std::int64_t lines = 0;
  std::int64_t bytes = 0;
  std::string first;
  std::string second;
  std::string last;
};
// nullopt: there is no such file. Throws InputError if it cannot be read.
std::optional<FoundLines> scan_lines(const std::string& path);

class LineFile {
 public:
  // Opens or creates the file and cuts it to its first `bytes` bytes. Throws InputError.
  LineFile(const std::string& path, std::int64_t bytes);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  // Throws InputError; lines that were written before stay.
  void append(const std::string& lines);

 private:
  std::string path_;
  int descriptor_ = -1;
};

// Calls `line` for each whole line of a file. Throws InputError.
void each_line(const std::string& path, void (*line)(void* state, const std::string& text), void* state);

}  // namespace ddpsim::io
