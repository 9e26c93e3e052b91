// Plays questions of tests/oracle/horovod.py with ddpsim's own policy (systems::Cycles): one JSON
// array of questions on standard input, for each a line with what was reduced:
// [[start, [tensor, ...]], ...], times in the question's unit. With --autotune: courses of the
// autotuner, of tests/oracle/horovod_autotune.py.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <queue>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "sim/io/codecs.h"
#include "sim/systems/horovod/autotune.h"
#include "sim/systems/horovod/cycles.h"

namespace ddpsim {
namespace {

constexpr double kUnit = 1e6;  // picoseconds in a question's unit

std::int64_t in_ps(double t) {
  return static_cast<std::int64_t>(std::llround(t * kUnit));
}

struct Event {
  std::int64_t time;
  bool wakes;  // after the requests of that time
  int rank;
  TensorIndex tensor;
  bool operator>(const Event& o) const {
    return std::tie(time, wakes, rank) > std::tie(o.time, o.wakes, o.rank);
  }
};

struct Question {
  std::vector<std::string> names;
  std::map<std::string, TensorIndex> index;
  Coordination c;
  std::vector<Event> requests;  // in the order in which each rank makes them
  int ranks = 0;
  int local_size = 1;
  bool gpu = false;
  double coordination = 0, negotiation = 0, launch = 0, copy = 0;
  double reduce[2] = {0, 0};
  double begins = 0;  // the next cycle of all ranks
  std::vector<TensorIndex> cached;
  std::map<TensorIndex, double> device_ready;
};

Question read(const io::Json& j) {
  Question q;
  bool half = j.value("compression", "none") == "fp16";
  for (const auto& [name, said] : j.at("tensors").items()) {
    std::int64_t elements =
        said.is_array() ? said[0].get<std::int64_t>() : said.get<std::int64_t>();
    DType type = said.is_array() ? *parse_dtype(said[1]) : DType::Float32;
    if (half && (type == DType::Float32 || type == DType::Float64)) type = DType::Float16;
    q.index[name] = static_cast<TensorIndex>(q.names.size());
    q.names.push_back(name);
    q.c.tensors.push_back({elements * element_size(type), type, kNoSubject});
  }
  q.gpu = j.value("gpu", false);
  q.local_size = j.value("local_size", 1);
  q.c.cycle = {in_ps(j.value("HOROVOD_CYCLE_TIME", 1.0))};
  q.c.threshold = j.value("HOROVOD_FUSION_THRESHOLD", std::int64_t{128} << 20);
  q.c.cache = j.value("HOROVOD_CACHE_CAPACITY", 1024);
  q.c.padding = q.gpu && j.value("HOROVOD_BATCH_D2D_MEMCOPIES", true) ? 16 : 1;
  q.c.group_fusion = !j.value("HOROVOD_DISABLE_GROUP_FUSION", false);
  q.coordination = q.c.cache > 0 ? j.value("coordination", 0.0) : 0;
  q.negotiation = j.value("negotiation", 0.0);
  q.launch = j.value("launch", 0.0);
  q.copy = j.value("copy", 0.0);
  if (j.contains("last_cycle"))
    q.begins = j["last_cycle"][0].get<double>() + j.value("HOROVOD_CYCLE_TIME", 1.0);
  if (j.contains("reduce")) q.reduce[0] = j["reduce"][0], q.reduce[1] = j["reduce"][1];
  for (const std::string name : j.value("cached", io::Json::array()))
    q.cached.push_back(q.index.at(name));
  const io::Json ready = j.value("device_ready", io::Json::object());
  for (const auto& [name, time] : ready.items()) q.device_ready[q.index.at(name)] = time;
  for (const io::Json& of_rank : j.at("ready")) {
    std::uint32_t group = 0;
    for (const io::Json& entry : of_rank) {
      std::vector<std::string> names;
      if (entry[1].is_array())
        for (const std::string name : entry[1]) names.push_back(name);
      else
        names.push_back(entry[1]);
      for (const std::string& name : names) {
        TensorIndex t = q.index.at(name);
        if (entry[1].is_array()) q.c.tensors[t].group = group;
        q.requests.push_back({in_ps(entry[0].get<double>() - q.begins), false, q.ranks, t});
      }
      ++group;
    }
    ++q.ranks;
  }
  return q;
}

class Player {
 public:
  explicit Player(const Question& q)
      : q_(q),
        cycles_(q.c, q.ranks, q.local_size, {in_ps(q.coordination)}, {in_ps(q.negotiation)}) {
    cycles_.fusion.remember(q.cached);
  }
  io::Json play() {
    std::vector<Event> requests = q_.requests;
    std::stable_sort(requests.begin(), requests.end(),
                     [](const Event& a, const Event& b) { return a.time < b.time; });
    std::size_t next = 0;
    while (next < requests.size() || !wakes_.empty()) {
      bool asks =
          next < requests.size() && (wakes_.empty() || requests[next].time <= wakes_.top().time);
      Event e = asks ? requests[next++] : wakes_.top();
      now_ = e.time;
      if (asks) {
        if (cycles_.request(e.rank, e.tensor, {now_})) wake_all();
        continue;
      }
      wakes_.pop();
      auto decision = cycles_.begin(e.rank, {now_});
      if (!decision) continue;
      if (!decision->fused.empty())
        perform(*decision);
      else if (cycles_.wakes())
        wake_all();
    }
    return out_;
  }

 private:
  void wake(int r) { wakes_.push({std::max(now_, cycles_.next(r).ps), true, r, 0}); }
  void wake_all() {
    for (int r = 0; r < q_.ranks; ++r) wake(r);
  }
  void perform(const systems::Fusion::Decision& d) {
    double now =
        static_cast<double>(now_) / kUnit + q_.coordination + (d.by_name ? q_.negotiation : 0);
    for (const auto& together : d.fused) {
      double total = 0;
      double ready = -1e300;
      io::Json names = io::Json::array();
      for (TensorIndex t : together) {
        total += static_cast<double>(q_.c.tensors[t].bytes);
        if (auto at = q_.device_ready.find(t); at != q_.device_ready.end())
          ready = std::max(ready, at->second - q_.begins);
        names.push_back(q_.names[t]);
      }
      double takes = q_.reduce[0] + q_.reduce[1] * total;
      double copy = together.size() > 1 ? q_.copy * total : 0;
      double start = now + copy;
      if (q_.gpu) {
        start = copy + std::max({now + q_.launch, stream_, ready});
        stream_ = start + takes + copy;
        now += q_.launch;
      } else {
        now = start + takes + copy;
      }
      out_.push_back({start + q_.begins, names});
    }
    for (int r = 0; r < q_.ranks; ++r) {
      cycles_.done(r, {in_ps(now)});
      wake(r);
    }
  }

  const Question& q_;
  systems::Cycles cycles_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> wakes_;
  std::int64_t now_ = 0;
  double stream_ = 0;
  io::Json out_ = io::Json::array();
};

// A course of the autotuner over a landscape of tests/oracle/horovod_autotune.py.
io::Json setting_of(const systems::AutotuneSetting& s) {
  return {{"hierarchical_allreduce", s.hierarchical_allreduce},
          {"hierarchical_allgather", s.hierarchical_allgather},
          {"torus_allreduce", s.torus_allreduce},
          {"cache", s.cache},
          {"fusion_mb", s.fusion_mb},
          {"cycle_ms", s.cycle_ms}};
}

double score_on(const io::Json& land, const systems::AutotuneSetting& s) {
  const double width = land["width"];
  const double x = (s.fusion_mb - land["peak"][0].get<double>()) / width;
  const double y = (s.cycle_ms - land["peak"][1].get<double>()) / width;
  double out = 1000 * std::exp(-(x * x + y * y)) + 100 + 0.1 * s.fusion_mb - 0.05 * s.cycle_ms;
  const io::Json setting = setting_of(s);
  for (const auto& [name, more] : land["flags"].items())
    if (setting[name].get<bool>()) out += more.get<double>();
  return out;
}

io::Json course(const io::Json& j) {
  systems::Autotuner::Fixed fixed;
  auto flag = [&](const char* name, std::optional<bool>& to) {
    if (j["fixed"].contains(name)) to = j["fixed"][name].get<bool>();
  };
  flag("hierarchical_allreduce", fixed.hierarchical_allreduce);
  flag("hierarchical_allgather", fixed.hierarchical_allgather);
  flag("torus_allreduce", fixed.torus_allreduce);
  flag("cache", fixed.cache);
  if (j["fixed"].contains("fusion_mb")) fixed.fusion_mb = j["fixed"]["fusion_mb"].get<double>();
  if (j["fixed"].contains("cycle_ms")) fixed.cycle_ms = j["fixed"]["cycle_ms"].get<double>();
  systems::Autotuner tuner(fixed, j["seed"].get<std::uint64_t>());
  io::Json out{{"tried", io::Json::array()}, {"processes", io::Json::array()}};
  std::vector<systems::JointPoint> points;
  std::vector<double> scores;
  while (!tuner.done()) {
    const systems::AutotuneSetting s = tuner.current();
    systems::JointPoint point;
    if (!fixed.fusion_mb) point.push_back(s.fusion_mb);
    if (!fixed.cycle_ms) point.push_back(s.cycle_ms);
    if (!point.empty() && points.size() >= 4 && points.size() < 21) {
      systems::GaussianProcess process(0.8);
      process.fit(points, systems::normalised_scores(scores));
      double best = -1e300;
      for (const auto& x : points) best = std::max(best, process.at(x).mean);
      const auto told = process.at(point);
      out["processes"].push_back(
          {{"length", process.length()},
           {"height", process.height()},
           {"mean", told.mean},
           {"deviation", told.deviation},
           {"improvement", systems::expected_improvement(process, point, best)}});
    }
    const double score = score_on(j["landscape"], s);
    out["tried"].push_back({{"setting", setting_of(s)}, {"score", score}});
    points.push_back(point);
    scores.push_back(score);
    tuner.score(score);
  }
  out["best"] = setting_of(tuner.best());
  return out;
}

}  // namespace
}  // namespace ddpsim

int main(int argc, char** argv) {
  using namespace ddpsim;
  std::ostringstream text;
  text << std::cin.rdbuf();
  if (argc > 1 && std::string(argv[1]) == "--autotune") {
    for (const io::Json& j : io::Json::parse(text.str())) std::cout << course(j).dump() << "\n";
    return 0;
  }
  for (const io::Json& j : io::Json::parse(text.str())) {
    Question q = read(j);
    std::cout << Player(q).play().dump() << "\n";
  }
}
