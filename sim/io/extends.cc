#include "sim/io/extends.h"

#include <algorithm>

#include "sim/io/schema/profile_fields.h"

namespace ddpsim::io {
namespace {

constexpr const char* kFolders[] = {"calib/profiles/bases", "calib/profiles"};

struct Place {
  std::string path;
  std::string file;  // its name in errors
};

// Where `name` lies, which a file at `from` extends.
Place base_of(const Home& home, const Place& from, const Reader& extends) {
  const std::string name = extends.text();
  if (name.find('/') != std::string::npos || name.ends_with(".json")) {
    auto beside = [&](const std::string& to) {
      return name.starts_with("/") ? name : to.substr(0, to.rfind('/') + 1) + name;
    };
    if (!exists(beside(from.path)))
      extends.fail("\"" + name + "\": no such file beside this one; a shipped base or profile is " +
                   "named without a / or .json");
    return {beside(from.path), beside(from.file)};
  }
  std::vector<std::string> known;
  for (const std::string folder : kFolders) {
    const std::string inside = folder + "/" + name + ".json";
    if (exists(home.path() + "/" + inside)) return {home.path() + "/" + inside, inside};
    for (const std::string& k : home.list(folder)) known.push_back(k);
  }
  const std::string hint = nearest(name, known);
  extends.fail(
      "\"" + name + "\": no base or profile of that name is shipped" +
      (hint.empty() ? "; a file is named with a / or .json" : " (did you mean \"" + hint + "\"?)"));
}

bool is_profile(const Json& j) {
  return j.is_object() && j.contains("schema") && j["schema"] == kProfileSchema;
}

}  // namespace

Opened open_json(const Home& home, const std::string& path, const std::string& file) {
  Opened out{parse_json(read_file(path), file), {}};
  if (!is_profile(out.document) || !out.document.contains("extends")) return out;
  out.layers.emplace_back(file, std::move(out.document));
  std::vector<Place> places{{path, file}};
  while (out.layers.back().second.contains("extends")) {
    const auto& [name, document] = out.layers.back();
    const Reader extends = Reader(document, name).at("extends");
    const Place base = base_of(home, places.back(), extends);
    for (const Place& p : places)
      if (same_place(p.path, base.path))
        extends.fail("\"" + base.file + "\" extends this file in turn; leave one of them out");
    places.push_back(base);
    Json read = parse_json(read_file(base.path), base.file);
    Reader(read, base.file).schema(kProfileSchema);
    out.layers.emplace_back(base.file, std::move(read));
  }
  out.document = Json::object();
  for (auto layer = out.layers.rbegin(); layer != out.layers.rend(); ++layer)
    out.document.merge_patch(layer->second);
  out.document.erase("extends");
  return out;
}

InputError blamed(const InputError& e, const Layers& layers) {
  if (layers.empty() || !e.where.starts_with(layers.front().first + "#/")) return e;
  const std::string place = e.where.substr(layers.front().first.size() + 1);
  for (const auto& [file, document] : layers)
    if (document.contains(Json::json_pointer(place)))
      return {file + "#" + place, e.what, e.code, e.remedy};
  return e;
}

Profile open_profile(const Home& home, const std::string& path, const std::string& file) {
  const Opened opened = open_json(home, path, file);
  return at_its_file(opened.layers, [&] { return read_profile(opened.document, file); });
}

}  // namespace ddpsim::io
