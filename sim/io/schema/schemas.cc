#include "sim/io/schema/schemas.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/io/schema/error_fields.h"
#include "sim/io/schema/known_fields.h"
#include "sim/io/schema/profile_fields.h"
#include "sim/io/schema/program_fields.h"
#include "sim/io/schema/run_fields.h"
#include "sim/io/schema/scenario_fields.h"
#include "sim/io/schema/steps_fields.h"
#include "sim/io/schema/workload_fields.h"

namespace ddpsim::io {
namespace {

constexpr const char* kDraft = "https://json-schema.org/draft/2020-12/schema";
// As parse_duration() and its like read them (sim/units).
constexpr const char* kDecimal = "^\\s*[0-9.eE+-]+\\s*";
constexpr const char* kTimeUnits = "(ps|ns|us|µs|ms|s|min)\\s*$";
constexpr const char* kSizeUnits = "(B|[kKMGT]B|[KMG]iB)\\s*$";
constexpr const char* kRateUnits = "([kMGT]?(b/s|B/s)|[kMGT]bps|[kMG]bit/s|[MG]iB/s)\\s*$";

class SchemaWriter {
 public:
  // `partial`: of a file that extends another, any key may be absent.
  explicit SchemaWriter(bool partial) : partial_(partial) {}
  OrderedJson object(const std::vector<FieldRecord>& fields);
  OrderedJson definitions = OrderedJson::object();

 private:
  OrderedJson value(const FieldRecord& f);
  OrderedJson repeated(const FieldRecord& f);
  bool partial_;
};

OrderedJson typed(const char* type) {
  return {{"type", type}};
}
OrderedJson spelt(const std::string& pattern) {
  return {{"type", "string"}, {"pattern", pattern}};
}
OrderedJson bounded(const char* type, const FieldRecord& f) {
  OrderedJson j = typed(type);
  auto number = [](double v) {
    return v == std::floor(v) && std::abs(v) < 1e15 ? OrderedJson(static_cast<std::int64_t>(v))
                                                    : OrderedJson(v);
  };
  if (f.least) j[f.above ? "exclusiveMinimum" : "minimum"] = number(*f.least);
  if (f.most) j["maximum"] = number(*f.most);
  return j;
}
// A word without regard to case, "-" and "_".
std::string loosely(const std::string& word) {
  std::string out;
  for (char c : word) {
    if (c == '-' || c == '_') continue;
    if (c >= 'a' && c <= 'z')
      out += fmt::format("[{}{}][-_]*", c, static_cast<char>(c - 'a' + 'A'));
    else
      out += std::string(1, c) + "[-_]*";
  }
  return out;
}
OrderedJson choice(const FieldRecord& f) {
  OrderedJson words = typed("string");
  words["enum"] = f.choices;
  if (f.key == "system") {
    std::vector<std::string> patterns;
    for (const std::string& c : f.choices) patterns.push_back(loosely(c));
    return {{"anyOf", {words, spelt(fmt::format("^[-_]*({})$", fmt::join(patterns, "|")))}}};
  }
  const bool counted = !f.choices.front().empty() && f.choices.front().front() >= '0' &&
                       f.choices.front().front() <= '9';
  OrderedJson any = OrderedJson::array({words});
  if (f.loose) any.push_back(spelt(fmt::format("^({}):[0-9]+$", fmt::join(f.choices, "|"))));
  if (counted) any.push_back(typed("integer"));
  return any.size() == 1 ? words : OrderedJson{{"anyOf", any}};
}
OrderedJson condition(const Condition& c) {
  OrderedJson words{{"enum", c.words}};
  if (c.key == "system") {
    std::vector<std::string> patterns;
    for (const std::string& w : c.words) patterns.push_back(loosely(w));
    words = {{"pattern", fmt::format("^[-_]*({})$", fmt::join(patterns, "|"))}};
  }
  OrderedJson j{{"properties", {{c.key, c.none ? OrderedJson{{"not", words}} : words}}}};
  if (!c.none && !c.absent) j["required"] = {c.key};
  return j;
}

// A key that may be left out may also be null.
OrderedJson or_null(OrderedJson j) {
  if (j.empty()) return j;
  if (j.contains("enum")) j["enum"].push_back(nullptr);
  if (j.contains("type"))
    j["type"] = {j["type"], "null"};
  else if (j.contains("anyOf"))
    j["anyOf"].push_back(typed("null"));
  return j;
}

OrderedJson SchemaWriter::repeated(const FieldRecord& f) {
  const OrderedJson one{{"$ref", "#/$defs/" + f.key}};
  if (!definitions.contains(f.key)) {
    definitions[f.key] = nullptr;  // its place
    definitions[f.key] = value(f.fields.front());
  }
  OrderedJson block = typed("object");
  block["properties"] = {{"repeat", {{"type", "integer"}, {"minimum", 1}, {"maximum", 10'000}}},
                         {"from", {{"type", {"integer", "null"}}, {"minimum", 0}}},
                         {"of", {{"type", "array"}, {"items", one}, {"minItems", 1}}}};
  block["required"] = {"repeat", "of"};
  block["additionalProperties"] = false;
  OrderedJson list = typed("array");
  list["items"] = {{"if", {{"required", {"repeat"}}}}, {"then", block}, {"else", one}};
  return list;
}

OrderedJson SchemaWriter::value(const FieldRecord& f) {
  const OrderedJson count = typed("number");
  switch (f.kind) {
    case FieldKind::Text:
    case FieldKind::Release:
      return typed("string");
    case FieldKind::Truth:
      return typed("boolean");
    case FieldKind::Whole:
      return bounded("integer", f);
    case FieldKind::Number:
      return bounded("number", f);
    case FieldKind::Count:
      return {{"anyOf",
               {bounded("number", f),
                {{"type", "array"},
                 {"items", {{"type", "integer"}, {"minimum", 0}}},
                 {"maxItems", 3}}}}};
    case FieldKind::Length:
      return {{"anyOf", {bounded("integer", f), {{"const", "sequence"}}}}};
    case FieldKind::Time:
      return spelt(std::string(kDecimal) + kTimeUnits);
    case FieldKind::Size:
      return spelt(std::string(kDecimal) + kSizeUnits);
    case FieldKind::Rate:
      return spelt(std::string(kDecimal) + kRateUnits);
    case FieldKind::Ratio:
      return {{"anyOf", {count, spelt("^[0-9.]+:[0-9.]+$")}}};
    case FieldKind::Choice:
      return choice(f);
    case FieldKind::Section:
      return object(f.fields);
    case FieldKind::List: {
      OrderedJson j = typed("array");
      j["items"] = value(f.fields.front());
      return j;
    }
    case FieldKind::Named: {
      OrderedJson j = typed("object");
      OrderedJson one = value(f.fields.front());
      j["additionalProperties"] = partial_ ? or_null(std::move(one)) : std::move(one);
      return j;
    }
    case FieldKind::Repeated:
      return repeated(f);
    case FieldKind::OneOf: {
      OrderedJson any = OrderedJson::array();
      for (const FieldRecord& one : f.fields) any.push_back(value(one));
      return {{"anyOf", std::move(any)}};
    }
    case FieldKind::Any:
      break;
  }
  return OrderedJson::object();
}

OrderedJson SchemaWriter::object(const std::vector<FieldRecord>& fields) {
  OrderedJson j = typed("object");
  j["properties"] = OrderedJson::object();
  OrderedJson required = OrderedJson::array();
  OrderedJson together = OrderedJson::object();
  struct Rule {
    OrderedJson when, needed = OrderedJson::array(), refused = OrderedJson::object();
  };
  std::vector<Rule> rules;
  auto rule = [&](const Condition& c) -> Rule& {
    const OrderedJson when = condition(c);
    for (Rule& r : rules)
      if (r.when == when) return r;
    return rules.emplace_back(Rule{when});
  };
  for (const FieldRecord& f : fields) {
    OrderedJson v = value(f);
    if (!f.required || partial_) v = or_null(std::move(v));
    if (f.kind == FieldKind::Choice && f.choices.size() == 1 && f.key == "schema")
      v = {{"const", f.choices.front()}};
    if (!f.help.empty() || !f.unit.empty())
      v["description"] = f.help + (f.unit.empty() ? "" : " (" + f.unit + ")");
    if (!f.initially.empty() && OrderedJson::accept(f.initially))
      v["default"] = OrderedJson::parse(f.initially);
    j["properties"][f.key] = std::move(v);
    if (partial_) continue;
    if (f.required) required.push_back(f.key);
    if (f.only) rule(*f.only).refused[f.key] = typed("null");
    if (f.needed) rule(*f.needed).needed.push_back(f.key);
    if (!f.together.empty()) together[f.key] = f.together;
  }
  j["additionalProperties"] = false;
  if (!required.empty()) j["required"] = std::move(required);
  if (!together.empty()) j["dependentRequired"] = std::move(together);
  for (Rule& r : rules) {
    OrderedJson each{{"if", std::move(r.when)}};
    if (!r.needed.empty()) each["then"] = {{"required", std::move(r.needed)}};
    if (!r.refused.empty()) each["else"] = {{"properties", std::move(r.refused)}};
    j["allOf"].push_back(std::move(each));
  }
  return j;
}

// Paths as `--set` takes them: a scenario's fields by themselves, the others after their file's
// name.
void add_paths(const char* file, const std::vector<FieldRecord>& fields, const std::string& before,
               std::vector<FieldPath>& out) {
  for (const FieldRecord& f : fields) {
    const std::string path = f.key.empty() ? before : before + (before.empty() ? "" : ".") + f.key;
    if (!f.key.empty()) out.push_back({file, path, &f});
    // A scenario's cluster has its own.
    if (before.empty() && f.key == "cluster") continue;
    const char* more = f.kind == FieldKind::List || f.kind == FieldKind::Repeated ? "[]"
                       : f.kind == FieldKind::Named                               ? ".*"
                                                                                  : "";
    add_paths(file, f.fields, path + more, out);
  }
}

}  // namespace

const std::vector<FileKind>& file_kinds() {
  static const std::vector<FileKind> all{
      {"scenario", kScenarioSchema, "a question: which workload on which cluster by which plan",
       fields_of<ScenarioFile>},
      {"cluster", kClusterSchema, "hosts, devices and links", fields_of<Cluster>},
      {"workload", kWorkloadSchema, "what a training step computes on one rank",
       fields_of<WorkloadFile>},
      {"profile", kProfileSchema, "what a kind of hardware takes", fields_of<Profile>, true},
      {"run", kRunSchema, "what happened, or would happen", fields_of<Run>},
      {"program", kProgramSchema, "the operations of a step, as a system lowers it",
       fields_of<ProgramJob>},
      {"steps", kStepsSchema, "training steps that somebody published", fields_of<StepsFile>},
      {"kernels", kKernelsSchema, "kernels that somebody published",
       fields_of<PublishedKernelsFile>},
      {"budget", kBudgetSchema, "limits that a validation keeps", fields_of<BudgetFile>},
      {"known_errors", kKnownErrorsSchema, "how far predictions of published steps are off",
       fields_of<KnownErrorsFile>},
      {"gpus", kGpusSchema, "names of GPUs and their profiles", fields_of<GpusFile>},
      {"error", kErrorSchema, "a refusal, where --format json is asked for", fields_of<Refusal>},
  };
  return all;
}
const FieldRecord* field_at(const std::vector<FieldRecord>& fields,
                            const std::vector<std::string>& path) {
  if (path.empty()) return nullptr;
  const std::vector<std::string> rest(path.begin() + 1, path.end());
  for (const FieldRecord& f : fields) {
    if (f.key != path.front()) continue;
    if (rest.empty()) return &f;
    const bool by_place =
        f.kind == FieldKind::List || f.kind == FieldKind::Repeated || f.kind == FieldKind::Named;
    if (by_place && rest.size() == 1) return &f.fields.front();
    if (by_place) return field_at(f.fields.front().fields, {rest.begin() + 1, rest.end()});
    if (f.kind != FieldKind::OneOf) return field_at(f.fields, rest);
    for (const FieldRecord& one : f.fields)
      if (const FieldRecord* found = field_at(one.fields, rest)) return found;
  }
  return nullptr;
}

const FileKind* file_kind(const std::string& name) {
  for (const FileKind& k : file_kinds())
    if (name == k.name || name == k.schema) return &k;
  return nullptr;
}

OrderedJson json_schema(const FileKind& kind) {
  SchemaWriter whole(false);
  OrderedJson j = whole.object(kind.fields());
  OrderedJson definitions = std::move(whole.definitions);
  if (kind.extends) {
    SchemaWriter part(true);
    definitions["whole"] = std::move(j);
    definitions["part"] = part.object(kind.fields());
    j = {{"if", {{"required", {"extends"}}}},
         {"then", {{"$ref", "#/$defs/part"}}},
         {"else", {{"$ref", "#/$defs/whole"}}}};
  }
  OrderedJson out{{"$schema", kDraft}, {"title", kind.schema}, {"description", kind.title}};
  for (auto& [key, v] : j.items()) out[key] = std::move(v);
  if (!definitions.empty()) out["$defs"] = std::move(definitions);
  return out;
}

std::vector<FieldPath> field_paths() {
  std::vector<FieldPath> out;
  for (const FileKind& k : file_kinds())
    add_paths(k.name, k.fields(), std::string(k.name) == "scenario" ? "" : k.name, out);
  return out;
}

namespace {

// A bound as a person writes it: 1,000,000.
std::string bound_text(double v) {
  if (v != std::floor(v) || std::abs(v) >= 1e15) return fmt::format("{:g}", v);
  std::string out = fmt::format("{:.0f}", v);
  for (std::ptrdiff_t at = std::ssize(out) - 3; at > (v < 0 ? 1 : 0); at -= 3)
    out.insert(static_cast<std::size_t>(at), ",");
  return out;
}
std::string number_text(const FieldRecord& f, std::string what) {
  if (!f.unit.empty()) what += " of " + f.unit;
  // Bounds of its type alone say nothing.
  const bool most = f.most && *f.most != INT32_MAX;
  const bool least = f.least && *f.least != INT32_MIN;
  if (least && most) return what + ", " + bound_text(*f.least) + " to " + bound_text(*f.most);
  if (least && f.above) return what + ", above " + bound_text(*f.least);
  if (least) return what + ", " + bound_text(*f.least) + " or more";
  return what;
}
// `many`: "s" of several.
std::string words_of_kind(const FieldRecord& f, const std::string& many) {
  switch (f.kind) {
    case FieldKind::Text:
      return "text" + many;
    case FieldKind::Truth:
      return "true or false";
    case FieldKind::Whole:
      return number_text(f, "whole number" + many);
    case FieldKind::Number:
      return number_text(f, "number" + many);
    case FieldKind::Count:
      return "number" + many + ", or coefficients of 1, the sequence length and its square";
    case FieldKind::Length:
      return "whole number" + many + ", or \"sequence\"";
    case FieldKind::Time:
      return "time" + many + " (\"5us\")";
    case FieldKind::Size:
      return "size" + many + " (\"25MiB\")";
    case FieldKind::Rate:
      return "rate" + many + " (\"100Gb/s\")";
    case FieldKind::Ratio:
      return "ratio" + many + " (\"2:1\")";
    case FieldKind::Release:
      return "release" + many + " (\"2.7\")";
    case FieldKind::Choice:
      return fmt::format("{}", fmt::join(f.choices, ", "));
    case FieldKind::Section:
      return "section" + many;
    case FieldKind::List:
    case FieldKind::Repeated:
      return "list" + many + " of " + words_of_kind(f.fields.front(), "s");
    case FieldKind::Named:
      return words_of_kind(f.fields.front(), "s") + " by name";
    case FieldKind::OneOf: {
      std::vector<std::string> ways;
      for (const FieldRecord& one : f.fields)
        if (const std::string way = words_of_kind(one, many);
            std::find(ways.begin(), ways.end(), way) == ways.end())
          ways.push_back(way);
      return fmt::format("{}", fmt::join(ways, ", or "));
    }
    case FieldKind::Any:
      break;
  }
  return "anything";
}

}  // namespace

std::string in_words(const FieldRecord& f) {
  return words_of_kind(f, "");
}

}  // namespace ddpsim::io
