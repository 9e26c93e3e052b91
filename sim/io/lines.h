// A file of lines that grows while it is written, and that is continued after a kill: what a sweep
// writes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ddpsim::io {

// Calls `line` for each whole line of a file, without its end. Returns what stands after the last
// one, the beginning of a line that a killed writer left. Throws InputError, also for a line of
// more than a MiB: nothing of ddpsim's is.
std::string each_line(const std::string& path,
                      const std::function<void(const std::string& text)>& line);

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

}  // namespace ddpsim::io
