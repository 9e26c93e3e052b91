// A SQLite file that is read, one query at a time. Only where the build has libsqlite3.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ddpsim::io {

class Sqlite {
 public:
  // Throws InputError: it cannot be read, or is another kind of file.
  explicit Sqlite(const std::string& path);
  ~Sqlite();
  Sqlite(const Sqlite&) = delete;
  Sqlite& operator=(const Sqlite&) = delete;
  // Of a table, its columns; empty: there is none of that name (names of any case).
  std::vector<std::string> columns(const std::string& table) const;

  // Rows of an answer: `while (rows.next())`. Throws InputError where the file is damaged. The
  // numbers take the places of the question marks.
  class Rows {
   public:
    Rows(const Sqlite& of, const std::string& sql, const std::vector<std::int64_t>& numbers = {});
    ~Rows();
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;
    bool next();
    std::int64_t integer(int column, std::int64_t if_null = 0) const;
    std::string text(int column) const;  // "" = null

   private:
    const Sqlite& of_;
    void* statement_ = nullptr;
  };

 private:
  [[noreturn]] void fail() const;
  std::string path_;
  void* handle_ = nullptr;
};

}  // namespace ddpsim::io
