#include "sim/io/read_steps.h"

#include "sim/io/schema/steps_fields.h"

namespace ddpsim::io {
namespace {

using validation::PublishedStep;
using validation::StepUnit;

// "workload.memory_format=\"channels_last\"", one for each key of an object.
void add_sets(const Reader& r, const std::string& target, PublishedStep& out) {
  for (const auto& [path, value] : r.members())
    out.sets.push_back(target + "." + path + "=" + value.json().dump());
}

// The settings that it is predicted with. REQUIRES: its other keys are read.
void finish_row(const Reader& r, PublishedStep& out) {
  out.sets = {"workload.batch=" + std::to_string(out.batch),
              "workload.precision=\"" + out.precision + "\"",
              "cluster.hosts=" + std::to_string(out.hosts)};
  if (r.has("settings")) add_sets(r.at("settings"), "workload", out);
  if (r.has("input")) add_sets(r.at("input"), "input", out);
  if (r.has("host")) add_sets(r.at("host"), "profile.host", out);
  const Reader plan = r.at("plan");
  add_sets(plan, "plan", out);
  if (plan.has("accumulation_steps"))
    out.accumulation_steps = plan.at("accumulation_steps").small(1, INT32_MAX);
}

// `r`: the row that is relative to another one of the file.
void check_relative(const Reader& r, const PublishedStep& row,
                    const std::vector<PublishedStep>& all) {
  auto base = std::find_if(all.begin(), all.end(),
                           [&](const PublishedStep& o) { return o.id == row.one_gpu; });
  if (base == all.end()) r.at("one_gpu").fail("is no row of this file");
  if (base->ranks != 1 || row.ranks == 1 || base->unit == StepUnit::MsForwardBackward)
    r.at("one_gpu").fail("a row of several GPUs is relative to a whole step of one GPU");
  if (base->workload != row.workload || base->profile != row.profile ||
      base->precision != row.precision || base->batch != row.batch)
    r.at("one_gpu").fail(
        "names a row of another workload, batch, precision or profile: what one says of the "
        "other is not known");
}

}  // namespace

std::vector<PublishedStep> read_steps(const Json& j, const std::string& file) {
  const Reader r(j, file);
  StepsFile f;
  read_file_fields(r, f, kStepsSchema);
  const std::vector<Reader> items = r.at("rows").items();
  for (std::size_t k = 0; k < f.rows.size(); ++k) {
    PublishedStep& row = f.rows[k];
    row.source = f.name;
    finish_row(items[k], row);
    for (std::size_t other = 0; other < k; ++other)
      if (f.rows[other].id == row.id) items[k].at("id").fail("\"" + row.id + "\" is another row's");
  }
  for (std::size_t k = 0; k < f.rows.size(); ++k)
    if (!f.rows[k].one_gpu.empty()) check_relative(items[k], f.rows[k], f.rows);
  return std::move(f.rows);
}

}  // namespace ddpsim::io
