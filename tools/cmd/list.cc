// ddpsim list: what is shipped.
#include <fmt/format.h>

#include "sim/io/extends.h"
#include "sim/report/text.h"
#include "sim/systems/base/settings.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

using Row = std::vector<std::string>;

struct Listing {
  Row header;
  std::vector<Row> rows;
};

io::Json document(const io::Home& home, const char* folder, const std::string& name) {
  std::string path = home.find(folder, name, "file");
  return io::parse_json(io::read_file(path), path);
}

Listing workloads(const io::Home& home, const std::vector<std::string>& names) {
  Listing l{{"name", "basis", "batch", "sequence", "precision", "tensors", "parameters",
             "gradient bytes", "times from"},
            {}};
  for (const auto& name : names) {
    Workload w = io::read_workload(document(home, "workloads", name), name);
    l.rows.push_back({name, w.basis == Basis::Captured ? "captured" : "described",
                      std::to_string(w.batch), w.sequence > 0 ? std::to_string(w.sequence) : "",
                      name_of(w.precision), std::to_string(w.tensors.size()),
                      std::to_string(w.elements()), std::to_string(w.gradient_bytes().count),
                      w.basis == Basis::Captured ? w.device_name : "the profile's roofline"});
  }
  return l;
}

Listing clusters(const io::Home& home) {
  Listing l{{"name", "pattern", "hosts", "devices", "link", "profile", "description"}, {}};
  for (const auto& name : home.list("topologies")) {
    Cluster c = io::read_cluster(document(home, "topologies", name), name);
    std::string link = c.pattern == Pattern::Graph
                           ? "graph"
                           : fmt::format("{}x {}", c.nics_per_host, to_string(c.link.bandwidth));
    l.rows.push_back({name, name_of(c.pattern), std::to_string(c.hosts),
                      std::to_string(c.devices()), link, c.profile, c.description});
  }
  return l;
}

Listing profiles(const io::Home& home) {
  Listing l{{"name", "kind", "basis", "hardware"}, {}};
  for (const auto& name : home.list("calib/profiles")) {
    Profile p = io::open_profile(home, home.find("calib/profiles", name, "file"), name);
    std::string basis = report::basis_text(p);
    l.rows.push_back({name, p.kind == DeviceKind::Cpu ? "cpu" : "gpu",
                      basis == "datasheet" ? basis + ", never measured" : basis, p.hardware});
  }
  return l;
}

Listing plans() {
  Listing l{{"name", "what it does", "evidence"}, {}};
  for (const systems::SystemRecord& s : systems::all_systems())
    l.rows.push_back({s.name(), s.does, s.evidence});
  return l;
}

std::string table(const Listing& l) {
  std::vector<std::size_t> width(l.header.size(), 0);
  auto widen = [&](const Row& r) {
    for (std::size_t i = 0; i < r.size(); ++i) width[i] = std::max(width[i], r[i].size());
  };
  widen(l.header);
  for (const Row& r : l.rows) widen(r);
  std::string out;
  auto add = [&](const Row& r) {
    std::string line;
    for (std::size_t i = 0; i < r.size(); ++i)
      line += i + 1 < r.size() ? fmt::format("{:<{}}  ", r[i], width[i]) : r[i];
    while (!line.empty() && line.back() == ' ') line.pop_back();
    std::size_t last = 0;
    for (std::size_t i = 0; i + 1 < width.size(); ++i) last += width[i] + 2;
    out += report::wrapped(line + "\n", last);
  };
  add(l.header);
  for (const Row& r : l.rows) add(r);
  return out;
}

// In two blocks: those of GPUs are many, and a line says what they differ in.
std::string workloads_table(const io::Home& home, bool captured_too) {
  std::string out = table(workloads(home, home.list("workloads")));
  const std::vector<std::string> names = home.captured();
  if (names.empty()) return out;
  if (!captured_too)
    return out + fmt::format("and {} captured on GPUs: ddpsim list workloads\n", names.size());
  Listing l = workloads(home, names);
  auto some = [](const Row& r) { return Row{r[0], r[2], r[4], r[5]}; };
  l.header = some(l.header);
  for (Row& r : l.rows) r = some(r);
  return out + "\nCAPTURED ON GPUS\n" + table(l);
}

std::string csv(const Listing& l) {
  std::string out;
  auto add = [&](const Row& r) {
    for (std::size_t i = 0; i < r.size(); ++i) out += (i ? "," : "") + report::csv_field(r[i]);
    out += "\n";
  };
  add(l.header);
  for (const Row& r : l.rows) add(r);
  return out;
}

Listing scenarios(const io::Home& home) {
  Listing l{{"name", "kind", "what"}, {}};
  for (const auto& name : home.list("scenarios")) {
    const io::Json d = document(home, "scenarios", name);
    const bool program = d.contains("steps");
    l.rows.push_back({name, program ? "program" : "scenario",
                      program ? d.value("name", name) : d.value("description", "")});
  }
  return l;
}

std::string json(const Listing& l) {
  io::OrderedJson out = io::OrderedJson::array();
  for (const Row& r : l.rows) {
    io::OrderedJson row;
    for (std::size_t i = 0; i < r.size(); ++i) row[l.header[i]] = r[i];
    out.push_back(row);
  }
  return out.dump(1) + "\n";
}

}  // namespace

void add_list(Command& app, Terminal& t) {
  struct Flags {
    std::string what;
    OutputFlags output;
  };
  auto flags = std::make_shared<Flags>();
  Command* c = app.add_subcommand(
      "list", "List what is shipped: workloads, clusters, profiles, plans, scenarios");
  c->add_option("what", flags->what,
                "workloads, clusters, profiles, plans or scenarios; default: all");
  add_output_flags(*c, flags->output, {"table", "csv", "json"});
  c->callback([&t, flags] {
    io::Home home = home_of(t);
    auto format = [&](const Listing& l) {
      return flags->output.format == "json"  ? json(l)
             : flags->output.format == "csv" ? csv(l)
                                             : table(l);
    };
    const std::string& what = flags->what;
    if (what.empty()) {
      if (flags->output.format != "table")
        throw InputError{
            "list", "name one of workloads, clusters, profiles, plans, scenarios for --format " +
                        flags->output.format};
      write_answer(t, flags->output,
                   "WORKLOADS\n" + workloads_table(home, false) + "\nCLUSTERS\n" +
                       table(clusters(home)) + "\nPROFILES\n" + table(profiles(home)) +
                       "\nPLANS\n" + table(plans()) + "\nSCENARIOS\n" + table(scenarios(home)));
    } else if (what == "workloads") {
      std::vector<std::string> names = home.list("workloads");
      for (const std::string& name : home.captured()) names.push_back(name);
      write_answer(t, flags->output,
                   flags->output.format == "table" ? workloads_table(home, true)
                                                   : format(workloads(home, names)));
    } else if (what == "clusters")
      write_answer(t, flags->output, format(clusters(home)));
    else if (what == "profiles")
      write_answer(t, flags->output, format(profiles(home)));
    else if (what == "plans")
      write_answer(t, flags->output, format(plans()));
    else if (what == "scenarios")
      write_answer(t, flags->output, format(scenarios(home)));
    else {
      std::string hint =
          io::nearest(what, {"workloads", "clusters", "profiles", "plans", "scenarios"});
      throw InputError{"list " + what,
                       hint.empty() ? "expected workloads, clusters, profiles, plans or scenarios"
                                    : "unknown (did you mean \"" + hint + "\"?)"};
    }
  });
}

}  // namespace ddpsim::cli
