#include "calib/cuda/collective_runs.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace ddpsim::calib::cuda {
namespace {

template <std::size_t N>
std::int64_t number_of(const std::array<std::string_view, N>& names, const std::string& name) {
  auto at = std::find(names.begin(), names.end(), name);
  return at == names.end() ? -1 : at - names.begin();
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// Readings of one point, the slowest rank's; of those that nobody waited for.
std::vector<Duration> durations_of(const Table& table, std::size_t point, int ranks) {
  std::vector<Duration> out;
  for (int k = 0; k < kReadings; ++k) {
    std::int64_t slowest = 0;
    bool full = true;
    for (int r = 0; r < ranks; ++r) {
      slowest = std::max(slowest, table.ns[point][k][r]);
      full = full && table.ns[point][k][r] != kNotFull;
    }
    if (full && slowest > 0) out.push_back({slowest * 1000});
  }
  return out;
}

// Time of a collective among others back to back: of each rank's readings but the first, which
// waits for the ranks' clocks, the mean; the slowest rank's. Ranks leave a collective one after
// another, so that what one reading is too long the next one is too short, on each rank for itself:
// the slowest of each reading are too long together. 0 = a reading is missing.
std::int64_t period_ps(const Table& table, std::size_t point, int ranks) {
  std::int64_t slowest = 0;
  for (int r = 0; r < ranks; ++r) {
    std::int64_t sum = 0;
    for (int k = 1; k < kReadings; ++k) {
      if (table.ns[point][k][r] <= 0) return 0;
      sum += table.ns[point][k][r];
    }
    slowest = std::max(slowest, sum * 1000 / (kReadings - 1));
  }
  return slowest;
}

// All that is said of the samples of one operation, but NCCL's choices.
CollectiveSetting setting_of(const Run& head, const Named& op, int ranks, const Way& way,
                             Place place, const CalibrateOptions& options) {
  CollectiveSetting c;
  c.op = op.sample;
  c.ranks = ranks;
  c.gpus_per_process = 1;
  c.gpu = head.origin.gpu.substr(0, head.origin.gpu.find(" ("));
  c.hosts = place == Place::OwnHosts ? ranks : 1;
  if (way.algorithm) {
    c.algorithm = lower(way.algorithm);
    c.protocol = lower(way.protocol);
  }
  // Ranks of one host that share a GPU have no cluster: nothing says what joins them.
  if (place == Place::OwnHosts)
    c.cluster = kOneGpuCluster;
  else if (place == Place::OwnGpu)
    c.cluster = options.cluster;
  int channels = place != Place::OwnGpu ? kOneGpuChannels : way.channels;
  if (channels > 0)
    c.environment = {{"NCCL_MIN_CTAS", std::to_string(channels)},
                     {"NCCL_MAX_CTAS", std::to_string(channels)}};
  c.source = "ddpsim calibrate --backend nccl: " + c.gpu;
  return c;
}

// "all_reduce@one-gpu/n2/ring/simple"
std::string key_of(const CollectiveSetting& c, const Way& way, Place place) {
  std::string out =
      c.op + "@" + (c.cluster.empty() ? c.gpu : c.cluster) + "/n" + std::to_string(c.ranks);
  if (place == Place::OneHost) out += "/one-host";
  if (!c.algorithm.empty()) out += "/" + c.algorithm + "/" + c.protocol;
  if (way.channels > 0) out += "/channels" + std::to_string(way.channels);
  return out;
}

}  // namespace

std::vector<Run> runs_of(const Run& head, const std::vector<Point>& points, const Table& table,
                         int ranks, const Way& way, Place place, const gpu::NcclLog& log,
                         const CalibrateOptions& options) {
  std::vector<Run> out;
  for (const Named& op : kOps) {
    Run run = head;
    run.skipped.clear();
    CollectiveSetting c = setting_of(head, op, ranks, way, place, options);
    c.nccl = log.version;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (points[i].op != &op) continue;
      Sample s;
      s.op = op.sample;
      s.parameters = {{"ranks", ranks},
                      {"bytes", points[i].bytes},
                      {"in_place", points[i].in_place},
                      {"one_gpu", static_cast<int>(place)},
                      {"forced", way.algorithm != nullptr}};
      if (way.channels > 0) s.parameters["channels_forced"] = way.channels;
      // Its log counts one rank's share of what is gathered or scattered.
      std::int64_t counted = in_parts(op.op) ? points[i].bytes / ranks : points[i].bytes;
      for (const gpu::NcclChoice& choice : log.choices) {
        if (choice.collective != op.nccl || choice.bytes != counted) continue;
        s.parameters["algorithm"] = number_of(gpu::kNcclAlgorithms, choice.algorithm);
        s.parameters["protocol"] = number_of(gpu::kNcclProtocols, choice.protocol);
        if (choice.channels > 0) s.parameters["channels"] = choice.channels;
        CollectiveChoice chosen{points[i].bytes, lower(choice.algorithm), lower(choice.protocol),
                                choice.channels};
        if (std::find(c.chosen.begin(), c.chosen.end(), chosen) == c.chosen.end())
          c.chosen.push_back(std::move(chosen));
      }
      s.durations = durations_of(table, i, ranks);
      if (std::int64_t ps = period_ps(table, i, ranks); ps > 0) s.parameters["period_ps"] = ps;
      if (!s.durations.empty()) run.samples.push_back(std::move(s));
    }
    if (run.samples.empty()) continue;
    if (ranks > 1) {  // one rank copies, which is no collective
      run.key = key_of(c, way, place);
      run.collectives = std::move(c);
    }
    out.push_back(std::move(run));
  }
  return out;
}

}  // namespace ddpsim::calib::cuda
