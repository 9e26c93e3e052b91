// Documents that a question is made of, as they are read and set. Internal to question.cc,
// loader.cc and sweep.cc.
#pragma once

#include "sim/door/question.h"
#include "sim/io/extends.h"

namespace ddpsim::door {

using io::Json;

struct Named {
  Json document;
  std::string file;
  io::Layers layers = {};
};

// `place`: the flag or the line of a file that names it, for errors.
Named open_document(const io::Home& home, const char* folder, const std::string& name,
                    const char* what, const std::string& place);
// The profile that a cluster names: a measured one of that hardware before the datasheet.
std::string default_profile(const io::Home& home, const std::string& named);
// FNV-1a, going on from `h`.
std::uint64_t fnv1a(std::uint64_t h, const std::string& text);
// The knobs of --plan: of a file, or a system by name.
Json read_plan_flag(const std::string& plan);

// A plan's knobs as values of --set.
std::vector<std::string> sets_of(const io::Json& plan);

// What a reader says of text in a document, for a flag, whose text has no quotes.
inline std::string without_quotes(std::string what) {
  for (const char* quotes : {", in quotes", " in quotes"})
    if (auto at = what.find(quotes); at != std::string::npos)
      what.erase(at, std::string(quotes).size());
  return what;
}

// --set flags, and the blame for what they broke.
class Settings {
 public:
  explicit Settings(const std::vector<std::string>& sets) {
    for (const std::string& s : sets) list_.push_back(io::parse_setting(s));
  }
  // Later ones win.
  void add(const io::Setting& s) { list_.push_back(s); }
  // What they say about one document, as a key.
  std::string of(io::Target target) const {
    std::string out;
    for (const io::Setting& s : list_)
      if (s.target == target) out += s.text + "\n";
    return out;
  }
  // Whether they say how many hosts the cluster has.
  bool sizes_cluster() const { return at(io::Target::Cluster, "/hosts") != nullptr; }
  // What a document says of itself in prose is of its file, not of what they made of it.
  std::string prose(io::Target target, const std::string& text) const {
    std::string changes;
    for (const io::Setting& s : list_)
      if (s.target == target) changes += (changes.empty() ? "" : ", ") + s.text;
    return changes.empty() || text.empty() ? text
                                           : "(of the file, before --set " + changes + ") " + text;
  }
  void apply(io::Target target, Json& document) const {
    for (const io::Setting& s : list_)
      if (s.target == target) io::apply(s, document);
  }
  // The flag that wrote at `pointer` ("/plan/bucket_cap_mb"), or inside or around it; null if none
  // did.
  const io::Setting* at(io::Target target, const std::string& pointer) const {
    for (auto s = list_.rbegin(); s != list_.rend(); ++s) {
      std::string path;
      for (const std::string& key : s->path) path += "/" + key;
      if (s->target == target && !pointer.empty() &&
          ((pointer + "/").starts_with(path + "/") || (path + "/").starts_with(pointer + "/")))
        return &*s;
    }
    return nullptr;
  }
  // Applies, then reads; an error at a place that a flag wrote names the flag.
  template <class Reader>
  auto read(io::Target target, Named& named, Reader reader) const {
    apply(target, named.document);
    try {
      return reader(named.document, named.file);
    } catch (const InputError& e) {
      auto hash = e.where.find('#');
      const io::Setting* s =
          hash == std::string::npos ? nullptr : at(target, e.where.substr(hash + 1));
      throw s
          ? InputError{"--set " + s->text + " (" + e.where + ")",
                       s->value.is_structured() ? e.what : without_quotes(e.what), e.code, e.remedy}
          : io::blamed(e, named.layers);
    }
  }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }

 private:
  std::vector<io::Setting> list_;
};

}  // namespace ddpsim::door
