// What tests share: shipped files as values, and commands run in-process.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "sim/io/codecs.h"
#include "sim/predict/predict.h"
#include "sim/report/nccl_tuner.h"
#include "sim/units/random.h"

namespace ddpsim::test {

std::string source_path(const std::string& relative);  // inside the source tree
io::Json read_json(const std::string& relative);
Workload workload(const std::string& name);  // shipped
Cluster cluster(const std::string& name);
Profile profile(const std::string& name);
// Of an operation of a shipped system: "allreduce/bucket.0". Throws where no system has the word.
OpKind kind_of_op(const std::string& name);

class Random {
 public:
  explicit Random(std::uint64_t seed) : numbers_{seed} {}
  std::uint64_t next() { return numbers_.next(); }
  // 0 to n - 1. REQUIRES: n > 0.
  template <std::integral T>
  T below(T n) {
    return static_cast<T>(next() % static_cast<std::uint64_t>(n));
  }
  double uniform() { return numbers_.uniform(); }  // 0 <= x < 1
  template <class T>
  const T& pick(const std::vector<T>& v) {
    return v[below(v.size())];
  }

 private:
  SplitMix64 numbers_;
};

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
};
using Args = std::vector<std::string>;
Args operator+(Args a, const Args& b);
bool has(const std::string& text, const std::string& part);
// `ddpsim ARGS...`, in-process, not on a terminal.
Outcome ddpsim(const Args& args);
// What `ddpsim ARGS... --format json` says; null, and the test fails, where it exits with anything
// but 0.
io::Json json_of(const Args& args);
// CPU time of this process so far: what others on a busy machine take is not counted.
double cpu_seconds();
// The arguments of a command ("show program") about 8 ranks of a plan on hgx-h100.
std::vector<std::string> about_plan(const std::string& plan, const std::string& command,
                                    std::initializer_list<const char*> more,
                                    const char* workload = "gpt2-small");
// It exits with 0, and stdout has these words; with 2, and stderr has them.
void expect_answer(const std::vector<std::string>& args, std::initializer_list<const char*> words);
void expect_refusal(const std::vector<std::string>& args, const char* words);
// A refusal says nothing on stdout but the same in JSON, where that was asked for.
void expect_no_answer(const Outcome& o, const Args& args);

// One transport "wire" with the given step latency, link efficiency 1, nothing else costs anything:
// closed forms hold exactly.
Profile ideal_profile(Duration latency, DeviceKind kind = DeviceKind::Gpu);
// `hosts` hosts of one device on a star of `bandwidth`, transport "wire", no wire latency.
Cluster star(int hosts, Bandwidth bandwidth);
// A captured workload: `layers` gradients of `bytes` each, arriving every `backward` after
// `forward` per layer of forward.
Workload layered(int layers, std::int64_t bytes, Duration forward, Duration backward,
                 DeviceKind kind = DeviceKind::Gpu);

// The rows of a tuner configuration, without the lines for what no row matches.
std::vector<report::TunerRow> tuner_rows(const std::string& text);

}  // namespace ddpsim::test
