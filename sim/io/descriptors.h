// What reading and writing of whole files (files.h) and of growing ones (lines.h) have in common.
#pragma once

#include <string>
#include <utility>

#include <sys/types.h>

namespace ddpsim::io {

// Closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  // Whose it is now: nobody closes it.
  int release() { return std::exchange(number_, -1); }
  // False: the system says that what was written is lost (errno).
  bool close();

 private:
  int number_;
};

// A regular file, to be read without ever waiting; its device and inode, and its length. Throws
// InputError for whatever else it is: a pipe or a device may never end.
struct Input {
  int descriptor = -1;
  std::pair<dev_t, ino_t> id;
  off_t bytes = 0;
};
Input open_input(const std::string& path);
// For what opens a file by itself: it is one of those that was_read() (files.h) knows.
void note_read(std::pair<dev_t, ino_t> file);
// Up to `most` bytes; 0 = the end. Throws InputError.
std::size_t read_some(int descriptor, const std::string& path, char* to, std::size_t most);

// A device or a pipe, to be written as it is. Waits up to five seconds for a pipe's reader. Throws
// InputError.
int open_special(const std::string& path);
// All of it. Throws InputError that names `path`.
void write_all(int descriptor, const std::string& path, const std::string& text);

}  // namespace ddpsim::io
