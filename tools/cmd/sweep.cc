#include "tools/cmd/sweep.h"

#include <fmt/format.h>

#include "sim/door/documents.h"
#include "sim/model/version.h"
#include "sim/units/text.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {

using namespace sweep;

namespace {

// One text after another, which do not run together.
std::uint64_t hashed(std::uint64_t h, const std::string& text) {
  return fnv1a(h, text + '\xff');
}

// What a field's value adds to a question: workload, cluster, profile, plan and ranks by name or
// number, anything else as --set. Throws InputError.
void choose(const std::string& field, const std::string& value, Choice& choice) {
  if (field == "workload")
    choice.workload = value;
  else if (field == "cluster")
    choice.cluster = value;
  else if (field == "profile")
    choice.profile = value;
  else if (field == "ranks")
    choice.ranks = value;
  else
    choice.settings.push_back(io::parse_setting(field + "=" + value));
}

Choice choice_at(const Sweep& s, const std::vector<std::string>& values) {
  Choice out;
  std::size_t k = 0;
  for (const Axis& a : s.axes)
    for (const std::string& field : a.fields) choose(field, values[k++], out);
  return out;
}

// A field that no document has, a name that nothing has, a value of the wrong kind or without its
// unit: an axis of invalid points only.
void check_axis(const Terminal& t, Loader& loader, const Sweep& s, std::size_t axis) {
  const Axis& a = s.axes[axis];
  io::Home home = home_of(t);
  for (const auto& values : a.values)
    for (std::size_t k = 0; k < a.fields.size(); ++k) {
      const std::string& field = a.fields[k];
      const char* folder = field == "workload"  ? "workloads"
                           : field == "cluster" ? "topologies"
                           : field == "profile" ? "calib/profiles"
                                                : nullptr;
      Choice ignored;
      try {
        if (folder) (void)home.find(folder, values[k], field.c_str());
        choose(field, values[k], ignored);
      } catch (const InputError& e) {
        throw InputError{"--axis " + field, folder ? "\"" + e.where + "\": " + e.what : e.what};
      }
    }
  std::vector<std::string> values = values_at(s.axes, 0);
  try {
    (void)loader.ask(choice_at(s, values));
  } catch (const InputError& e) {
    for (const std::string& field : a.fields) {
      bool named = e.where.starts_with("--set " + field + "=");
      bool nothing = e.what.starts_with("unknown key") || e.what.starts_with("expected ") ||
                     e.what.starts_with("is a bare number");
      if (field == "ranks" && e.where.starts_with("--ranks ") && e.what.starts_with("expected "))
        named = nothing = true;
      for (const char* wrong :
           {"is not an index of a list", "is not inside an object", "has no unit",
            "has an unknown unit", "is not a number with a unit", "is not a variable of NCCL"})
        nothing = nothing || e.what.find(wrong) != std::string::npos;
      if (named && nothing) throw InputError{"--axis " + field, e.what};
    }
  }
}

// One number is of one workload on one device.
void refuse_beside_measured(Loader& loader, const Sweep& s) {
  for (const std::string& field : fields_of(s.axes)) {
    bool other = field == "workload" || field == "profile" || field.starts_with("profile.") ||
                 field == "cluster.device" || field.starts_with("cluster.device.");
    if (other && loader.measured())
      throw InputError{"--axis " + field,
                       "the measured step is of one workload on one device, and says nothing of "
                       "another; sweep what it leaves as it is (cluster.hosts, bucket_cap_mb)"};
  }
}

}  // namespace

Sweep make_sweep(const Terminal& t, Loader& loader, const QuestionFlags& flags,
                 const std::vector<std::string>& axes, const std::vector<std::string>& zips,
                 bool interval) {
  Sweep s = sweep_over(axes, zips, interval);
  refuse_beside_measured(loader, s);
  for (std::size_t k = 0; k < s.axes.size(); ++k) check_axis(t, loader, s, k);
  std::uint64_t h =
      hashed(0xcbf29ce484222325ull, std::string(kVersion) + (interval ? " interval" : ""));
  for (const std::string& text :
       {flags.workload, flags.cluster, flags.plan, flags.ranks, flags.layers, flags.fidelity,
        flags.measured_step, flags.samples_per_s})
    h = hashed(h, text);
  for (const auto* list : {&flags.profiles, &flags.sets, &axes, &zips}) {
    for (const std::string& text : *list) h = hashed(h, text);
    h = hashed(h, "\n");
  }
  // What the files say; where the first point is invalid, its reason stands for them.
  try {
    Asked a = loader.ask(choice_at(s, values_at(s.axes, 0)));
    std::vector<std::string> varied;
    for (const std::string& field : fields_of(s.axes))
      varied.push_back(field.substr(field.rfind('.') + 1));
    s.nccl = nccl_text(a.scenario.plan, varied);
    for (const io::Json* j : std::initializer_list<const io::Json*>{
             &a.document, &a.workload->document, &a.hardware->document,
             &a.hardware->device->document})
      h = hashed(h, j->dump());
  } catch (const InputError& e) {
    // The first and the last point fail alike, and no axis is to blame: the question itself is
    // wrong.
    bool blamed = false;
    for (const std::string& field : fields_of(s.axes))
      blamed = blamed || e.where.find(field) != std::string::npos;
    std::string last;
    try {
      (void)loader.ask(choice_at(s, values_at(s.axes, s.points - 1)));
    } catch (const InputError& other) {
      last = other.where + other.what;
    }
    if (!blamed && last == e.where + e.what) throw;
    h = hashed(h, e.where + e.what);
  }
  s.id = id_of(h, s.points);
  return s;
}

std::string title(Loader& loader, const Sweep& s) {
  std::string fields;
  for (const std::string& f : fields_of(s.axes)) fields += (fields.empty() ? "" : " x ") + f;
  try {
    Asked a = loader.ask(choice_at(s, values_at(s.axes, 0)));
    return fmt::format("{} on {}: {}{}{}", a.workload->workload.name, a.hardware->cluster.name,
                       fields, s.nccl.empty() ? "" : "; ", s.nccl);
  } catch (const InputError&) {
    return fields;
  }
}

SweepRow ask_point(Loader& loader, const Sweep& sweep, std::int64_t point) {
  SweepRow row = row_at(sweep, point);
  try {
    Asked a = loader.ask(choice_at(sweep, row.values));
    a.options.warmup = false;
    a.options.names = false;
    a.options.interval = sweep.interval;
    a.options.times = a.times.get();
    fill(row, sweep, a.question(), predict::predict(a.question(), a.options), a.options);
  } catch (const InputError& e) {
    refuse(row, sweep, e);
  } catch (const std::bad_alloc&) {
    row.reason = "not enough memory for this point";
    row.internal = true;
  } catch (const std::exception& e) {
    row.reason = printable("internal error, please report it: " + std::string(e.what()));
    row.internal = true;
  }
  return row;
}

}  // namespace ddpsim::cli
