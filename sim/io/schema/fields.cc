#include "sim/io/schema/fields.h"

#include <algorithm>

#include <fmt/format.h>

namespace ddpsim::io {
namespace {

std::vector<std::string> words_of(const Where& w) {
  std::vector<std::string> out;
  for (const char* word : w.words)
    if (word) out.push_back(word);
  return out;
}

}  // namespace

bool Where::holds(const Reader& r) const {
  if (!r.has(key)) return none;
  const Json& found = r.json()[key];
  bool is_one = false;
  for (const char* word : words) is_one = is_one || (word && found == word);
  return is_one != none;
}
void Where::refuse(const Reader& r, const char* own) const {
  if (sentence) r.at(own).fail(sentence);
  const Json found = r.has(key) ? r.at(key).json() : Json();
  std::string names;
  for (const std::string& word : words_of(*this))
    names += (names.empty() ? "\"" : " or \"") + word + "\"";
  if (none) r.at(own).fail(fmt::format("does not belong to {} {}", key, names));
  r.at(own).fail(fmt::format("belongs to {} {}, not {}", key, names,
                             found.is_string() ? found.dump() : "to a file without it"));
}
std::optional<Condition> Where::record() const {
  if (!key) return std::nullopt;
  return Condition{key, words_of(*this), none};
}

void ListFields::schema(const char* name) {
  FieldRecord& editors = found.emplace_back();
  editors.key = "$schema";
  editors.help = "the file's JSON Schema, for editors (ddpsim schema)";
  FieldRecord& f = found.emplace_back();
  f.key = "schema";
  f.kind = FieldKind::Choice;
  f.choices = {name};
  f.required = true;
  f.help = "what the file is";
}

ReadFields::Handle& ReadFields::Handle::range(double least, double most, const char* sentence) {
  if (!number_ || (*number_ >= least && *number_ <= most)) return *this;
  r_.at(key_).fail(sentence
                       ? sentence
                       : fmt::format("{} is not within {:.0f} and {:.0f}", *number_, least, most),
                   "out_of_range");
}
ReadFields::Handle& ReadFields::Handle::at_least(double least, const char* sentence) {
  if (!number_ || *number_ >= least) return *this;
  r_.at(key_).fail(sentence ? sentence : fmt::format("{} is less than {:.0f}", *number_, least),
                   "out_of_range");
}

bool WriteFields::written(const Condition& c) const {
  const auto found = out.find(c.key);
  const bool is_one = found != out.end() && found->is_string() &&
                      std::find(c.words.begin(), c.words.end(),
                                found->get_ref<const std::string&>()) != c.words.end();
  return is_one != c.none;
}
// "[]" and "{}" have two characters: a long list is not dumped to see that it is none of them.
bool WriteFields::dumps_to(const OrderedJson& j, const std::string& text) {
  if (j.is_structured() && j.empty() != (text.size() == 2)) return false;
  return j.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) == text;
}

Duration Codec<AsPs>::read_whole_ps(const Reader& r) {
  const std::int64_t ps = r.integer();
  if (ps < 0) r.fail("a time is not negative");
  if (ps > kSecond.ps) r.fail("a latency or overhead is at most a second (1000000000000 ps)");
  return {ps};
}

}  // namespace ddpsim::io
