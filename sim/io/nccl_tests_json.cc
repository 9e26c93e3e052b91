// JSON of `-J FILE` (nccl-tests 2.16 and later, file versions 2 and 3). Of several processes it
// lists the first GPU of each only.
#include <algorithm>

#include "sim/io/json_reader.h"
#include "sim/io/nccl_tests.h"
#include "sim/units/number.h"

namespace ddpsim::io {
namespace {

// What the program prints as "%lf".
Printed exact(double v) {
  return {v, 0.5e-6};
}

// A number; null and "nan" are none.
std::optional<double> maybe(const Reader& r, const char* key) {
  if (!r.json().is_object()) r.fail("expected an object");
  if (!r.has(key) || r.at(key).json().is_string()) return {};
  return r.at(key).number();
}

std::optional<NcclTestsTime> half_of(const Reader& row, const char* key, bool& host_time) {
  if (!row.has(key)) return {};
  Reader r = row.at(key);
  auto time = maybe(r, "time");
  if (!time) {
    time = maybe(r, "cpu_time");
    host_time = host_time || time.has_value();
  }
  auto alg = maybe(r, "alg_bw");
  auto bus = maybe(r, "bus_bw");
  if (!time || !alg || !bus) return {};
  NcclTestsTime out{exact(*time), exact(*alg), exact(*bus), {}};
  if (auto wrong = maybe(r, "nwrong"); wrong && *wrong > 0 && *wrong < 1e15)
    out.wrong = static_cast<std::int64_t>(*wrong);
  std::string each = std::string(key) + "_per_iter";
  if (!row.has(each.c_str()) || !row.at(each.c_str()).has("times_us")) return out;
  for (const Reader& x : row.at(each.c_str()).at("times_us").items())
    if (!x.json().is_string()) out.each_us.push_back(x.number());
  return out;
}

int spaced_number(const std::string& s) {
  auto from = s.find_first_not_of(' ');
  auto v =
      from == std::string::npos ? std::nullopt : leading_number(std::string_view(s).substr(from));
  return v && v->value >= -1 && v->value < (1 << 20) ? static_cast<int>(v->value) : -1;
}

std::string short_text(const Reader& r, const char* key) {
  return r.has(key) ? r.at(key).text() : std::string();
}

std::int64_t count(const Reader& r, const char* key) {
  std::int64_t v = r.has(key) ? r.at(key).integer() : 0;
  if (v < 0) r.at(key).fail("is not negative");
  return v;
}

void read_config(const Reader& r, NcclTestsTable& t) {
  std::int64_t threads = count(r, "nthreads");
  std::int64_t gpus = count(r, "ngpus");
  if (threads > 0 && gpus > 0 && threads < 4096 && gpus < 4096)
    t.gpus_per_process = static_cast<int>(threads * gpus);
  t.min_bytes = count(r, "minimum_bytes");
  t.max_bytes = count(r, "maximum_bytes");
  t.step_is_factor = r.has("step_factor");
  t.step = t.step_is_factor ? count(r, "step_factor") : count(r, "step_bytes");
}

void read_devices(const Reader& list, NcclTestsTable& t) {
  for (const Reader& r : list.items()) {
    NcclTestsDevice d;
    d.rank = within_2_20(count(r, "rank"), 0);
    d.group = within_2_20(count(r, "group"), 0);
    d.pid = std::to_string(count(r, "pid"));
    d.host = short_text(r, "hostname");
    d.name = short_text(r, "device_info");
    t.devices.push_back(std::move(d));
  }
  if (t.devices.empty()) return;
  std::int64_t listed =
      std::count_if(t.devices.begin(), t.devices.end(),
                    [&](const NcclTestsDevice& d) { return d.group == t.devices.front().group; });
  // The first of each process, or all of them?
  bool all = t.devices.size() > 1 && t.devices[1].rank == t.devices[0].rank + 1;
  t.ranks = static_cast<int>(
      std::min<std::int64_t>(listed * (all ? 1 : std::max(1, t.gpus_per_process)), 1 << 20));
}

}  // namespace

NcclTests read_nccl_tests_json(const std::string& text, const std::string& file) {
  Json j = parse_json(text, file);
  Reader r(j, file);
  if (!r.has("results"))
    r.fail("no \"results\"; expected what an nccl-tests program wrote with -J FILE");
  NcclTests out;
  NcclTestsTable& t = out.tables.emplace_back();
  if (r.has("args"))
    for (const Reader& a : r.at("args").items())
      if (t.op.empty()) t.op = nccl_tests_op(a.text());
  t.op_is_sure = !t.op.empty();
  if (r.has("env"))
    for (const Reader& e : r.at("env").items()) {
      std::string pair = e.text();
      auto equals = pair.find('=');
      if (pair.starts_with("NCCL_") && equals != std::string::npos)
        out.environment[pair.substr(0, equals)] = pair.substr(equals + 1);
    }
  if (r.has("nccl_version"))
    if (std::int64_t code = count(r, "nccl_version"); code >= 10000 && code < 1'000'000)
      out.nccl = std::to_string(code / 10000) + "." + std::to_string(code % 10000 / 100) + "." +
                 std::to_string(code % 100);
  if (r.has("config")) {
    read_config(r.at("config"), t);
    if (r.at("config").has("devices")) read_devices(r.at("config").at("devices"), t);
  }
  if (r.has("devices")) read_devices(r.at("devices"), t);
  t.footer = r.has("out_of_bounds");
  out.expects_footer = true;
  int number = 0;
  for (const Reader& item : r.at("results").items()) {
    NcclTestsRow row;
    row.line = ++number;
    row.bytes = item.at("size").integer();
    row.count = item.at("count").integer();
    row.type = item.at("type").text();
    row.redop = short_text(item, "redop");
    if (item.has("root"))
      row.root = item.at("root").json().is_string() ? spaced_number(item.at("root").text())
                                                    : item.at("root").small(-1, 1 << 20);
    if (t.op.empty() && item.has("experiment_name"))
      t.op = nccl_tests_op(item.at("experiment_name").text());
    row.out_of_place = half_of(item, "out_of_place", t.host_time);
    row.in_place = half_of(item, "in_place", t.host_time);
    if (row.bytes < 0 || row.count < 0) item.at("size").fail("is not negative");
    if (row.out_of_place || row.in_place)
      t.rows.push_back(std::move(row));
    else
      t.dropped.push_back("result " + std::to_string(number) + " is dropped: it has no time");
  }
  if (t.rows.empty() && t.dropped.empty()) r.at("results").fail("is empty: nothing was measured");
  return out;
}

}  // namespace ddpsim::io
