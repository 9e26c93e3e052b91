#include <algorithm>

#include <fmt/format.h>

#include "sim/report/text.h"
#include "tools/cmd/explain_backend.h"

namespace ddpsim::cli {
namespace {

const Way& chosen(const BackendAnswer& a) {
  return *std::find_if(a.ways.begin(), a.ways.end(), [](const Way& w) { return w.chosen; });
}

std::string bytes_text(double bytes) {
  return to_string(Bytes{static_cast<std::int64_t>(bytes + 0.5)});
}

std::string table_text(const collective::MpiTable& t) {
  std::string out = "By size:";
  for (const collective::MpiRow& r : t.rows) {
    out += std::string(r.from == 0 ? " " : ", ") + r.name;
    out += r.below == collective::kMpiAnySize
               ? std::string(t.rows.size() > 1 ? " above" : " always")
               : " below " + to_string(Bytes{r.below});
  }
  return out + ".\n";
}

io::OrderedJson table_json(const collective::MpiTable& t) {
  io::OrderedJson rows = io::OrderedJson::array();
  for (const collective::MpiRow& r : t.rows) {
    rows.push_back({{"from_bytes", r.from}, {"algorithm", r.name}, {"number", r.number}});
    rows.back()["below_bytes"] =
        r.below == collective::kMpiAnySize ? io::OrderedJson() : io::OrderedJson(r.below);
  }
  return {{"ranks_from", t.ranks_from},
          {"ranks_below", t.ranks_below > 0 ? io::OrderedJson(t.ranks_below) : io::OrderedJson()},
          {"rows", rows}};
}

std::string parts_sentence(const Way& w) {
  std::string out = fmt::format(
      "{} takes {}: {} at once, {} for the latencies of its {} {}, {} to move the bytes",
      w.algorithm, to_string(w.parts.total), to_string(w.parts.launch), to_string(w.parts.latency),
      w.work.steps, w.work.steps == 1 ? "step" : "steps", to_string(w.parts.transfer));
  if (w.parts.sums.ps > 0) out += fmt::format(", {} to sum", to_string(w.parts.sums));
  return out + ".\n";
}

}  // namespace

std::string backend_table(const BackendAnswer& a) {
  const Hardware& h = a.hardware;
  std::string out = fmt::format("{} of {} on {} ranks of {} ({} {}), {}; {}, {}\n\n",
                                name_of(a.operation), to_string(a.bytes), a.ranks, h.cluster.name,
                                h.cluster.hosts, h.cluster.hosts == 1 ? "host" : "hosts", a.library,
                                h.profile.name, report::basis_text(h.profile));
  out +=
      fmt::format("  {:<20} {:>6} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>9}\n", "", "steps",
                  "a rank sends", "launch", "latency", "transfer", "sums", "ddpsim", "bus GB/s");
  for (const Way& w : a.ways)
    out += fmt::format("{} {:<20} {:>6} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>9.3f}\n",
                       w.chosen ? "*" : " ", w.algorithm, w.work.steps, bytes_text(w.work.sent),
                       to_string(w.parts.launch), to_string(w.parts.latency),
                       to_string(w.parts.transfer), to_string(w.parts.sums),
                       to_string(w.parts.total), w.work.bus_bytes_per_s / 1e9);
  const Way& mine = chosen(a);
  out += "\n" + a.why + "\n" + parts_sentence(mine);
  if (a.rested)
    out += fmt::format(
        "After a pause, in which the links save up their burst, it takes {}: what a measurement "
        "with pauses sees.\n",
        to_string(*a.rested));
  if (a.table) out += table_text(*a.table);
  const Way& best = *std::min_element(a.ways.begin(), a.ways.end(), [](const Way& x, const Way& y) {
    return x.parts.total < y.parts.total;
  });
  if (best.parts.total < mine.parts.total)
    out += fmt::format("By ddpsim's price {} would take {:.0f} % less{}.\n", best.algorithm,
                       100 * (1 - best.parts.total / mine.parts.total),
                       a.operation == Operation::AllReduce ? " (--algorithm " + best.algorithm + ")"
                                                           : std::string());
  for (const std::string& n : a.notes) out += n + "\n";
  return out;
}

std::string backend_csv(const BackendAnswer& a) {
  std::string out =
      "operation,bytes,cluster,profile,ranks,backend,algorithm,chosen,steps,sent_bytes,"
      "message_bytes,price_ps,launch_ps,latency_ps,transfer_ps,sums_ps,bus_bytes_per_s\n";
  for (const Way& w : a.ways)
    out +=
        fmt::format("{},{},{},{},{},{},{},{},{},{:.0f},{},{},{},{},{},{},{:.0f}\n",
                    name_of(a.operation), a.bytes.count, report::csv_field(a.hardware.cluster.name),
                    report::csv_field(a.hardware.profile.name), a.ranks, name_of(a.backend),
                    w.algorithm, w.chosen ? "yes" : "no", w.work.steps, w.work.sent, w.work.message,
                    w.parts.total.ps, w.parts.launch.ps, w.parts.latency.ps, w.parts.transfer.ps,
                    w.parts.sums.ps, w.work.bus_bytes_per_s);
  return out;
}

io::OrderedJson backend_json(const BackendAnswer& a) {
  io::OrderedJson list = io::OrderedJson::array();
  for (const Way& w : a.ways)
    list.push_back({{"algorithm", w.algorithm},
                    {"steps", w.work.steps},
                    {"sent_bytes", w.work.sent},
                    {"message_bytes", w.work.message},
                    {"price_ps", w.parts.total.ps},
                    {"launch_ps", w.parts.launch.ps},
                    {"latency_ps", w.parts.latency.ps},
                    {"transfer_ps", w.parts.transfer.ps},
                    {"sums_ps", w.parts.sums.ps},
                    {"bus_bytes_per_s", w.work.bus_bytes_per_s},
                    {"chosen", w.chosen}});
  io::OrderedJson by = {{"who", a.chooser}, {"why", a.why}};
  if (a.table) by["table"] = table_json(*a.table);
  io::OrderedJson out = {{"operation", name_of(a.operation)},
                         {"bytes", a.bytes.count},
                         {"cluster", a.hardware.cluster.name},
                         {"profile", a.hardware.profile.name},
                         {"ranks", a.ranks},
                         {"backend", name_of(a.backend)},
                         {"library", a.library},
                         {"candidates", list},
                         {"chosen_by", by}};
  if (a.rested) out["rested_ps"] = a.rested->ps;
  if (!a.notes.empty()) out["notes"] = a.notes;
  return out;
}

}  // namespace ddpsim::cli
