// Some hundreds of hostile inputs, by family: numbers that are none, files that are something else,
// Runs with one wrong value. Each is refused with exit code 2 and one sentence, and soon.
#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using io::Json;

const Args kCpu{"--workload", "mlp784-50-10-cpu", "--cluster", "ethernet-10g"};

void expect_refused(const Args& args) {
  std::string line;
  for (const std::string& a : args) line += " " + a.substr(0, 80);
  const double from = cpu_seconds();
  Outcome o = ddpsim(args);
  EXPECT_LT(cpu_seconds() - from, 10) << line;
  EXPECT_EQ(o.code, 2) << line << "\n" << o.err << o.out.substr(0, 300);
  expect_no_answer(o, args);
  EXPECT_TRUE(o.err.starts_with("ddpsim: ")) << line << "\n" << o.err;
  EXPECT_EQ(o.err.find('\n'), o.err.size() - 1) << line << "\n" << o.err;
  EXPECT_LT(o.err.size(), 1500u) << line;
  for (char c : o.err) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n') << line;
}

const Args kNoNumbers{"nan",   "-nan",   "NaN",   "inf",       "-inf", "Infinity",
                      "1e400", "-1e400", "0x10",  "1e",        ".",    "1,5",
                      "1_000", "5;",     "$(id)", "\x1b[31m5", "five"};

TEST(Hostile, NumbersInSettings) {
  for (const char* field :
       {"bucket_cap_mb", "first_bucket_bytes", "accumulation_steps", "ranks", "slow_ranks.0",
        "cluster.hosts", "cluster.link.bandwidth", "workload.batch", "profile.host.launch_ps"})
    for (const std::string& number : kNoNumbers)
      expect_refused(Args{"predict"} + kCpu + Args{"--set", std::string(field) + "=" + number});
}

TEST(Hostile, NumbersOfFlags) {
  for (const std::string& number : kNoNumbers) {
    expect_refused(Args{"predict"} + kCpu + Args{"--ranks", number});
    if (number != "1,5") expect_refused(Args{"tune"} + kCpu + Args{"--values", number});
    expect_refused(Args{"tune"} + kCpu + Args{"--epoch-samples", "5", "--deadline", number});
    expect_refused(Args{"tune"} + kCpu + Args{"--epoch-samples", number});
    expect_refused({"validate", "--tolerance", number});
    expect_refused({"compare", "a", "b", "--tolerance", number});
  }
}

TEST(Hostile, Axes) {
  const Args sweep = Args{"sweep"} + kCpu;
  for (const std::string& number : kNoNumbers)
    for (const char* form : {"1:@", "1:8:+@", "1:8:x@"}) {
      if (number == "1,5") continue;  // that is a list
      std::string values = form;
      values.replace(values.find('@'), 1, number);
      expect_refused(sweep + Args{"--axis", "cluster.hosts=" + values});
    }
  for (const char* shard : {"nan/2", "0/nan", "1/0", "-1/2", "0/-2", "2/2", "0/1/2", "/", "0/",
                            "/1", "0x0/1", "99999999999999999999/1"})
    expect_refused(sweep + Args{"--axis", "bucket_cap_mb=5", "--shard", shard});
  for (const char* axis : {"=", "=5", "bucket_cap_mb", "bucket_cap_mb=", "bucket_cap_mb=,",
                           "bucket_cap_mb=1:", "plan=null", "cluster=", "..=1", "cluster..hosts=1",
                           "workload=../../etc/passwd", "workload=/dev/zero"})
    expect_refused(sweep + Args{"--axis", axis});
}

// Messages of all hosts take turns on the cores of one machine: years of steps.
TEST(Hostile, MoreThanOneMachineCanBe) {
  for (const char* hosts : {"100000", "1000000"})
    expect_refused({"predict", "--workload", "mlp784-50-10-cpu", "--cluster", "testbed-torch",
                    "--set", std::string("cluster.hosts=") + hosts});
}

class HostileFiles : public InFolder {
 protected:
  static std::string repeated(const std::string& text, std::size_t n) {
    std::string out;
    out.reserve(text.size() * n);
    for (std::size_t i = 0; i < n; ++i) out += text;
    return out;
  }
};

TEST_F(HostileFiles, Contents) {
  struct Content {
    const char* name;
    std::string bytes;
  };
  const std::vector<Content> contents{
      {"empty", ""},
      {"space", " \n\t "},
      {"nul", std::string(100, '\0')},
      {"gzip-header", "\x1f\x8b"},
      {"bom", "\xef\xbb\xbf{}"},
      {"utf16", std::string("{\0}\0", 4)},
      {"null", "null"},
      {"number", "5"},
      {"text", "\"x\""},
      {"list", "[]"},
      {"object", "{}"},
      {"nan", "{\"schema\": NaN}"},
      {"comma", "{\"a\": 1,}"},
      {"deep", std::string(100'000, '[')},
      {"deep-objects", repeated("{\"a\":", 100'000)},
      {"schema-number", "{\"schema\": 1}"},
      {"schema-other", "{\"schema\": \"ddpsim.other/1\"}"},
      {"schema-escape", "{\"schema\": \"\\u001b[2J\"}"},
      {"twice", "{\"a\":1,\"a\":2}"},
      {"entities", "<!DOCTYPE x [<!ENTITY a \"aaaa\">]><system>&a;</system>"},
      {"xml-open", "<system><cpu>"},
      {"xml-deep", repeated("<system>", 5000)},
      {"csv-commas", std::string(100'000, ',')},
      {"html", "<html></html>"},
      {"elf", std::string("\x7f"
                          "ELF\x02\x01",
                          6)},
      {"latin1", "{\"name\": \"caf\xe9\"}"},
      {"half-surrogate", "{\"name\": \"\\ud800\"}"}};
  const std::vector<Args> readers{{"predict"},
                                  Args{"predict"} + kCpu + Args{"--plan"},
                                  Args{"predict"} + kCpu + Args{"--profile"},
                                  Args{"predict"} + kCpu + Args{"--layers"},
                                  {"predict", "--cluster", "ethernet-10g", "--workload"},
                                  {"predict", "--workload", "mlp784-50-10-cpu", "--cluster"},
                                  {"show", "run"},
                                  {"import", "nccl-tests"},
                                  {"import", "nccl-topo"},
                                  {"import", "nccl-graph"},
                                  {"merge"},
                                  {"validate", "--budget"}};
  for (const Content& c : contents) {
    std::string file = made(std::string(c.name) + ".json", c.bytes);
    for (const Args& reader : readers) {
      // An object without a knob is the plan of defaults.
      if (c.bytes.ends_with("{}") && reader.back() == "--plan") continue;
      expect_refused(reader + Args{file});
    }
  }
}

// A Run that is whole but for one value.
TEST_F(HostileFiles, Runs) {
  Json good = {{"schema", "ddpsim.run/1"},
               {"kind", "measured"},
               {"evidence", "system"},
               {"case", {{"key", "k"}}},
               {"origin",
                {{"version", "0"},
                 {"revision", ""},
                 {"date", "2026-01-01T00:00:00Z"},
                 {"argv", Json::array()},
                 {"cpu", "c"},
                 {"cores", 1},
                 {"kernel", "k"},
                 {"backend", "torch"},
                 {"hosts", "namespaces"},
                 {"compute", "real"},
                 {"profile", ""}}},
               {"clock", {{"domain", "CLOCK_MONOTONIC"}, {"offset_bound_ps", 0}}},
               {"quality",
                {{"verdict", "clean"},
                 {"spread", 0.01},
                 {"retransmits", 0},
                 {"load", 0.0},
                 {"reasons", Json::array()}}},
               {"skipped", Json::array()},
               {"samples", Json::array()},
               {"spans", Json::array()},
               {"tensors", Json::array()},
               {"steps", {{{"kind", "steady"}, {"duration_ps", 1'000'000}}}}};
  Json w = read_json("workloads/mlp784-50-10-cpu.json");
  Json arrival = Json::array(), ready = Json::array();
  for (const Json& t : w["tensors"]) {
    good["tensors"].push_back(t["name"]);
    arrival.push_back(arrival.size());
    ready.push_back(1000 * ready.size());
  }
  good["layers"] = {{"forward_ps", 500'000},
                    {"backward_ps", 900'000},
                    {"optimizer_ps", 10'000},
                    {"core_ps", 0},
                    {"ranks", 1},
                    {"arrival", arrival},
                    {"ready_ps", ready}};
  const Args layers = Args{"predict"} + kCpu + Args{"--ranks", "2", "--layers"};
  ASSERT_EQ(ddpsim(layers + Args{made("good.json", good.dump())}).code, 0)
      << ddpsim(layers + Args{at("good.json")}).err;
  ASSERT_EQ(ddpsim({"show", "run", at("good.json")}).code, 0);
  // Of no reader.
  for (auto [path, value] :
       std::vector<std::pair<const char*, Json>>{{"/quality/spread", 1e308},
                                                 {"/quality/spread", -1},
                                                 {"/quality/spread", "nan"},
                                                 {"/quality/load", 1e300},
                                                 {"/quality/retransmits", INT64_MIN},
                                                 {"/steps/0/duration_ps", INT64_MAX},
                                                 {"/steps/0/duration_ps", 0},
                                                 {"/steps/0/duration_ps", 1.5},
                                                 {"/steps/0/kind", "nan"},
                                                 {"/steps/0", nullptr},
                                                 {"/steps", "x"},
                                                 {"/origin/cores", -1},
                                                 {"/origin/cpu", "\x1b]0;title\x07"},
                                                 {"/origin/argv", {1}},
                                                 {"/case/key", std::string("a\0b", 3)},
                                                 {"/case/scenario", "../../../x"},
                                                 {"/clock/offset_bound_ps", 5},
                                                 {"/evidence", "belief"},
                                                 {"/kind", "imagined"},
                                                 {"/tensors", {1}},
                                                 {"/tensors", {"a\x1b"}},
                                                 {"/layers/forward_ps", -1},
                                                 {"/layers/ranks", 0},
                                                 {"/layers/ranks", 1e9},
                                                 {"/layers/arrival", {9'999'999}},
                                                 {"/layers/arrival", {-1}},
                                                 {"/layers/ready_ps", Json::array()},
                                                 {"/layers/core_ps", "5"},
                                                 {"/layers", Json::array()},
                                                 {"/samples", {{{"op", "x"}}}},
                                                 {"/spans", {Json::object()}}}) {
    Json bad = good;
    bad[Json::json_pointer(path)] = value;
    std::string file = made("bad.json", bad.dump());
    SCOPED_TRACE(path);
    expect_refused({"show", "run", file});
    expect_refused(layers + Args{file});
    expect_refused({"compare", file, file});
  }
  // A Run that could be, with a layer profile that is none of a step.
  Json falling = ready;
  falling[0] = 800'000;
  Json twice = arrival;
  twice[1] = twice[0];
  for (auto [path, value] : std::vector<std::pair<const char*, Json>>{
           {"/layers/forward_ps", 1'000'000'000'000'000'000},
           {"/layers/backward_ps", 1'000'000'000'000'000'000},
           {"/layers/optimizer_ps", 1'000'000'000'000'000'000},
           {"/layers/backward_ps", 0},
           {"/layers/backward_ps", 10},
           {"/layers/ready_ps", falling},
           {"/layers/arrival", twice},
           {"/tensors", {"other"}}}) {
    Json bad = good;
    bad[Json::json_pointer(path)] = value;
    SCOPED_TRACE(path);
    std::string file = made("bad.json", bad.dump());
    expect_refused(layers + Args{file});
    EXPECT_NE(ddpsim(layers + Args{file}).err.find("bad.json"), std::string::npos)
        << "names the file";
  }
}

// Large, and none of it quadratic.
TEST_F(HostileFiles, Large) {
  auto soon = [&](const Args& args, int code) {
    const double from = cpu_seconds();
    Outcome o = ddpsim(args);
    EXPECT_LT(cpu_seconds() - from, 20) << args.back();
    EXPECT_EQ(o.code, code) << args.back() << o.err.substr(0, 300);
  };
  std::string log =
      "# nThread 1 nGpus 1 minBytes 4 maxBytes 4 step: 2(factor)\n#  Rank  0 Group  0 Pid 1 on "
      "host device  0 [0x00] GPU\n#  Rank  1 Group  0 Pid 2 on host device  1 [0x00] GPU\n";
  for (int i = 1; i <= 60'000; ++i) {
    char speed[32];
    std::snprintf(speed, sizeof speed, " 100.00 %.2f %.2f 0", 4.0 * i / 1e5, 4.0 * i / 1e5);
    log += std::to_string(4 * i) + " " + std::to_string(i) + " float sum -1" + speed + speed + "\n";
  }
  made("log.txt", log);
  soon({"import", "nccl-tests", at("log.txt"), "--op", "all_reduce", "--out", at("run.json")}, 0);
  std::string groups = "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,latency_us\n";
  for (int i = 1; i <= 60'000; ++i)
    groups += "allreduce,1024,ring,simple,2,1," + std::to_string(i) + ",5.0\n";
  made("groups.csv", groups);
  soon({"export", "nccl-tuner", "--from", at("groups.csv"), "--out", at("tuner.conf")}, 0);
  std::string forced =
      "size_bytes,count,type,redop,root,oop_time_us,oop_algbw_GBs,oop_busbw_GBs,oop_err,ip_time_us,"
      "ip_algbw_GBs,ip_busbw_GBs,ip_err,forced_kind,forced_value\n";
  for (int i = 1; i <= 60'000; ++i)
    forced += "4,1,float,sum,-1,100,0,0,0,100,0,0,0,ALGO,v" + std::to_string(i) + "\n";
  made("forced.csv", forced);
  soon({"import", "nccl-tests", at("forced.csv")}, 2);
  std::string steps =
      R"({"schema":"ddpsim.run/1","kind":"predicted","case":{"key":"k"},"origin":{"simulator":"s",
        "profile":"p","fidelity":"f"},"clock":{"domain":"virtual","offset_bound_ps":0},"spans":[],
          "steps":[)";
  for (int i = 0; i < 500'000; ++i) steps += R"({"kind":"steady","duration_ps":1000},)";
  steps.back() = ']';
  made("steps.json", steps + "}");
  soon({"show", "run", at("steps.json")}, 0);
  made("nodes.xml", "<system>" + repeated("<a/>", 10'000'000) + "</system>");
  soon({"import", "nccl-topo", at("nodes.xml")}, 2);
  io::write_file(at("bomb.json.gz"), "[" + repeated("0,", 35'000'000) + "0]");
  soon({"show", "run", at("bomb.json.gz")}, 2);
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(used.ru_maxrss, 1'000'000) << "KiB";
#endif
}

}  // namespace
}  // namespace ddpsim::test
