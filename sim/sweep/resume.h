// Rows that a file has already: those of a sweep that was killed, or of its shards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/sweep/rows.h"

namespace ddpsim::sweep {

// Points of a sweep: first, first + 1, ..., last - 1.
struct Part {
  std::int64_t first = 0;
  std::int64_t last = 0;
};
// "3/16": of 16 parts, the one after the first three; "" = all points. Throws InputError.
Part part_of(const std::string& shard, std::int64_t points);

// What a file has, and where to go on.
struct Found {
  std::int64_t rows = 0;
  std::int64_t bytes = 0;  // of its header and its whole rows
};

// Takes the lines of a file of rows, from its header on, and refuses the first one that sweep did
// not write.
class RowReader {
 public:
  // Of a file of any sweep, from whatever point it begins with. `path`, `blame` (a flag, or the
  // path): for errors.
  RowReader(std::string path, std::string blame);
  // Of a part of `sweep`, which must outlive it.
  RowReader(std::string path, std::string blame, const Sweep& sweep, Part part);
  // The next line, without its end. Throws InputError.
  void take(const std::string& line);
  const std::string& path() const { return path_; }
  const std::string& header() const { return header_; }
  const std::string& id() const { return id_; }
  std::int64_t first() const { return first_; }
  std::int64_t next() const { return next_; }
  Found found() const;
  // The same, where the file ends with `left` after its last whole line: a line of this part that
  // was being written, or nothing. Throws InputError for anything else. REQUIRES: made with a
  // sweep.
  Found end(const std::string& left) const;

 private:
  [[noreturn]] void fail(const std::string& why) const;
  void take_header(const std::string& line);
  std::string path_;
  std::string blame_;
  const Sweep* sweep_ = nullptr;
  Part part_;
  std::string header_;
  std::string id_;
  std::int64_t lines_ = 0;
  std::int64_t bytes_ = 0;
  std::int64_t first_ = -1;
  std::int64_t next_ = -1;
};

// Sorts files of one sweep by their points. Throws InputError unless they are all of them.
// REQUIRES: at least one; each has a row.
void join(std::vector<RowReader>& shards);

}  // namespace ddpsim::sweep
