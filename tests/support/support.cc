#include "tests/support/support.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <sstream>

#include <gtest/gtest.h>

#include "sim/io/extends.h"
#include "sim/systems/base/words.h"
#include "tools/cmd/command.h"

namespace ddpsim::test {

std::string source_path(const std::string& relative) {
  return std::string(DDPSIM_SOURCE_DIR) + "/" + relative;
}

io::Json read_json(const std::string& relative) {
  const io::Home home(DDPSIM_SOURCE_DIR, "", "");
  return io::open_json(home, source_path(relative), relative).document;
}

Workload workload(const std::string& name) {
  return io::read_workload(read_json("workloads/" + name + ".json"), name);
}
Cluster cluster(const std::string& name) {
  return io::read_cluster(read_json("topologies/" + name + ".json"), name);
}
Profile profile(const std::string& name) {
  return io::read_profile(read_json("calib/profiles/" + name + ".json"), name);
}
OpKind kind_of_op(const std::string& name) {
  return systems::kind_of(name).value();
}

Args operator+(Args a, const Args& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

io::Json json_of(const Args& args) {
  Outcome o = ddpsim(args + Args{"--format", "json"});
  EXPECT_EQ(o.code, 0) << o.err;
  return o.code == 0 ? io::parse_json(o.out, "stdout") : io::Json();
}

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

Outcome ddpsim(const Args& args) {
  std::ostringstream out;
  std::ostringstream err;
  Outcome o;
  o.code = cli::run(args, {out, err, false, DDPSIM_SOURCE_DIR, ""});
  o.out = out.str();
  o.err = err.str();
  return o;
}

std::vector<std::string> about_plan(const std::string& plan, const std::string& command,
                                    std::initializer_list<const char*> more, const char* workload) {
  std::vector<std::string> out;
  std::istringstream words(command);
  for (std::string word; words >> word;) out.push_back(word);
  const char* const job[] = {"--workload", workload, "--cluster", "hgx-h100",
                             "--ranks",    "8",      "--plan",    plan.c_str()};
  out.insert(out.end(), std::begin(job), std::end(job));
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

void expect_answer(const std::vector<std::string>& args, std::initializer_list<const char*> words) {
  Outcome o = ddpsim(args);
  EXPECT_EQ(o.code, 0) << o.err;
  for (const char* word : words)
    EXPECT_NE(o.out.find(word), std::string::npos) << word << "\n" << o.out;
}

void expect_refusal(const std::vector<std::string>& args, const char* words) {
  Outcome o = ddpsim(args);
  EXPECT_EQ(o.code, 2) << o.out;
  EXPECT_NE(o.err.find(words), std::string::npos) << o.err;
}

void expect_no_answer(const Outcome& o, const Args& args) {
  const auto format = std::find(args.begin(), args.end(), "--format");
  if (format == args.end() || std::next(format) == args.end() || *std::next(format) != "json") {
    EXPECT_EQ(o.out, "");
    return;
  }
  const io::Json said = io::Json::parse(o.out);
  EXPECT_EQ(said["schema"], "ddpsim.error/1");
  EXPECT_EQ(said["exit_code"], o.code);
  EXPECT_TRUE(has(o.err, said["message"].get<std::string>())) << o.err << o.out;
}

Profile ideal_profile(Duration latency, DeviceKind kind) {
  Profile p;
  p.name = "ideal";
  p.hardware = "ideal";
  p.kind = kind;
  for (double& f : p.compute.peak_flops) f = 1e15;
  p.memory.bandwidth_bytes_per_s = 1e18;
  TransportSection t;
  t.latency = latency;
  p.transports["wire"] = t;
  return p;
}

Cluster star(int hosts, Bandwidth bandwidth) {
  Cluster c;
  c.name = "star";
  c.hosts = hosts;
  c.profile = "ideal";
  c.link.bandwidth = bandwidth;
  c.link.transport = "wire";
  return c;
}

Workload layered(int layers, std::int64_t bytes, Duration forward, Duration backward,
                 DeviceKind kind) {
  Workload w;
  w.name = "layered";
  w.model = "layered";
  w.device = kind;
  for (int i = 0; i < layers; ++i) {
    w.tensors.push_back({"layer" + std::to_string(i) + ".weight", {bytes / 4}, DType::Float32});
    w.arrival.push_back(static_cast<TensorIndex>(layers - 1 - i));
    w.times.ready.push_back(backward * (i + 1));
  }
  w.times.forward = forward * layers;
  w.times.backward = backward * layers;
  if (kind == DeviceKind::Gpu) {
    HostTimes h;
    h.ready.assign(static_cast<std::size_t>(layers), Duration{});
    w.times.host = h;
  }
  return w;
}

std::vector<report::TunerRow> tuner_rows(const std::string& text) {
  std::vector<report::TunerRow> out;
  std::istringstream lines(text.substr(0, text.find("# What no line above matches.")));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    report::TunerRow r;
    fields >> r.collective >> r.min_bytes >> r.max_bytes >> r.algorithm >> r.protocol >>
        r.channels >> r.nodes >> r.ranks;
    if (!fields) throw InputError{line, "is no row of a tuner configuration"};
    out.push_back(r);
  }
  return out;
}

}  // namespace ddpsim::test
