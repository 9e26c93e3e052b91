#include <algorithm>

#include "sim/io/codecs.h"
#include "sim/io/field_meant.h"
#include "sim/io/read_plan.h"
#include "sim/io/schema/scenario_fields.h"
#include "sim/io/schema/schemas.h"
#include "sim/systems/base/settings.h"
#include "sim/units/number.h"
#include "sim/units/text.h"

namespace ddpsim::io {
namespace {

int read_rank(const Reader& r, const std::string& key) {
  auto rank = parse_integer(key);
  if (!rank || *rank < INT32_MIN || *rank > INT32_MAX)
    r.fail("\"" + key.substr(0, 40) + "\" is not a rank number");
  return static_cast<int>(*rank);
}

}  // namespace

void Codec<AsSlowRanks>::read(const Reader& r, AsSlowRanks into) {
  for (const auto& [key, factor] : r.members())
    if (!into.value.emplace(read_rank(factor, key), factor.number()).second)
      factor.fail("this rank is named twice");
}

ScenarioFile read_scenario(const Json& j, const std::string& file) {
  Reader r(j, file);
  r.schema(kScenarioSchema);
  refuse_other_parallelism(r);
  for (const char* key : plan_keys())
    if (std::string(key) != "algorithm" && r.json().contains(key))
      r.fail_at(std::string("/") + key,
                std::string("belongs under \"plan\": {\"plan\": {\"") + key + "\": ...}}");
  ScenarioFile out;
  read_fields(r, out);
  if (r.has("input")) {
    const Reader input = r.at("input");
    if (!input.has("bytes_per_sample")) (void)input.at("samples_per_s");
    if (input.has("copy") && out.scenario.input->bytes_per_sample == 0)
      input.at("copy").fail(
          "is of input that is copied: say input.bytes_per_sample, too (a 224 x 224 image of bytes "
          "has 147KiB, of floats 588KiB)");
  }
  return out;
}

namespace {

// What was typed, or what somebody means who says true or false.
std::string meant(const std::string& field, const std::string& value) {
  const bool on = value == "true" || value == "True";
  if (!on && value != "false" && value != "False") return value;
  const std::string setting = setting_meant(field, on);
  return setting.empty() ? value : setting;
}

// Whether what the path names is text, though it looks like a number.
bool is_word(const Setting& s) {
  constexpr const char* kKinds[] = {"scenario", "workload", "cluster", "profile"};
  const std::vector<FieldRecord>& fields = file_kind(kKinds[static_cast<int>(s.target)])->fields();
  const FieldRecord* f = field_at(fields, s.path);
  if (f && f->kind == FieldKind::Release) return true;
  const std::vector<std::string> around(s.path.begin(), s.path.end() - 1);
  const FieldRecord* named = field_at(fields, around);
  return named && named->kind == FieldKind::Named && f && f->kind == FieldKind::OneOf;
}

// The element of a list that a path names.
Json& element(Json& list, const std::string& key, const Setting& s) {
  auto index = parse_integer(key);
  if (!index || *index < 0 || static_cast<std::size_t>(*index) >= list.size())
    throw InputError{"--set " + s.text, "\"" + key + "\" is not an index of a list of " +
                                            std::to_string(list.size()) + " (they start at 0)"};
  return list[*index];
}

}  // namespace

bool names_variable(const std::string& name) {
  auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  if (std::any_of(name.begin(), name.end(), is_upper) &&
      std::none_of(name.begin(), name.end(), is_lower))
    return true;
  if (name.starts_with("OMPI_MCA_")) return true;
  std::string start = name.substr(0, 5);
  for (char& c : start)
    if (is_upper(c)) c = static_cast<char>(c - 'A' + 'a');
  return start == "nccl_" || start == "nccl-";
}

Setting parse_setting(const std::string& text) {
  auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw InputError{
        "--set " + text,
        "expected PATH=VALUE, for example --set bucket_cap_mb=50 or --set cluster.hosts=16"};
  Setting s;
  s.text = text;
  std::string path = text.substr(0, equals);
  std::string value = text.substr(equals + 1);
  std::size_t from = 0;
  while (true) {
    auto dot = path.find('.', from);
    s.path.push_back(path.substr(from, dot == std::string::npos ? std::string::npos : dot - from));
    if (s.path.back().empty()) throw InputError{"--set " + text, "an empty name in the path"};
    if (dot == std::string::npos) break;
    from = dot + 1;
  }
  const std::string head = s.path.front();
  if (s.path.size() > 8) throw InputError{"--set " + text, "the path is too long"};
  auto shift = [&](Target t) {
    if (s.path.size() == 1)
      throw InputError{"--set " + text,
                       "name a field of the " + head + ", for example --set " + head +
                           (t == Target::Cluster    ? ".hosts=16"
                            : t == Target::Workload ? ".batch=64"
                                                    : ".memory.kernel_ps=2000000")};
    s.target = t;
    s.path.erase(s.path.begin());
  };
  if (head == "workload")
    shift(Target::Workload);
  else if (head == "cluster")
    shift(Target::Cluster);
  else if (head == "profile")
    shift(Target::Profile);
  else {
    s.target = Target::Scenario;
    const bool top = head != "name" && head != "description" && head != "schema" &&
                     field_at(fields_of<ScenarioFile>(), {head}) != nullptr;
    if (std::string field = field_meant(head); s.path.size() == 1 && !field.empty())
      throw InputError{
          "--set " + text,
          field == "workload"
              ? "a plan has no \"" + head + "\"; write --workload " + value
              : "a plan has no \"" + head + "\"; write " + field + "=" + meant(field, value)};
    if (std::string setting = setting_for(head);
        s.path.size() == 1 && !setting.empty() && !systems::owner_of(head))
      throw InputError{"--set " + text, "a plan has no \"" + head + "\"; write " + setting};
    if (s.path.size() == 1 && names_variable(head) && !systems::owner_of(head))
      s.path.insert(s.path.begin(), "environment");
    if (!top) s.path.insert(s.path.begin(), "plan");
  }
  // What is not JSON is text; parse_json refuses what is JSON but nested too deep.
  // Python's spelling is as good as JSON's.
  if (value == "True") value = "true";
  if (value == "False") value = "false";
  if (value == "None") value = "null";
  // Null is a field's default; that of a whole plan nobody means.
  if (s.target == Target::Scenario && s.path == std::vector<std::string>{"plan"} && value == "null")
    throw InputError{
        "--set " + text,
        "would take away the whole plan; set a field of it, for example --set bucket_cap_mb=null"};
  // "workload.compile=true": which of its settings.
  if (s.target == Target::Workload && s.path.size() == 1)
    if (std::string field = "workload." + s.path[0]; meant(field, value) != value)
      throw InputError{"--set " + text, "write " + field + "=" + meant(field, value)};
  // "cluster.nodes=4", "workload.batch_size=64": what other programs call it.
  if (s.target != Target::Scenario && s.path.size() == 1) {
    std::string field = field_meant(s.path[0]);
    bool structured = Json::accept(value) && parse_json(value, "--set " + text).is_structured();
    if (!structured && field.starts_with(head + ".") && field != head + "." + s.path[0])
      throw InputError{"--set " + text, "write " + field + "=" + meant(field, value)};
  }
  s.value = Json::accept(value) ? parse_json(value, "--set " + text) : Json(value);
  // Versions look like numbers ("2.7", "2.11") and are not.
  if (s.value.is_number() && is_word(s)) s.value = value;
  if (!is_utf8(s.text)) throw InputError{"--set", "the text given is not UTF-8"};
  return s;
}

void apply(const Setting& s, Json& document) {
  Json* at = &document;
  for (std::size_t i = 0; i < s.path.size(); ++i) {
    const std::string& key = s.path[i];
    bool last = i + 1 == s.path.size();
    if (at->is_array()) {
      at = &element(*at, key, s);
    } else if (at->is_object()) {
      at = &(*at)[key];
      if (!last && at->is_null()) *at = Json::object();
    } else {
      throw InputError{"--set " + s.text, "\"" + key + "\" is not inside an object or a list"};
    }
  }
  *at = s.value;
}

}  // namespace ddpsim::io
