// A Program on a GPU, as far as no GPU is needed: order of what is issued, statistics of readings,
// NCCL's log, the fit of kernels.
#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>

#include <gtest/gtest.h>

#include "calib/fit/kernels.h"
#include "calib/fit/shapes.h"
#include "calib/gpu/nccl_log.h"
#include "calib/gpu/play.h"
#include "calib/gpu/samples.h"
#include "sim/cost/roofline.h"
#include "sim/model/gpu_name.h"
#include "sim/play/simulate.h"
#include "sim/systems/averaging/plan.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/ddp/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::test {
namespace {

namespace gpu = calib::gpu;

// ---- a device that writes down what it is told, and plays it on a clock of its own

class FakeDevice : public gpu::Device {
 public:
  struct Call {
    enum Kind { Launch, Communicate, Wait, Synchronize } kind;
    gpu::Stream stream = gpu::Stream::Compute;
    gpu::Work work;
    gpu::Message message;
    Event event = -1;
    std::int64_t begin_ns = 0;  // of work
    std::int64_t end_ns = 0;
  };
  std::vector<Call> calls;
  std::int64_t communicate_ns = 700'000;

  std::int64_t now_ns() override { return host_; }
  void host_until(std::int64_t ns) override { host_ = std::max(host_, ns); }
  void launch(gpu::Stream s, const gpu::Work& w) override {
    std::int64_t ns = w.kind == gpu::Work::Kind::Busy ? w.ns : w.traffic / 1000;
    enqueue({Call::Launch, s, w, {}, -1, 0, 0}, ns);
  }
  void communicate(gpu::Stream s, const gpu::Message& m) override {
    enqueue({Call::Communicate, s, {}, m, -1, 0, 0}, communicate_ns);
  }
  Event record(gpu::Stream s, bool timed) override {
    moments_.push_back(std::max(tail(s), host_));
    timed_.push_back(timed);
    return static_cast<Event>(moments_.size()) - 1;
  }
  void wait(gpu::Stream s, Event e) override {
    calls.push_back({Call::Wait, s, {}, {}, e, 0, 0});
    tail(s) = std::max(tail(s), moments_[static_cast<std::size_t>(e)]);
  }
  void synchronize(Event e) override {
    calls.push_back({Call::Synchronize, gpu::Stream::Compute, {}, {}, e, 0, 0});
    host_ = std::max(host_, moments_[static_cast<std::size_t>(e)]);
  }
  void synchronize_all() override {
    for (std::int64_t t : tail_) host_ = std::max(host_, t);
  }
  std::int64_t moment_ns(Event e) override {
    EXPECT_TRUE(timed_[static_cast<std::size_t>(e)]) << "this event has no moment";
    return moments_[static_cast<std::size_t>(e)];
  }

 private:
  std::int64_t& tail(gpu::Stream s) { return tail_[static_cast<std::size_t>(s)]; }
  void enqueue(Call c, std::int64_t ns) {
    c.begin_ns = std::max(tail(c.stream), host_);
    c.end_ns = tail(c.stream) = c.begin_ns + ns;
    calls.push_back(c);
  }
  std::int64_t host_ = 5'000;  // a clock does not begin at 0
  std::int64_t tail_[gpu::kStreams] = {};
  std::vector<std::int64_t> moments_;
  std::vector<bool> timed_;
};

struct Case {
  const char* name;
  Plan plan;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

Plan plan_of(System system, auto change) {
  Plan p;
  p.system = system;
  ddp_of(p).bucket_cap_mb = 2;
  change(p);
  return p;
}

std::vector<Case> plans() {
  return {{"ddp", plan_of(systems::kDdpSystem, [](Plan&) {})},
          {"view",
           plan_of(systems::kDdpSystem, [](Plan& p) { ddp_of(p).gradient_as_bucket_view = true; })},
          {"fp16", plan_of(systems::kDdpSystem,
                           [](Plan& p) { ddp_of(p).comm_hook = CommHook::Fp16Compress; })},
          {"hook", plan_of(systems::kDdpSystem,
                           [](Plan& p) { ddp_of(p).comm_hook = CommHook::AllReduce; })},
          {"unused",
           plan_of(systems::kDdpSystem, [](Plan& p) { ddp_of(p).find_unused_parameters = true; })},
          {"static", plan_of(systems::kDdpSystem, [](Plan& p) { ddp_of(p).static_graph = true; })},
          {"accumulate", plan_of(systems::kDdpSystem, [](Plan& p) { p.accumulation_steps = 3; })},
          {"averaging", plan_of(systems::kAveragingSystem, [](Plan&) {})},
          {"async",
           plan_of(systems::kAveragingSystem, [](Plan& p) { averaging_of(p).async_op = true; })},
          {"flat", plan_of(systems::kAveragingSystem,
                           [](Plan& p) { averaging_of(p).granularity = Granularity::Flat; })}};
}

struct Question {
  Workload w = workload("resnet18");
  Cluster c = cluster("hgx-h100");
  Profile p = profile("h100-sxm.datasheet");
  Program program;
  gpu::Part part;
  explicit Question(const Plan& plan) {
    StepTimes times = predict::step_times(w, p, Level::Mid);
    program = systems::lower({w, times, p.kind, 8}, plan);
    part = gpu::make_part(program, p, 8);
  }
};

class GpuPlay : public testing::TestWithParam<Case> {};

// Operations of the last step on each lane, in the order of their begin.
std::map<Lane, std::vector<std::string>> virtual_order(const Question& q) {
  topology::Fabric fabric(q.c);
  std::vector<DeviceId> devices{0, 1, 2, 3, 4, 5, 6, 7};
  collective::Communicator comm = collective::make_communicator(fabric, devices, Backend::Nccl);
  Scenario s;
  s.ranks = 8;
  auto classes = predict::fold_ranks(s, true);
  predict::Simulation sim = predict::simulate(q.program, comm, q.p, classes, {});
  EXPECT_TRUE(sim.complete);
  std::stable_sort(sim.spans.begin(), sim.spans.end(),
                   [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::map<Lane, std::vector<std::string>> out;
  for (const Span& span : sim.spans) out[span.lane].push_back(span.op);
  return out;
}

TEST_P(GpuPlay, KeepsTheOrderOfTheVirtualClockOnEachLane) {
  Question q(GetParam().plan);
  FakeDevice device;
  gpu::Played played = gpu::play(q.part, {2, 1, 1}, device);
  std::map<Lane, std::vector<std::string>> real;
  for (const gpu::PlayedOp& o : played.ops)
    real[q.program.steady.ops[o.op].lane].push_back(name_of(q.program, q.program.steady, o.op));
  auto simulated = virtual_order(q);
  for (Lane lane : {Lane::Host, Lane::Compute, Lane::Comm, Lane::Callback})
    EXPECT_EQ(real[lane], simulated[lane]) << name_of(lane, {});
  EXPECT_FALSE(real[Lane::Compute].empty());
}

TEST_P(GpuPlay, NothingBeginsBeforeWhatItWaitsFor) {
  Question q(GetParam().plan);
  FakeDevice device;
  gpu::Played played = gpu::play(q.part, {1, 1, 1}, device);
  std::map<std::uint32_t, std::int64_t> end;
  for (const gpu::PlayedOp& o : played.ops) {
    if (q.program.steady.ops[o.op].lane == Lane::Host) continue;
    for (std::uint32_t d : deps_of(q.program.steady, o.op))
      if (q.program.steady.ops[d].lane != Lane::Host) {
        ASSERT_TRUE(end.count(d)) << "issued before what it waits for";
        EXPECT_GE(o.begin_ns, end[d]) << name_of(q.program, q.program.steady, o.op);
      }
    EXPECT_LE(o.ready_ns, o.begin_ns) << name_of(q.program, q.program.steady, o.op);
    end[o.op] = o.end_ns;
  }
}

TEST_P(GpuPlay, MovesTheBytesOfTheProgram) {
  Question q(GetParam().plan);
  FakeDevice device;
  gpu::play(q.part, {1, 0, 1}, device);
  std::int64_t program = 0;
  for (const Op& op : q.program.steady.ops)
    if (is_collective(op.kind)) program += op.bytes;
  for (const StepProgram& s : q.program.warmup)
    for (const Op& op : s.ops)
      if (is_collective(op.kind)) program += op.bytes;
  std::int64_t moved = 0;
  for (const FakeDevice::Call& c : device.calls)
    if (c.kind == FakeDevice::Call::Communicate) {
      std::int64_t bytes = c.message.elements * element_size(c.message.type);
      moved += bytes;
      EXPECT_GE(c.message.offset, 0);
      EXPECT_LE(c.message.offset + bytes,
                c.message.gradients ? q.part.gradient_bytes : q.part.other_bytes);
    }
  EXPECT_EQ(moved, program);
}

INSTANTIATE_TEST_SUITE_P(Plans, GpuPlay, testing::ValuesIn(plans()),
                         [](const auto& c) { return std::string(c.param.name); });

TEST(GpuPlayer, TheHostRunsAheadAndStepsAreTheDevices) {
  Plan plan = plan_of(systems::kDdpSystem, [](Plan& p) { ddp_of(p).broadcast_buffers = false; });
  Question q(plan);
  FakeDevice device;
  gpu::Played played = gpu::play(q.part, {4, 2, 1}, device);
  ASSERT_EQ(played.steps.size(), q.program.warmup.size() + 6);
  EXPECT_FALSE(played.steps[q.program.warmup.size() + 3].recorded);
  EXPECT_TRUE(played.steps.back().recorded);
  for (std::size_t k = 1; k < played.steps.size(); ++k)
    EXPECT_GT(played.steps[k].end_ns, played.steps[k - 1].end_ns);
  EXPECT_EQ(played.start_ns + played.host_ns, played.steps.back().end_ns)
      << "the last thing that ends is the last step";
}

TEST(GpuPlayer, ASlowRankComputesLongerAndMovesAsMuch) {
  Question q(plan_of(systems::kDdpSystem, [](Plan&) {}));
  auto busy = [&](double factor) {
    FakeDevice device;
    gpu::play(q.part, {1, 0, factor}, device);
    std::pair<double, double> out;
    for (const FakeDevice::Call& c : device.calls)
      if (c.kind == FakeDevice::Call::Launch)
        (c.work.kind == gpu::Work::Kind::Busy ? out.first : out.second) +=
            static_cast<double>(c.work.ns + c.work.traffic);
    return out;
  };
  EXPECT_NEAR(busy(1.5).first / busy(1).first, 1.5, 1e-3);
  EXPECT_EQ(busy(1.5).second, busy(1).second);
}

TEST(GpuPlayer, CopyInWritesItsPlaceInTheBucketDividedByTheRanks) {
  Question q(plan_of(systems::kDdpSystem, [](Plan&) {}));
  FakeDevice device;
  gpu::play(q.part, {1, 0, 1}, device);
  std::vector<std::pair<std::int64_t, std::int64_t>> written;
  for (const FakeDevice::Call& c : device.calls)
    if (c.kind == FakeDevice::Call::Launch && c.work.offset >= 0) {
      EXPECT_DOUBLE_EQ(c.work.factor, 1.0 / 8);
      written.emplace_back(c.work.offset, c.work.offset + c.work.traffic / 2);
    }
  // Each step writes all of the gradients, nothing twice.
  std::size_t steps = q.program.warmup.size() + 1;
  ASSERT_EQ(written.size(), steps * q.w.tensors.size());
  std::vector<std::pair<std::int64_t, std::int64_t>> last(
      written.end() - static_cast<std::ptrdiff_t>(q.w.tensors.size()), written.end());
  std::sort(last.begin(), last.end());
  for (std::size_t i = 1; i < last.size(); ++i) EXPECT_EQ(last[i].first, last[i - 1].second);
  EXPECT_EQ(last.front().first, 0);
  EXPECT_EQ(last.back().second, q.part.gradient_bytes);
}

TEST(GpuPlayer, RefusesAProgramOfCpus) {
  Workload w = workload("resnet18-cpu");
  Program p = systems::lower({w, w.times, DeviceKind::Cpu, 2}, Plan{});
  EXPECT_THROW(gpu::make_part(p, profile("cpu-generic.datasheet"), 2), std::runtime_error);
}

// ---- readings

std::vector<gpu::Reading> readings(std::initializer_list<std::tuple<int, int, bool>> list) {
  std::vector<gpu::Reading> out;
  for (auto [us, mhz, throttled] : list)
    out.push_back({Duration{us * 1'000'000ll}, mhz, throttled});
  return out;
}

TEST(GpuSamples, DiscardsWhatWasThrottledOrAtALowClock) {
  gpu::Kept k = gpu::keep(readings({{20, 900, false},
                                    {11, 1900, false},
                                    {10, 1980, false},
                                    {14, 1980, true},
                                    {10, 1980, false},
                                    {10, 1960, false},
                                    {10, 1980, false}}));
  EXPECT_EQ(k.discarded, 3);
  EXPECT_EQ(k.durations,
            (std::vector<Duration>{{10'000'000}, {10'000'000}, {10'000'000}, {10'000'000}}));
  EXPECT_EQ(k.reason, "1 throttled, 2 at a low clock");
}
TEST(GpuSamples, KeepsAllWhereTheSlowClockIsTheRule) {
  gpu::Kept k = gpu::keep(
      readings({{14, 1500, true}, {14, 1500, true}, {14, 1500, true}, {10, 1980, false}}));
  EXPECT_EQ(k.durations.size(), 4u);
  EXPECT_EQ(k.discarded, 0);
  EXPECT_NE(k.reason.find("all were kept"), std::string::npos);
}
TEST(GpuSamples, AnUnknownClockIsNotALowOne) {
  gpu::Kept k = gpu::keep(readings({{14, 0, false}, {14, 0, false}, {10, 1980, false}}));
  EXPECT_EQ(k.durations.size(), 3u);
  EXPECT_TRUE(k.reason.empty());
}
TEST(GpuSamples, AreEnoughWhenTheMedianIsKnown) {
  std::vector<Duration> same(10, Duration{1000});
  EXPECT_TRUE(gpu::settled(same, 0.001));
  EXPECT_FALSE(gpu::settled(std::span(same).first(9), 0.001)) << "too few to say";
  std::vector<Duration> wild;
  for (int i = 0; i < 30; ++i) wild.push_back({1000 + 40 * (i % 10)});
  EXPECT_FALSE(gpu::settled(wild, 0.01));
  EXPECT_TRUE(gpu::settled(wild, 0.2));
  for (int i = 0; i < 3000; ++i) wild.push_back({1000 + 40 * (i % 10)});
  EXPECT_TRUE(gpu::settled(wild, 0.02)) << "more readings know the median better";
}

// ---- NCCL's log: lines as NCCL 2.20 to 2.28 write them

TEST(NcclLog, SaysVersionRanksWaysAndChoices) {
  gpu::NcclLog log = gpu::parse_nccl_log(
      "NCCL version 2.28.9+cuda13.0\n"
      "vm-host40:34002:34044 [1] NCCL INFO comm 0x2725f60 rank 1 nRanks 4 nNodes 2 localRanks 2 "
      "localRank 1 MNNVL 0\n"
      "vm-host40:34001:34043 [0] NCCL INFO Channel 00/04 : 0 3 2 1\n"
      "vm-host40:34001:34043 [0] NCCL INFO Channel 03/04 : 0 1 2 3\r\n"
      "\x1b[32mcn13:2619530:2619530 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via "
      "P2P/CUMEM\x1b[0m\n"
      "host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
      "host:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/Socket/1\n"
      "host:1:2 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}\n"
      "host:1:2 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}\n"
      "host:1:2 [0] NCCL INFO AllGather:    16 Bytes -> Algo RING  proto LL     "
      "channel{Lo..Hi}={0..0}\n"
      "host:1:2 [0] NCCL INFO AllReduce: 268435456 Bytes -> Algo NVLS proto SIMPLE "
      "channel{Lo..Hi}={0..15}\n"
      "2: node-0:309:309 [0] NCCL INFO AllGather: 37756928 Bytes -> Algo 1 proto 2 time "
      "2860.208008\n"
      "host:1:2 [0] NCCL INFO 1048576 Bytes -> Algo 0 proto 1 time 97.5\n"
      "host:1:2 [0] init.cc:1 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA "
      "device 1000\n"
      "some other program's line\n");
  EXPECT_EQ(log.version, "2.28.9+cuda13.0");
  EXPECT_EQ(log.ranks, 4);
  EXPECT_EQ(log.nodes, 2);
  EXPECT_EQ(log.local_ranks, 2);
  EXPECT_EQ(log.channels, 4);
  EXPECT_EQ(log.via, (std::map<std::string, int>{{"NET/Socket", 2}, {"P2P/CUMEM", 1}}));
  ASSERT_EQ(log.choices.size(), 5u) << "a line that is repeated counts once";
  EXPECT_EQ(log.choices[0], (gpu::NcclChoice{"AllReduce", 4096, "Tree", "LL", 2, 0}));
  EXPECT_EQ(log.choices[1], (gpu::NcclChoice{"AllGather", 16, "Ring", "LL", 1, 0}));
  EXPECT_EQ(log.choices[2], (gpu::NcclChoice{"AllReduce", 268435456, "NVLS", "Simple", 16, 0}));
  EXPECT_EQ(log.choices[3].algorithm, "Ring");
  EXPECT_EQ(log.choices[3].protocol, "Simple");
  EXPECT_DOUBLE_EQ(log.choices[3].estimate_us, 2860.208008);
  EXPECT_EQ(log.choices[4], (gpu::NcclChoice{"", 1048576, "Tree", "LL128", 0, 97.5}));
  ASSERT_EQ(log.warnings.size(), 1u);
  EXPECT_TRUE(log.warnings[0].starts_with("Duplicate GPU detected"));
}

TEST(NcclLog, NothingComesFromNothing) {
  for (const char* text :
       {"", "\n\n", "Bytes -> Algo", " Bytes -> Algo RING proto", "x Bytes -> Algo RING proto LL",
        "8 Bytes -> Algo BANANA proto LL channel{Lo..Hi}={0..1}", "8 Bytes -> Algo 9 proto LL",
        "nRanks", " nRanks x nNodes y", "Channel via ->", "\x1b[", "NCCL version"}) {
    gpu::NcclLog log = gpu::parse_nccl_log(text);
    EXPECT_TRUE(log.choices.empty()) << text;
    EXPECT_EQ(log.ranks, 0) << text;
  }
}

// ---- the fit of kernels, on data with known answers

struct Gpu {
  double peak[4] = {60e12, 400e12, 800e12, 780e12};  // what products of great size reach
  double bandwidth = 4e12;
  double floor_us = 2.5;
  double overhead_us = 6;  // of every product: what short ones feel
};

std::vector<Sample> samples_of(const Gpu& g) {
  std::vector<Sample> out;
  auto add = [&](const std::string& op, std::map<std::string, std::int64_t> parameters,
                 double seconds) {
    out.push_back(
        {op, std::move(parameters), {Duration{static_cast<std::int64_t>(seconds * 1e12)}}});
  };
  for (std::int64_t n : calib::memory_elements())
    for (std::int64_t per : {4, 8, 12, 28})
      add("move", {{"kernel", per}, {"elements", n}, {"traffic", per * n}},
          std::max(g.floor_us * 1e-6, 1e-6 + static_cast<double>(per * n) / g.bandwidth));
  for (Precision p : {Precision::Fp32, Precision::Tf32, Precision::Bf16, Precision::Fp16}) {
    double peak = g.peak[static_cast<int>(p)];
    for (const calib::Gemm& s : calib::gemm_shapes())
      add("gemm", calib::parameters(s, p),
          std::max({g.floor_us * 1e-6, calib::bytes(s, p) / g.bandwidth,
                    g.overhead_us * 1e-6 + calib::flops(s) / peak}));
    if (p != Precision::Fp16)
      for (const calib::Conv& s : calib::conv_shapes())
        add("conv", calib::parameters(s, calib::Pass::Forward, p),
            std::max({g.floor_us * 1e-6, calib::bytes(s, p) / g.bandwidth,
                      g.overhead_us * 1e-6 + calib::flops(s) / (0.7 * peak)}));
  }
  add("launch", {}, 2.2e-6);
  for (int victim : {0, 1, 2})
    for (int blocks : {0, 4, 16, 24, 32}) {
      double lost = blocks == 0                    ? 0
                    : blocks >= 16 && blocks <= 24 ? (victim == 2 ? 0.3 : 0.15)
                                                   : 0.6;
      add("interference",
          {{"victim", victim}, {"blocks", blocks}, {"threads", 512}, {"bytes_per_us", 0}},
          1e-3 / (1 - lost));
    }
  return out;
}

ddpsim::Run kernels_of(const Gpu& g) {
  ddpsim::Run r;
  r.kind = RunKind::Measured;
  r.evidence = EvidenceClass::Kernel;
  r.samples = samples_of(g);
  return r;
}

TEST(FitOfKernels, FindsWhatTheSamplesWereMadeFrom) {
  Gpu g;
  ddpsim::Run run = kernels_of(g);
  calib::KernelFit f = calib::fit_kernels(profile("h200-sxm.datasheet"), "made-up", {&run});
  const Profile& p = f.profile;
  EXPECT_EQ(p.name, "made-up");
  EXPECT_EQ(p.compute.basis, Evidence::Measured);
  EXPECT_EQ(p.memory.basis, Evidence::Measured);
  EXPECT_EQ(p.host.basis, Evidence::Datasheet)
      << "a launch alone does not make the host's section measured";
  EXPECT_EQ(p.host.launch, profile("h200-sxm.datasheet").host.launch)
      << "CUDA's launch is no framework's";
  for (Precision each : kPrecisions.names())
    EXPECT_NEAR(p.compute.peak_flops[each] / g.peak[static_cast<int>(each)], 1, 0.04)
        << name_of(each);
  EXPECT_NEAR(p.memory.bandwidth_bytes_per_s / g.bandwidth, 1, 0.02);
  EXPECT_EQ(p.memory.kernel, Duration{2'500'000});
  EXPECT_NEAR(p.compute.efficiency[1].mid, 0.7, 0.03)
      << "convolutions reach 70 % of what products do";
  EXPECT_FALSE(p.compute.stretch[0].empty());
  EXPECT_EQ(p.interference_basis, Evidence::Measured);
  EXPECT_NEAR(p.sm_hold.mid, 0.15, 1e-3);
  ASSERT_TRUE(p.memory_hold.has_value());
  EXPECT_NEAR(p.memory_hold->mid, 0.30, 1e-3);
  ASSERT_FALSE(p.kernels.empty());
  for (const KernelResidual& r : p.kernels) {
    EXPECT_GT(r.points, 0) << r.kernel;
    EXPECT_LE(r.median_error, r.held_out ? 0.10 : 0.08)
        << r.kernel << (r.held_out ? " held out" : "");
    EXPECT_LT(r.least, r.most);
  }
  EXPECT_TRUE(std::any_of(p.kernels.begin(), p.kernels.end(), [](const KernelResidual& r) {
    return r.held_out && r.kernel == "gemm bf16";
  }));
  // A Profile that is written can be read, with all of it.
  io::Json j = io::parse_json(io::write_profile(p, {}).dump(), "p");
  Profile again = io::read_profile(j, "p");
  EXPECT_EQ(again.compute.stretch[0].size(), p.compute.stretch[0].size());
  EXPECT_EQ(again.memory.stretch.size(), p.memory.stretch.size());
  EXPECT_EQ(again.kernels.size(), p.kernels.size());
  EXPECT_EQ(io::write_profile(again, {}).dump(), io::write_profile(p, {}).dump());
}

TEST(FitOfKernels, HeldOutShapesAreNotSeen) {
  ddpsim::Run run = kernels_of({});
  calib::KernelFit a = calib::fit_kernels(profile("h200-sxm.datasheet"), "x", {&run});
  a.profile.kernels.clear();
  for (double times : {3.0, 1 / 3.0}) {
    ddpsim::Run other = run;
    for (Sample& s : other.samples)
      if (s.op != "launch" && s.op != "interference" && calib::held_out(s.op, s.parameters))
        s.durations = {scale(s.durations[0], times)};
    calib::KernelFit b = calib::fit_kernels(profile("h200-sxm.datasheet"), "x", {&other});
    double worse = 0;
    for (const KernelResidual& r : b.profile.kernels)
      if (r.held_out) worse = std::max(worse, r.median_error);
    EXPECT_GT(worse, 0.5) << "their residuals say so";
    b.profile.kernels.clear();
    EXPECT_EQ(io::write_profile(a.profile, {}).dump(1), io::write_profile(b.profile, {}).dump(1));
  }
}

// Winograd's and FFT's convolutions do fewer operations than are counted.
TEST(FitOfKernels, ThePeakIsOfProductsHoweverFastConvolutionsAre) {
  ddpsim::Run run = kernels_of({});
  ddpsim::Run quick = run;
  int convolutions = 0;
  for (Sample& s : quick.samples)
    if (s.op == "conv") {
      for (Duration& d : s.durations) d.ps = std::max<std::int64_t>(1, d.ps / 10);
      ++convolutions;
    }
  ASSERT_GT(convolutions, 0);
  calib::KernelFit a = calib::fit_kernels(profile("h200-sxm.datasheet"), "x", {&run});
  calib::KernelFit b = calib::fit_kernels(profile("h200-sxm.datasheet"), "x", {&quick});
  EXPECT_EQ(a.profile.compute.peak_flops, b.profile.compute.peak_flops);
}

// PyTorch takes what cuDNN's heuristics name unless it is told to try: so does the fit. Runs from
// before samples said their mode were by heuristics.
TEST(FitOfKernels, ConvolutionsOfBenchmarkModeAreToldAndNotFitted) {
  ddpsim::Run old = kernels_of({});
  ddpsim::Run both = old;
  std::vector<Sample> more;
  for (Sample& s : both.samples)
    if (s.op == "conv") {
      s.parameters["mode"] = static_cast<std::int64_t>(calib::ConvMode::Heuristics);
      more.push_back(s);
      more.back().parameters["mode"] = static_cast<std::int64_t>(calib::ConvMode::Benchmark);
      for (Duration& d : more.back().durations) d.ps = std::max<std::int64_t>(1, d.ps / 2);
      EXPECT_EQ(calib::held_out(s.op, s.parameters), calib::held_out(s.op, more.back().parameters));
    }
  ASSERT_FALSE(more.empty());
  both.samples.insert(both.samples.end(), more.begin(), more.end());
  for (ddpsim::Run* run : {&old, &both}) run->origin.gpu = "a GPU (132 SMs)";
  calib::KernelFit a = calib::fit_kernels(profile("h100-sxm.datasheet"), "x", {&old});
  calib::KernelFit b = calib::fit_kernels(profile("h100-sxm.datasheet"), "x", {&both});
  auto said = [](const std::string& text) {
    return text.find("heuristics mode, PyTorch's default") != std::string::npos;
  };
  EXPECT_FALSE(said(a.profile.compute.source));
  EXPECT_TRUE(said(b.profile.compute.source)) << b.profile.compute.source;
  EXPECT_TRUE(std::any_of(b.notes.begin(), b.notes.end(), [&](const std::string& n) {
    return said(n) && n.find("takes 0.50 of its time") != std::string::npos;
  }));
  ASSERT_TRUE(b.profile.costs.has_value());
  b.profile.compute.source = a.profile.compute.source;
  EXPECT_EQ(io::write_profile(a.profile, {}).dump(), io::write_profile(b.profile, {}).dump());
  both.samples.back().parameters["mode"] = 2;
  EXPECT_THROW(calib::fit_kernels(profile("h100-sxm.datasheet"), "x", {&both}), InputError);
}

TEST(FitOfKernels, WhatWasNotMeasuredStaysTheBases) {
  ddpsim::Run run = kernels_of({});
  std::erase_if(run.samples, [](const Sample& s) { return s.op != "move"; });
  Profile base = profile("h200-sxm.datasheet");
  calib::KernelFit f = calib::fit_kernels(base, "x", {&run});
  EXPECT_EQ(f.profile.compute.basis, Evidence::Datasheet);
  EXPECT_EQ(f.profile.compute.peak_flops, base.compute.peak_flops);
  EXPECT_EQ(f.profile.memory.basis, Evidence::Measured);
  EXPECT_FALSE(f.profile.measured());
  ddpsim::Run empty = run;
  empty.samples.clear();
  EXPECT_THROW(calib::fit_kernels(base, "x", {&empty}), InputError);
}

TEST(Shapes, AThirdIsHeldOut) {
  int held = 0;
  int all = 0;
  for (const calib::Gemm& s : calib::gemm_shapes())
    for (int p = 0; p < 4; ++p)
      held += calib::held_out("gemm", calib::parameters(s, static_cast<Precision>(p))), ++all;
  EXPECT_NEAR(static_cast<double>(held) / all, 1.0 / 3, 0.08);
  // What is said of a reading is no part of the shape.
  for (const calib::Gemm& s : calib::gemm_shapes()) {
    auto shape = calib::parameters(s, Precision::Bf16);
    auto said = shape;
    said["sm_mhz"] = 1980;
    said["power_mw"] = 700'000;
    EXPECT_EQ(calib::held_out("gemm", shape), calib::held_out("gemm", said));
  }
  calib::Conv c{64, 3, 224, 64, 7, 2};
  EXPECT_EQ(c.out_size(), 112);
  EXPECT_DOUBLE_EQ(calib::flops(c), 2.0 * 64 * 3 * 64 * 49 * 112 * 112);
}

// ---- stretch in prices

TEST(Roofline, ShortKernelsAreStretched) {
  Workload w = workload("resnet18");
  Profile p = profile("h100-sxm.datasheet");
  p.costs.reset();  // layers by their operations and bytes alone
  Duration plain = predict::step_times(w, p, Level::Mid).forward;
  p.compute.stretch[1] = {{1'000'000, 3},
                          {2'000'000'000, 1}};  // convolutions of a microsecond take three
  Duration stretched = predict::step_times(w, p, Level::Mid).forward;
  EXPECT_GT(stretched.ps, plain.ps);
  EXPECT_LT(stretched.ps, 3 * plain.ps);
  p.compute.stretch[1] = {{1, 1}};
  EXPECT_EQ(predict::step_times(w, p, Level::Mid).forward, plain);
}

// Another product, PCIe and SXM, or an A100 of another size: the same kernels take other times.
TEST(GpuNames, DifferWhereKernelsTakeOtherTimes) {
  for (auto [a, b, differ] :
       {std::tuple{"NVIDIA H100 80GB HBM3 (132 SMs)", "H100 SXM5 80GB", false},
        {"NVIDIA H100 80GB HBM3", "NVIDIA H200", true},
        {"NVIDIA H100 PCIe", "H100 SXM5 80GB", true},
        {"NVIDIA A100-SXM4-40GB", "A100 SXM4 80GB", true},
        {"NVIDIA GeForce RTX 4090 (128 SMs)", "GeForce RTX 3090", true},
        {"NVIDIA GeForce RTX 4090", "NVIDIA H100 PCIe", true},
        {"RTX 4090, 24 GB", "NVIDIA GeForce RTX 4090", false},
        {"a GPU", "NVIDIA H200", false}}) {
    EXPECT_EQ(names_differ(a, b), differ) << a << ", " << b;
    EXPECT_EQ(names_differ(b, a), differ) << a << ", " << b;
  }
}

}  // namespace
}  // namespace ddpsim::test
