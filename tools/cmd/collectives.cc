#include "tools/cmd/collectives.h"

#include <fmt/format.h>

#include <algorithm>

namespace ddpsim::cli {
namespace {

std::string stem(const std::string& file) {
  auto slash = file.rfind('/');
  std::string name = slash == std::string::npos ? file : file.substr(slash + 1);
  return name.substr(0, name.find(".json"));
}

std::optional<nccl::Operation> operation_of(const std::string& name) {
  for (int i = 0; i < nccl::kOperations; ++i)
    if (name == nccl::name_of(static_cast<nccl::Operation>(i))) return static_cast<nccl::Operation>(i);
  return std::nullopt;
}

std::string percent(double v) { return fmt::format("{:.1f}", 100 * v); }
std::string cell(const calib::BandError& b) { return b.rows == 0 ? "-" : percent(b.median) + " (" + percent(b.nccl_median) + ")"; }

}  // namespace

std::vector<int> spread(const Cluster& c, int ranks, int hosts) {
  std::vector<int> out;
  for (int r = 0; r < ranks; ++r) {
    int host = static_cast<int>(static_cast<std::int64_t>(r) * hosts / ranks);
    int first = static_cast<int>((static_cast<std::int64_t>(host) * ranks + hosts - 1) / hosts);
    out.push_back(host * c.devices_per_host + (r - first));
  }
  return out;
}

nccl::Settings settings_of(const CollectiveSetting& s) {
  nccl::Version version = nccl::parse_version(s.nccl).value_or(nccl::Version{});
  std::map<std::string, std::string> environment;
  for (const auto& [name, value] : s.environment)
    if (std::find(nccl::known_variables().begin(), nccl::known_variables().end(), name) != nccl::known_variables().end()) environment[name] = value;
  if (!s.algorithm.empty()) environment["NCCL_ALGO"] = s.algorithm;
  if (!s.protocol.empty()) environment["NCCL_PROTO"] = s.protocol;
  nccl::ParsedSettings parsed = nccl::parse_settings(environment, version);
  if (parsed.problem) throw InputError{parsed.problem.path, parsed.problem.message};
  // LL128 came with 2.5.
  if (version.minor < 5)
    for (auto& op : parsed.settings.allowed)
      for (auto& a : op) a[static_cast<std::size_t>(nccl::Protocol::Ll128)] = false;
  return parsed.settings;
}

Tables load_tables(const Terminal& t, const std::string& folder) {
  Tables out;
  for (const std::string& file : io::list_files(folder, {".json", ".json.gz"})) {
    Run run = io::read_run(io::parse_json(io::read_file(file), file), file);
    if (!run.collectives || run.samples.empty()) continue;
    const CollectiveSetting& s = *run.collectives;
    auto op = operation_of(s.op);
    if (!op) {
      out.left_out.push_back(stem(file) + ": ddpsim has no price of " + s.op);
      continue;
    }
    if (s.cluster.empty()) {
      out.left_out.push_back(stem(file) + ": names no cluster");
      continue;
    }
    QuestionFlags q;
    q.cluster = s.cluster;
    int hosts = std::max(1, s.hosts);
    q.sets.push_back("cluster.hosts=" + std::to_string(hosts));
    Hardware hardware = load_hardware(t, q);
    if (s.ranks > hosts * hardware.cluster.devices_per_host) throw InputError{file, fmt::format("has {} ranks, and {} hosts of {} have {} devices", s.ranks, hosts, s.cluster, hardware.cluster.devices())};
    out.runs.push_back(std::move(run));
    out.fabrics.emplace_back(hardware.cluster);
    calib::CollectiveTable table;
    table.name = stem(file);
    table.run = &out.runs.back();
    const CollectiveSetting& setting = *table.run->collectives;
    table.machine = calib::machine_of(setting);
    table.profile = hardware.profile;
    table.op = *op;
    table.gpus_per_process = std::max(1, setting.gpus_per_process);
    nccl::Settings settings = settings_of(setting);
    if (std::string lacking = collective::missing_transport(out.fabrics.back(), table.profile); !lacking.empty())
      throw InputError{table.profile.name, "has no transport \"" + lacking + "\", which cluster \"" + s.cluster + "\" uses"};
    table.group = collective::make_nccl_group(out.fabrics.back(), spread(hardware.cluster, setting.ranks, hosts), std::move(settings), table.profile.compute.capability);
    out.tables.push_back(std::move(table));
  }
  return out;
}

std::string collectives_table(const calib::CollectiveReport& r) {
  std::string out = fmt::format("{:<52} {:>16} {:>16} {:>16}\n", "median error, % (NCCL's own estimate)", "< 1 MiB", "1-16 MiB", ">= 16 MiB");
  for (const calib::TableResult& t : r.tables) out += fmt::format("{:<52} {:>16} {:>16} {:>16}\n", t.name, cell(t.bands[0]), cell(t.bands[1]), cell(t.bands[2]));
  out += fmt::format("{:<52} {:>16} {:>16} {:>16}\n", "median of the tables", percent(r.median[0]), percent(r.median[1]), percent(r.median[2]));
  out += fmt::format("NCCL off by more than 5 % in {} cells, ddpsim closer in {}; elsewhere ddpsim at most {} points worse\n", r.cells_off, r.cells_closer, percent(r.most_worse));
  return out;
}

io::OrderedJson collectives_json(const calib::CollectiveReport& r) {
  io::OrderedJson tables = io::OrderedJson::array();
  for (const calib::TableResult& t : r.tables) {
    io::OrderedJson rows = io::OrderedJson::array();
    for (const calib::CollectiveRow& row : t.rows)
      rows.push_back({{"bytes", row.bytes},
                      {"measured_ps", row.measured.ps},
                      {"predicted_ps", row.predicted.ps},
                      {"nccl_ps", row.nccl.ps},
                      {"algorithm", nccl::name_of(row.choice.algorithm)},
                      {"protocol", nccl::name_of(row.choice.protocol)},
                      {"channels", row.choice.channels},
                      {"limited_by", row.price.limited_by}});
    io::OrderedJson bands = io::OrderedJson::array();
    for (const calib::BandError& b : t.bands) bands.push_back({{"rows", b.rows}, {"median_error", b.median}, {"nccl_median_error", b.nccl_median}});
    io::OrderedJson cliffs = io::OrderedJson::array();
    for (const calib::Cliff& c : t.cliffs) cliffs.push_back({{"from_bytes", c.from}, {"to_bytes", c.to}, {"fall", c.fall}, {"why", c.why}});
    io::OrderedJson fits = io::OrderedJson::object();
    for (const auto& [name, f] : t.fits) fits[name] = {{"step_factor", f.step_factor}, {"efficiency_factor", f.efficiency}, {"tables", f.tables}};
    tables.push_back({{"name", t.name}, {"machine", t.machine}, {"fits", fits}, {"bands", bands}, {"cliffs", cliffs}, {"fitted_median_error", t.fitted_median}, {"rows", rows}});
  }
  return {{"tables", tables},
          {"median_error", r.median},
          {"cells_off", r.cells_off},
          {"cells_closer", r.cells_closer},
          {"most_worse", r.most_worse},
          {"fitted", {{"median_error", r.fitted_median}, {"largest_median_error", r.fitted_worst_median}, {"p95_error_1_to_128_mib", r.fitted_p95}, {"pooled", r.fitted_pooled}, {"left_out_at_cliffs", r.fitted_at_cliffs}}}};
}

std::string collectives_markdown(const calib::CollectiveReport& r) { return collectives_table(r); }

}  // namespace ddpsim::cli
