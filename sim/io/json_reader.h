// Strict reading of JSON: every access knows its place in the file, every mistake becomes an
// InputError that says what to write instead.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/model/error.h"
#include "sim/units/units.h"

namespace ddpsim::io {

using Json = nlohmann::json;

// Parses text; rejects nesting deeper than 64, keys that appear twice, more than 8 million values,
// and anything that is not JSON. `file` names the source in errors.
Json parse_json(const std::string& text, const std::string& file);

// The known word that is nearest to `word` (edit distance), "" if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

class Reader {
 public:
  Reader(const Json& value, std::string file, std::string path = "")
      : j_(value), file_(std::move(file)), path_(std::move(path)) {}
  [[noreturn]] void fail(const std::string& message, const char* code = "input",
                         const std::string& remedy = "") const {
    fail_at("", message, code, remedy);
  }
  [[noreturn]] void fail_at(const std::string& path, const std::string& message,
                            const char* code = "input", const std::string& remedy = "") const {
    throw InputError{file_ + "#" + path_ + path, message, code, remedy};
  }

  // REQUIRES an object with no other keys than these.
  void only(std::initializer_list<const char*> keys) const { only(std::vector<const char*>(keys)); }
  void only(const std::vector<const char*>& keys) const;
  // REQUIRES an object whose "schema" is `expected`, for example "ddpsim.cluster/1".
  void schema(const char* expected) const;
  bool has(const char* key) const { return j_.contains(key) && !j_[key].is_null(); }
  Reader at(const char* key) const;  // required
  std::vector<Reader> items() const;
  std::vector<std::pair<std::string, Reader>> members() const;

  std::string text() const;  // no control characters but new lines and tabs
  std::int64_t integer() const;
  double number() const;
  bool boolean() const;
  Duration duration() const;    // "5us"
  Bytes bytes() const;          // "25MiB"
  Bandwidth bandwidth() const;  // "10Gb/s"
  std::vector<std::int64_t> integers() const;
  // Index of the word in `words`.
  std::size_t choice(std::initializer_list<const char*> words) const {
    return choice(std::vector<const char*>(words));
  }
  std::size_t choice(const std::vector<const char*>& words) const;

  int small(std::int64_t low, std::int64_t high) const;
  const Json& json() const { return j_; }
  const std::string& file() const { return file_; }

 private:
  void refuse_controls(const std::string& text) const;
  const Json& j_;
  std::string file_;
  std::string path_;
};

}  // namespace ddpsim::io
