#include "sim/io/json_reader.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "sim/units/text.h"

namespace ddpsim::io {
namespace {

constexpr std::size_t kMaxDepth = 64;
// At most about a hundred bytes each: no file takes more than a GB.
constexpr std::size_t kMostValues = 8'000'000;

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string short_dump(const Json& j) {
  if (j.is_object()) return "an object";
  if (j.is_array()) return "a list";
  std::string s = j.dump(-1, ' ', false, Json::error_handler_t::replace);
  return s.size() > 40 ? s.substr(0, 37) + "..." : s;
}

std::string join(const std::vector<const char*>& words) {
  std::string out;
  for (const char* w : words) out += (out.empty() ? "\"" : ", \"") + std::string(w) + "\"";
  return out;
}

std::string escape(const std::string& key) {
  std::string out;
  for (char c : printable(key.substr(0, 60)))
    out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  if (word.size() > 80) return {};
  std::string best;
  std::size_t best_distance = 1 + std::max<std::size_t>(2, word.size() / 3);
  for (const std::string& k : known) {
    std::size_t d = edit_distance(word, k);
    if (d < best_distance) best_distance = d, best = k;
  }
  return best;
}

namespace {

// What JSON may not be, found in one pass before anything is built of it. (The library's own
// callback looks at all elements of a list when one of them ends.)
class Checker {
 public:
  explicit Checker(const std::string& file) : file_(file) {}
  bool null() { return count(); }
  bool boolean(bool) { return count(); }
  bool number_integer(Json::number_integer_t) { return count(); }
  bool number_unsigned(Json::number_unsigned_t) { return count(); }
  bool number_float(Json::number_float_t, const std::string&) { return count(); }
  bool string(std::string&) { return count(); }
  bool binary(Json::binary_t&) { return count(); }
  bool start_object(std::size_t) { return deeper(); }
  bool start_array(std::size_t) { return deeper(); }
  bool end_object() { return keys_.pop_back(), true; }
  bool end_array() { return keys_.pop_back(), true; }
  bool key(std::string& key) {
    if (keys_.back().insert(key).second) return true;
    throw InputError{file_, "key \"" + printable(key.substr(0, 60)) +
                                "\" appears twice in one object; keep one"};
  }
  template <class Error>
  bool parse_error(std::size_t, const std::string&, const Error& e) {
    throw e;
  }

 private:
  bool deeper() {
    keys_.emplace_back();
    if (keys_.size() > kMaxDepth + 1)
      throw InputError{
          file_, fmt::format("nested deeper than {} levels; no file of ddpsim is", kMaxDepth)};
    return count();
  }
  bool count() {
    if (++values_ <= kMostValues) return true;
    throw InputError{file_,
                     fmt::format("holds more than {} values; no file of ddpsim does", kMostValues)};
  }
  const std::string& file_;
  std::vector<std::set<std::string>> keys_;
  std::size_t values_ = 0;
};

}  // namespace

Json parse_json(const std::string& text, const std::string& file) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw InputError{file, "the file is empty; expected JSON"};
  // The library takes it for the end, and would not look at what follows.
  if (auto at = text.find('\0'); at != std::string::npos)
    throw InputError{file, fmt::format("not valid JSON: byte {} is a NUL byte, which no text has; "
                                       "fetch it or write it again",
                                       at)};
  try {
    Checker checker(file);
    Json::sax_parse(text, &checker);
    return Json::parse(text);
  } catch (const Json::exception& e) {
    std::string what = e.what();
    auto cut = what.find("] ");
    if (cut != std::string::npos) what = what.substr(cut + 2);
    if (what.size() > 200) what = what.substr(0, 200) + "...";
    throw InputError{file, "not valid JSON (truncated?): " + printable(what)};
  }
}

void Reader::only(const std::vector<const char*>& keys) const {
  if (!j_.is_object()) fail("expected an object, found " + short_dump(j_), "wrong_type");
  for (const auto& [key, value] : j_.items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    const std::vector<std::string> known(keys.begin(), keys.end());
    std::string hint = nearest(key, known);
    fail_at("/" + escape(key),
            hint.empty() ? "unknown key; known are " + join(keys)
                         : "unknown key (did you mean \"" + hint + "\"?)",
            "unknown_key", hint);
  }
}

void Reader::schema(const char* expected) const {
  if (!j_.is_object())
    fail("expected an object with \"schema\": \"" + std::string(expected) + "\", found " +
         short_dump(j_));
  if (!j_.contains("schema"))
    fail("no \"schema\"; this command reads \"" + std::string(expected) + "\"");
  const Json& found = j_["schema"];
  if (found == expected) return;
  // "ddpsim.cluster/1": another kind of file, or another version of this kind?
  auto kind = [](const std::string& schema) { return schema.substr(0, schema.find('/')); };
  std::string wanted = kind(expected);
  if (found.is_string() && found.get<std::string>().starts_with("ddpsim.") &&
      kind(found.get<std::string>()) != wanted)
    fail_at("/schema", "is " + short_dump(found) + ", but a " + wanted.substr(7) + " (\"" +
                           expected + "\") is expected here");
  fail_at("/schema", "is " + short_dump(found) + "; this version of ddpsim reads \"" +
                         std::string(expected) + "\"");
}

Reader Reader::at(const char* key) const {
  if (!j_.is_object()) fail("expected an object, found " + short_dump(j_), "wrong_type");
  if (!j_.contains(key)) fail("\"" + std::string(key) + "\" is missing", "missing_key", key);
  return Reader(j_[key], file_, path_ + "/" + key);
}

std::vector<Reader> Reader::items() const {
  if (!j_.is_array()) fail("expected a list, found " + short_dump(j_), "wrong_type");
  std::vector<Reader> out;
  out.reserve(j_.size());
  for (std::size_t i = 0; i < j_.size(); ++i)
    out.emplace_back(j_[i], file_, path_ + "/" + std::to_string(i));
  return out;
}

std::vector<std::pair<std::string, Reader>> Reader::members() const {
  if (!j_.is_object()) fail("expected an object, found " + short_dump(j_), "wrong_type");
  std::vector<std::pair<std::string, Reader>> out;
  for (const auto& [key, value] : j_.items()) {
    Reader member(value, file_, path_ + "/" + escape(key));
    member.refuse_controls(key);
    out.emplace_back(key, member);
  }
  return out;
}

std::string Reader::text() const {
  if (!j_.is_string()) fail("expected text in quotes, found " + short_dump(j_), "wrong_type");
  auto text = j_.get<std::string>();
  refuse_controls(text);
  return text;
}

void Reader::refuse_controls(const std::string& text) const {
  for (char c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
      fail(fmt::format(
          "holds the control character U+{:04X}, which would reach a terminal; remove it", c));
}

std::int64_t Reader::integer() const {
  if (j_.is_number_unsigned() && j_.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
    fail("is too large for a 64-bit integer");
  if (!j_.is_number_integer())
    fail("expected a whole number, found " + short_dump(j_), "wrong_type");
  return j_.get<std::int64_t>();
}

double Reader::number() const {
  if (!j_.is_number()) fail("expected a number, found " + short_dump(j_), "wrong_type");
  double v = j_.get<double>();
  if (!std::isfinite(v)) fail("expected a finite number");
  return v;
}

bool Reader::boolean() const {
  if (!j_.is_boolean()) fail("expected true or false, found " + short_dump(j_), "wrong_type");
  return j_.get<bool>();
}

namespace {
template <class T>
T with_unit(const Reader& r, Parsed<T> (*parse)(std::string_view)) {
  std::string text = r.json().is_string() ? r.json().get<std::string>() : short_dump(r.json());
  auto parsed = parse(text);
  if (!parsed.value)
    r.fail(parsed.error + (r.json().is_string() ? "" : ", in quotes"), "wrong_type");
  if (!r.json().is_string()) r.fail("expected text in quotes, found " + text, "wrong_type");
  return *parsed.value;
}
}  // namespace

Duration Reader::duration() const {
  return with_unit<Duration>(*this, parse_duration);
}
Bytes Reader::bytes() const {
  return with_unit<Bytes>(*this, parse_bytes);
}
Bandwidth Reader::bandwidth() const {
  Bandwidth b = with_unit<Bandwidth>(*this, parse_bandwidth);
  if (b.bits_per_s <= 0)
    fail("a bandwidth is positive, for example \"100Gb/s\"; what may be absent is left out");
  return b;
}

std::vector<std::int64_t> Reader::integers() const {
  std::vector<std::int64_t> out;
  for (const Reader& r : items()) out.push_back(r.integer());
  return out;
}

std::size_t Reader::choice(const std::vector<const char*>& words) const {
  std::string t = text();
  std::size_t i = 0;
  for (const char* w : words) {
    if (t == w) return i;
    ++i;
  }
  std::string hint = nearest(t, std::vector<std::string>(words.begin(), words.end()));
  std::string list = join(words);
  fail("\"" + t.substr(0, 40) + "\" is none of " + list +
           (hint.empty() ? "" : " (did you mean \"" + hint + "\"?)"),
       "unknown_word", hint);
}

int Reader::small(std::int64_t low, std::int64_t high) const {
  std::int64_t v = integer();
  if (v < low || v > high)
    fail(fmt::format("{} is not within {} and {}", v, low, high), "out_of_range");
  return static_cast<int>(v);
}

}  // namespace ddpsim::io
