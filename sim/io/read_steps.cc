#include "sim/io/read_steps.h"

#include <algorithm>
#include <cstdint>

namespace ddpsim::io {
namespace {

using validation::PublishedStep;
using validation::StepUnit;

// "workload.memory_format=\"channels_last\"", one for each key of an object.
void add_sets(const Reader& r, const std::string& target, PublishedStep& out) {
  for (const auto& [key, value] : r.members())
    out.sets.push_back(target + "." + key + "=" + value.json().dump());
}

PublishedStep read_row(const Reader& r, const std::string& source) {
  r.only({"id",      "workload", "batch",   "precision", "settings",  "gpu",  "ranks",
          "hosts",   "cluster",  "profile", "system",    "software",  "plan", "measured",
          "one_gpu", "fitted",   "notes",   "host",      "set_aside", "off",  "input"});
  PublishedStep out;
  out.source = source;
  out.id = r.at("id").text();
  out.workload = r.at("workload").text();
  out.cluster = r.at("cluster").text();
  out.profile = r.at("profile").text();
  out.gpu = r.at("gpu").text();
  out.batch = r.at("batch").small(1, INT32_MAX);
  out.precision = r.at("precision").text();
  out.ranks = r.at("ranks").small(1, INT32_MAX);
  out.hosts = r.at("hosts").small(1, INT32_MAX);
  out.sets = {"workload.batch=" + std::to_string(out.batch),
              "workload.precision=\"" + out.precision + "\"",
              "cluster.hosts=" + std::to_string(out.hosts)};
  if (r.has("settings")) add_sets(r.at("settings"), "workload", out);
  if (r.has("input")) add_sets(r.at("input"), "input", out);
  if (r.has("host")) add_sets(r.at("host"), "profile.host", out);
  if (r.has("set_aside")) out.set_aside = r.at("set_aside").text();
  if (r.has("off")) {
    r.at("off").only({"cause", "settles"});
    out.off = r.at("off").at("cause").text();
    out.settles = r.at("off").at("settles").text();
  }
  const Reader plan = r.at("plan");
  add_sets(plan, "plan", out);
  if (plan.has("accumulation_steps"))
    out.accumulation_steps = plan.at("accumulation_steps").small(1, INT32_MAX);
  const Reader measured = r.at("measured");
  measured.only({validation::kStepUnits.begin(), validation::kStepUnits.end()});
  if (measured.members().size() != 1) measured.fail("one number was printed: give one unit");
  const auto [unit, number] = measured.members().front();
  auto known = std::find(validation::kStepUnits.begin(), validation::kStepUnits.end(), unit);
  out.unit = static_cast<StepUnit>(known - validation::kStepUnits.begin());
  out.measured = number.number();
  constexpr double kMostMeasured = 1e9;
  if (!(out.measured > 1 / kMostMeasured && out.measured < kMostMeasured))
    number.fail("a step takes between a nanosecond and many years");
  if (out.unit == StepUnit::MsForwardBackward && out.ranks > 1)
    number.fail("is of one GPU by itself, and this row has several");
  r.at("system").text();
  if (r.has("software"))
    for (const auto& [what, version] : r.at("software").members()) version.text();
  if (r.has("notes")) r.at("notes").text();
  if (r.has("fitted")) out.fitted = r.at("fitted").text();
  if (r.has("one_gpu")) out.one_gpu = r.at("one_gpu").text();
  return out;
}

}  // namespace

std::vector<PublishedStep> read_steps(const Json& j, const std::string& file) {
  Reader r(j, file);
  r.schema("ddpsim.steps/1");
  r.only({"schema", "evidence", "name", "url", "commit", "place", "software", "step", "rows"});
  r.at("evidence").choice({"published"});
  for (const char* key : {"url", "place", "step"}) r.at(key).text();
  if (r.has("commit")) r.at("commit").text();
  if (r.has("software"))
    for (const auto& [what, version] : r.at("software").members()) version.text();
  const std::string source = r.at("name").text();
  std::vector<PublishedStep> out;
  for (const Reader& item : r.at("rows").items()) {
    out.push_back(read_row(item, source));
    const PublishedStep& row = out.back();
    if (std::count_if(out.begin(), out.end(), [&](auto& o) { return o.id == row.id; }) > 1)
      item.at("id").fail("\"" + row.id + "\" is another row's");
  }
  std::size_t k = 0;
  for (const Reader& item : r.at("rows").items()) {
    const PublishedStep& row = out[k++];
    if (row.one_gpu.empty()) continue;
    auto base = std::find_if(out.begin(), out.end(),
                             [&](const PublishedStep& o) { return o.id == row.one_gpu; });
    if (base == out.end()) item.at("one_gpu").fail("is no row of this file");
    if (base->ranks != 1 || row.ranks == 1 || base->unit == StepUnit::MsForwardBackward)
      item.at("one_gpu").fail("a row of several GPUs is relative to a whole step of one GPU");
    if (base->workload != row.workload || base->profile != row.profile ||
        base->precision != row.precision || base->batch != row.batch)
      item.at("one_gpu").fail(
          "names a row of another workload, batch, precision or profile: what one says of the "
          "other is not known");
  }
  return out;
}

}  // namespace ddpsim::io
