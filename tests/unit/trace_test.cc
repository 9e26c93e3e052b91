// Traces of PyTorch's profiler: how they are read, and what an iteration of known times says.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/analysis/explain_traces.h"
#include "sim/analysis/traced_workload.h"
#include "sim/io/files.h"
#include "sim/io/kineto.h"
#include "sim/systems/ddp/plan.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using analysis::Trace;
using analysis::TracedRanks;
using analysis::TracedStep;

// A trace that is written event by event; times in microseconds.
class Written {
 public:
  void event(const std::string& category, const std::string& name, int thread, double at,
             double took, const std::string& args = "") {
    text_ += std::string(text_.empty() ? "" : ",") + "\n{\"ph\":\"X\",\"cat\":\"" + category +
             "\",\"name\":\"" + name + "\",\"pid\":1,\"tid\":" + std::to_string(thread) +
             ",\"ts\":" + number(base_ + at) + ",\"dur\":" + number(took) + ",\"args\":{" + args +
             "}}";
  }
  void op(const std::string& name, double at, double took, const std::string& args = "") {
    event("cpu_op", name, 1, at, took, args);
  }
  void mark(const std::string& name, double at, double took) {
    event("user_annotation", name, 1, at, took);
  }
  // A kernel that the host enqueues at `launched`.
  void kernel(double launched, double at, double took, const std::string& name = "gemm",
              int stream = 7) {
    std::string c = "\"correlation\":" + std::to_string(++correlation_);
    event("cuda_runtime", "cudaLaunchKernel", 1, launched, 2, c);
    event("kernel", name, stream, at, took, c);
  }
  // A parameter's gradient: AccumulateGrad takes 5, hooks what is left.
  void gradient(double at, double took, const std::string& shape) {
    op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at, took);
    op("torch::autograd::AccumulateGrad", at, 5,
       "\"Input Dims\":[[" + shape + "]],\"Input type\":[\"float\"]");
  }
  std::string text(const std::string& beside = "") const {
    return "{\"schemaVersion\":1," + beside + "\"traceEvents\":[" + text_ + "]}";
  }
  double base_ = 1'700'000'000'000'000;  // microseconds since 1970: a double holds quarters of one

 private:
  static std::string number(double v) {
    std::array<char, 64> out{};
    std::snprintf(out.data(), out.size(), "%.3f", v);
    return out.data();
  }
  std::string text_;
  int correlation_ = 0;
};

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("ddpsim-trace-" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::string path = (path_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

 private:
  fs::path path_;
};

// One rank's iterations of 1,000 us each: zero_grad 10, forward to 300, two gradients, hooks of 20,
// all-reduce until 800, optimizer to the end. `late`: everything of the second one begins so much
// later on the rank's backward.
Written cpu_rank(double clock, double late, bool wrapped) {
  Written w;
  w.base_ += clock;
  for (int k = 0; k < 3; ++k) {
    double t = 1000.0 * k;
    w.mark("ProfilerStep#" + std::to_string(k), t, 1000);
    w.mark("Optimizer.zero_grad#SGD.zero_grad", t, 10);
    if (wrapped) w.mark("DistributedDataParallel.forward", t + 10, 290);
    w.op("autograd::engine::evaluate_function: MulBackward0", t + 300, 100);
    w.gradient(t + 400, wrapped ? 25 : 5, "4, 8");
    w.op("autograd::engine::evaluate_function: AddBackward0", t + 430, 70 + late);
    w.gradient(t + 500 + late, wrapped ? 25 : 5, "16");
    if (wrapped) {
      w.event("user_annotation", "gloo:all_reduce", 2, t + 530 + late, 270 - late,
              "\"Input Dims\":[[48]],\"Input type\":[\"float\"]");
      w.op("ddp_of(torch.distributed).reducer::copy_bucket_to_grad", t + 800, 20);
    }
    w.mark("Optimizer.step#SGD.step", t + 830, 100);
  }
  return w;
}

Duration us(double v) {
  return Duration{static_cast<std::int64_t>(v * 1e6)};
}

Trace read(const Folder& f, const Written& w, const std::string& beside = "") {
  return io::read_kineto(f.write("t.json", w.text(beside)), 20);
}

TEST(Trace, AStepWithoutAWrapperIsItsIteration) {
  Folder f;
  Trace t = read(f, cpu_rank(0, 0, false));
  std::vector<TracedStep> steps = analysis::traced_steps(t);
  ASSERT_EQ(steps.size(), 3u);
  const TracedStep& s = steps[1];
  EXPECT_EQ(s.times.forward, us(290));
  EXPECT_EQ(s.times.backward, us(205));
  EXPECT_EQ(s.times.optimizer, us(505));
  EXPECT_EQ(s.computed(), s.length());
  EXPECT_EQ(s.exposed, Duration{});
  EXPECT_EQ(s.times.ready, (std::vector<Duration>{us(105), us(205)}));
  EXPECT_EQ(s.optimizer, "SGD");
  EXPECT_FALSE(s.times.host);
}

TEST(Trace, WhatDdpAddsIsLeftOut) {
  Folder f;
  Trace t = read(f, cpu_rank(0, 0, true), "\"distributedInfo\":{\"rank\":3,\"world_size\":4},");
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.world, 4);
  const TracedStep s = analysis::traced_steps(t).at(1);
  EXPECT_TRUE(s.wrapped);
  EXPECT_EQ(s.hooks, us(40));
  EXPECT_EQ(s.times.forward, us(290));
  EXPECT_EQ(s.times.backward, us(525 - 300 - 40));
  EXPECT_EQ(s.times.ready, (std::vector<Duration>{us(105), us(185)}));
  EXPECT_EQ(s.times.optimizer, us(1000 - 820 + 10));
  EXPECT_EQ(s.exposed, us(820 - 525));
  analysis::ImportedWorkload w = analysis::workload_of(t, {.name = "w"}, "");
  ASSERT_EQ(w.workload.tensors.size(), 2u);
  // Registered in the reverse order of arrival.
  EXPECT_EQ(w.workload.tensors[1].shape, (std::vector<std::int64_t>{4, 8}));
  EXPECT_EQ(w.workload.arrival, (std::vector<TensorIndex>{1, 0}));
  EXPECT_FALSE(validate(w.workload)) << validate(w.workload).message;
}

// Two layers whose numbers are 7 and 9; operators of a number before the one that makes its node,
// and operators within one another.
Written numbered(bool gpu) {
  Written w;
  auto number = [](int n) { return "\"Sequence number\":" + std::to_string(n); };
  for (int k = 0; k < 3; ++k) {
    double t = 1000.0 * k;
    w.op("aten::linear", t + 20, 90, number(7));
    w.op("aten::t", t + 25, 5, number(7));
    w.op("aten::add_", t + 120, 5, number(9));  // makes nothing
    w.op("aten::batch_norm", t + 130, 60, number(9));
    w.op("aten::native_batch_norm", t + 140, 40, number(9));
    w.op("aten::sum", t + 200, 20, number(10));
    w.op("autograd::engine::evaluate_function: BatchNormBackward0", t + 300, 50, number(9));
    w.gradient(t + 350, 5, "16");
    w.gradient(t + 360, 5, "16");
    w.op("autograd::engine::evaluate_function: TBackward0", t + 400, 50, number(7));
    w.gradient(t + 450, 5, "4, 16");
    w.mark("Optimizer.step#SGD.step", t + 800, 200);
    if (!gpu) continue;
    w.kernel(t + 30, t + 40, 200);   // until 240: of the first layer
    w.kernel(t + 150, t + 240, 30);  // until 270: of the second
    w.kernel(t + 210, t + 270, 40);  // until 310
    w.kernel(t + 320, t + 320, 400);
    w.kernel(t + 900, t + 900, 90);  // until 990
  }
  return w;
}

TEST(Trace, NumbersOfAutogradSayWhichLayerIsWhere) {
  Folder f;
  Workload model;
  model.tensors = {{"norm.weight", {16}, DType::Float32},
                   {"norm.bias", {16}, DType::Float32},
                   {"norm.frozen", {3}, DType::Float32},
                   {"fc.weight", {4, 16}, DType::Float32}};
  model.arrival = {0, 1, 3};
  Trace t = read(f, numbered(false));
  analysis::ImportedWorkload w = analysis::workload_of(t, {.name = "w", .model = &model}, "");
  ASSERT_EQ(w.layers.size(), 2u);
  EXPECT_EQ(w.layers[0].time.name, "fc");
  EXPECT_EQ(w.layers[0].tensors, (std::vector<TensorIndex>{3}));
  EXPECT_EQ(w.layers[0].time.forward, us(110));
  EXPECT_EQ(w.layers[1].time.name, "norm");
  EXPECT_EQ(w.layers[1].tensors, (std::vector<TensorIndex>{0, 1, 2}));
  EXPECT_EQ(w.layers[1].time.forward, us(170));
  // What is frozen, beside what is named most alike.
  model.frozen = {{"fc.base", {4, 16}, DType::BFloat16}, {"norm.scale", {16}, DType::Float32}};
  w = analysis::workload_of(t, {.name = "w", .model = &model}, "");
  EXPECT_EQ(w.workload.frozen.size(), 2u);
  EXPECT_EQ(w.layers[0].frozen, (std::vector<TensorIndex>{0}));
  EXPECT_EQ(w.layers[1].frozen, (std::vector<TensorIndex>{1}));
  // Without names, what one operator uses is a layer.
  w = analysis::workload_of(t, {.name = "w"}, "");
  ASSERT_EQ(w.layers.size(), 2u);
  EXPECT_EQ(w.layers[1].time.name, "layer.1");
  EXPECT_EQ(w.layers[1].tensors.size(), 2u);

  t = read(f, numbered(true));
  w = analysis::workload_of(t, {.name = "w", .model = &model}, "");
  ASSERT_EQ(w.layers.size(), 2u);
  // The device was idle from 990 of the iteration before, and until 40.
  EXPECT_EQ(w.layers[0].time.forward, us(240 + 10));
  EXPECT_EQ(w.layers[1].time.forward, us(70));
  EXPECT_EQ(w.layers[0].time.host_forward, us(110));
  EXPECT_EQ(w.layers[1].time.host_forward, us(170));

  // One operator without its number, and nothing is said.
  std::string text = numbered(false).text();
  for (std::size_t at = 0; (at = text.find("TBackward0", at)) != std::string::npos; ++at)
    text.replace(text.find("number\":7", at), 9, "number\":8");
  t = io::read_kineto(f.write("t.json", text), 20);
  w = analysis::workload_of(t, {.name = "w", .model = &model}, "");
  EXPECT_TRUE(w.layers.empty());
  EXPECT_NE(w.notes.back().find("--plan fsdp"), std::string::npos);
}

TEST(Trace, WithoutStepsOfAProfilerTheOptimizerSaysWhereOneEnds) {
  Folder f;
  Written w;
  for (int k = 0; k < 4; ++k) {
    double t = 500.0 * k;
    w.op("autograd::engine::evaluate_function: MulBackward0", t + 100, 50);
    w.gradient(t + 150, 5, "3");
    w.mark("Optimizer.step#Adam.step", t + 200, 40);
    w.mark("Optimizer.step#Adam.step", t + 205, 30);  // a wrapper's, around the optimizer's own
  }
  Trace t = read(f, w);
  std::vector<TracedStep> steps = analysis::traced_steps(t);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].length(), us(500));
  EXPECT_EQ(analysis::workload_of(t, {.name = "w"}, "").workload.optimizer.kind,
            Optimizer::Kind::Adam);
}

TEST(Trace, OnAGpuAPhaseEndsWithItsLastKernel) {
  Folder f;
  Written w;
  for (int k = 0; k < 3; ++k) {
    double t = 1000.0 * k;
    w.mark("ProfilerStep#" + std::to_string(k), t, 1000);
    w.mark("DistributedDataParallel.forward", t, 90);
    w.kernel(t + 20, t + 100, 200);  // forward: until 300
    w.op("autograd::engine::evaluate_function: MulBackward0", t + 100, 20);
    w.kernel(t + 110, t + 300, 150);  // backward: until 450
    w.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", t + 120, 40);
    w.op("torch::autograd::AccumulateGrad", t + 120, 5,
         "\"Input Dims\":[[8]],\"Input type\":[\"c10::Half\"]");
    w.kernel(t + 130, t + 450, 30, "bucket");  // of the hook
    w.event("cpu_op", "record_param_comms", 1, t + 140, 10,
            "\"Collective name\":\"allreduce\",\"In msg nelems\":8,\"Out msg nelems\":8,"
            "\"dtype\":\"Half\",\"Process Group Name\":\"0\",\"Process Group Ranks\":\"[0, 1]\"");
    w.event("user_annotation", "nccl:all_reduce", 1, t + 141, 8);
    w.kernel(t + 143, t + 480, 320, "ncclDevKernel_AllReduce_Sum_f16_RING_LL", 20);  // until 800
    w.op("autograd::engine::evaluate_function: AddBackward0", t + 160, 20);
    w.kernel(t + 170, t + 480, 120);  // until 600
    w.mark("Optimizer.step#SGD.step", t + 200, 40);
    w.kernel(t + 220, t + 800, 200);  // until 1,000
    w.event("cuda_runtime", "cudaDeviceSynchronize", 1, t + 300, 690);
  }
  Trace t = read(f, w, "\"deviceProperties\":[{\"id\":0,\"name\":\"A GPU\"}],");
  EXPECT_EQ(t.gpu, "A GPU");
  std::vector<TracedStep> steps = analysis::traced_steps(t);
  ASSERT_EQ(steps.size(), 2u);  // where the device began with the first one, nothing says
  const TracedStep& s = steps[0];
  EXPECT_EQ(s.times.forward, us(300));
  EXPECT_EQ(s.times.backward, us(600 - 300 - 30));
  EXPECT_EQ(s.times.optimizer, us(200));
  EXPECT_EQ(s.hooks, us(30));
  EXPECT_EQ(s.exposed, us(200));
  EXPECT_EQ(s.times.ready, (std::vector<Duration>{us(150)}));
  ASSERT_TRUE(s.times.host);
  EXPECT_EQ(s.times.host->forward, us(100));
  EXPECT_EQ(s.times.host->backward, us(180 - 100 - 35));
  EXPECT_EQ(s.times.host->optimizer, us(1000 - 180 - 690));
  EXPECT_EQ(s.waits, us(690));
  analysis::ImportedWorkload made = analysis::workload_of(t, {.name = "w"}, "");
  EXPECT_EQ(made.workload.device, DeviceKind::Gpu);
  EXPECT_EQ(made.workload.precision, Precision::Fp16);
  std::vector<Trace> one;
  one.push_back(std::move(t));
  TracedRanks job = analysis::beside_one_another(std::move(one));
  ASSERT_EQ(job.collectives.size(), 2u);
  EXPECT_EQ(job.collectives[0].name, "allreduce/bucket.0");
  EXPECT_EQ(job.collectives[0].message.bytes(), 16);
  EXPECT_EQ(job.collectives[0].message.group_ranks, "[0, 1]");
}

// Of one rank on a GPU, whose host takes long to enqueue: in each 1,000 us the device computes 210.
Written late_host_rank(bool more) {
  Written w;
  auto collective = [&](const char* operation, int elements, double at) {
    std::string args = std::string("\"Collective name\":\"") + operation +
                       "\",\"In msg nelems\":" + std::to_string(elements) +
                       ",\"Out msg nelems\":" + std::to_string(elements) +
                       ",\"dtype\":\"Float\",\"Process Group Name\":\"0\"";
    w.event("cpu_op", "record_param_comms", 1, at, 10, args);
    w.event("user_annotation", std::string("nccl:") + operation, 1, at + 1, 8);
  };
  for (int k = 0; k < 4; ++k) {
    double t = 1000.0 * k;
    w.mark("ProfilerStep#" + std::to_string(k), t, 1000);
    w.mark("DistributedDataParallel.forward", t, 90);
    w.kernel(t + 20, t + 30, 70);  // forward: until 100
    if (more) {
      collective("send", 1000, t + 30);
      w.kernel(t + 33, t + 60, 5, "ncclDevKernel_SendRecv", 21);
    }
    w.op("autograd::engine::evaluate_function: MulBackward0", t + 105, 20);
    w.kernel(t + 110, t + 120, 80);  // until 200
    w.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", t + 150, 40);
    w.op("torch::autograd::AccumulateGrad", t + 150, 5,
         "\"Input Dims\":[[8]],\"Input type\":[\"float\"]");
    collective("allreduce", 8, t + 160);
    w.kernel(t + 163, t + 200, 250, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20);  // until 450
    w.op("autograd::engine::evaluate_function: AddBackward0", t + 200, 300);
    if (more) {
      collective("send", 1000, t + 300);
      w.kernel(t + 303, t + 310, 20, "ncclDevKernel_SendRecv", 21);
    }
    w.kernel(t + 480, t + 490, 10);  // until 500
    w.mark("Optimizer.step#SGD.step", t + 600, 100);
    w.kernel(t + 620, t + 630, 50);  // until 680
  }
  w.kernel(4020, 4030, 70);
  return w;
}

TracedRanks alone(Trace trace) {
  std::vector<Trace> one;
  one.push_back(std::move(trace));
  return analysis::beside_one_another(std::move(one));
}

TEST(Trace, AHostThatEnqueuesTooLateIsTold) {
  Folder f;
  TracedRanks job = alone(read(f, late_host_rank(false)));
  ASSERT_EQ(job.steps(), 3u);
  analysis::TraceExplanation e = analysis::explain_traces(job);
  EXPECT_EQ(e.step, us(1000));
  // Until 22, from 100 to 112, from 200 to 482, from 500 to 622, from 680 on.
  EXPECT_EQ(e.late_host, us(22 + 12 + 282 + 122 + 320));
  // The all-reduce is in flight while the device has nothing to compute: that is the host's.
  EXPECT_EQ(e.exposed_network, Duration{});
  EXPECT_EQ(analysis::decision_of(e), analysis::TraceDecision::Host);
  ASSERT_TRUE(e.what_if);
  EXPECT_EQ(e.what_if->replayed, us(1000));
  EXPECT_EQ(e.what_if->without_network, us(1000));
  // 166 until the all-reduce, its 250, and 58 for the update.
  EXPECT_EQ(e.what_if->without_host, us(166 + 250 + 58));
}

// While the host waits for the device, it is not late.
TEST(Trace, AHostThatWaitsIsNotLate) {
  Folder f;
  Written w = late_host_rank(false);
  for (int k = 0; k < 4; ++k)
    w.event("cuda_runtime", "cudaStreamSynchronize", 1, 1000.0 * k + 205, 245);
  analysis::TraceExplanation e = analysis::explain_traces(alone(read(f, w)));
  EXPECT_EQ(e.late_host, us(22 + 12 + (5 + 32) + 122 + 320));
  EXPECT_EQ(e.exposed_network, us(245));
}

TEST(Trace, CollectivesOfNoPlanAreNamed) {
  Folder f;
  EXPECT_TRUE(analysis::not_counted(alone(read(f, late_host_rank(false))), 0).empty());
  TracedRanks job = alone(read(f, late_host_rank(true)));
  std::vector<NotCounted> said = analysis::not_counted(job, 0);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(in_words(said[0]),
            "not counted: 2 send_recv a step that no data-parallel plan issues, about 25 us in "
            "flight, 7.812 KiB");
  // What backward waited for it is in none of its times: 20 of 400 are.
  TracedRanks plain = alone(read(f, late_host_rank(false)));
  const TracedStep& with = job.ranks[0].steps[0];
  const TracedStep& without = plain.ranks[0].steps[0];
  EXPECT_EQ(without.times.backward - with.times.backward, us(20));
  EXPECT_EQ(without.times.forward, with.times.forward);
}

// A GPU's trace in which one phase has no kernel: its time there would be 0.
TEST(Trace, APhaseWithoutItsKernelsIsRefused) {
  Folder f;
  Written w;
  for (int k = 0; k < 3; ++k) {
    double t = 1000.0 * k;
    w.mark("ProfilerStep#" + std::to_string(k), t, 1000);
    w.kernel(t + 20, t + 30, 70);
    w.op("autograd::engine::evaluate_function: MulBackward0", t + 105, 20);
    w.kernel(t + 110, t + 120, 80);
    w.gradient(t + 150, 40, "8");
    w.mark("Optimizer.step#SGD.step", t + 600, 100);
    w.event("cuda_runtime", "cudaLaunchKernel", 1, t + 620, 2,
            "\"correlation\":" + std::to_string(9000 + k));
  }
  std::vector<Trace> one;
  one.push_back(read(f, w));
  try {
    analysis::beside_one_another(std::move(one));
    FAIL() << "the update took no time";
  } catch (const InputError& e) {
    EXPECT_NE(e.what.find("in the update of an iteration nothing is in it"), std::string::npos)
        << e.what;
  }
}

// PyTorch 2.12 numbers the collectives of a process group. Rank 1's trace lacks the first of each
// step: by their order, its second would be rank 0's first.
TEST(Trace, CollectivesOfOneNumberAreOne) {
  auto job_of = [](bool numbered) {
    Folder f;
    std::vector<Trace> traces;
    for (int rank : {0, 1}) {
      Written w = cpu_rank(0, 0, false);
      for (int k = 0; k < 3; ++k)
        for (int n = rank; n < 2; ++n)
          w.event("user_annotation", "gloo:all_reduce", 2, 1000.0 * k + 520 + 100 * n, 50,
                  "\"Input Dims\":[[48]],\"Input type\":[\"float\"]" +
                      (numbered ? ",\"Seq\":" + std::to_string(10 * k + n) : std::string()));
      std::string beside = "\"distributedInfo\":{\"rank\":" + std::to_string(rank) + "},";
      traces.push_back(read(f, w, beside));
    }
    return analysis::beside_one_another(std::move(traces));
  };
  TracedRanks job = job_of(true);
  ASSERT_EQ(job.collectives.size(), 6u);
  for (const analysis::TracedCollective& c : job.collectives) {
    EXPECT_EQ(c.arrivals.size(), c.message.sequence % 10 == 0 ? 1u : 2u);
    EXPECT_EQ(c.end() - c.first(), us(50)) << "at the same time everywhere";
  }
  EXPECT_TRUE(job.notes.empty());
  EXPECT_FALSE(job_of(false).notes.empty());
}

TEST(Trace, ClocksArePutTogetherAndTheLateRankIsTold) {
  Folder f;
  std::vector<Trace> traces;
  // Rank 1's clock is 123 ms ahead; it comes 40 us later to each collective.
  for (int rank : {1, 0}) {
    std::string beside = "\"distributedInfo\":{\"rank\":" + std::to_string(rank) + "},";
    Written w = cpu_rank(rank == 1 ? 123'000 : 0, rank == 1 ? 40 : 0, true);
    traces.push_back(read(f, w, beside));
  }
  TracedRanks job = analysis::beside_one_another(std::move(traces));
  ASSERT_EQ(job.ranks.size(), 2u);
  EXPECT_EQ(job.ranks[0].rank, 0);
  ASSERT_EQ(job.collectives.size(), 3u);
  const analysis::TracedCollective& c = job.collectives[1];
  EXPECT_EQ(c.latest(), 1u);
  EXPECT_EQ(c.last() - c.first(), us(40));
  EXPECT_EQ(c.end() - c.last(), us(800 - 570));
  EXPECT_EQ(job.offset_bound, Duration{});
  analysis::TraceExplanation e = analysis::explain_traces(job);
  EXPECT_EQ(e.step, us(1000));
  ASSERT_EQ(e.collectives.size(), 1u);
  const analysis::CollectiveStory& story = e.collectives[0];
  EXPECT_EQ(story.name, "allreduce/bucket.0");
  EXPECT_EQ(story.bytes, 48 * 4);
  EXPECT_EQ(story.late_rank, 1);
  EXPECT_EQ(story.late_steps, 3);
  EXPECT_EQ(story.late_by, us(40));
  EXPECT_EQ(story.transfer, us(230));
  // Rank 0's backward ends at 525, rank 1's at 565: the last one comes at 570.
  EXPECT_EQ(story.exposed_late, us((40 + 0) / 2.0));
  EXPECT_EQ(story.exposed_network, us(230));
  EXPECT_EQ(e.skew, us(20));
  EXPECT_EQ(e.slowest, 1);
  ASSERT_TRUE(e.what_if);
  EXPECT_EQ(e.what_if->replayed, us(1000));
  EXPECT_EQ(e.what_if->without_straggler, us(960));
  EXPECT_EQ(e.what_if->without_network, us(770));
  EXPECT_EQ(e.what_if->without_both, us(730));

  ddpsim::Run run = analysis::run_of(job, {"a", "b"});
  EXPECT_EQ(run.steps.size(), 3u);
  EXPECT_EQ(run.steps[0].duration, us(1000));
  int seen = 0;
  for (const Span& s : run.spans)
    if (s.op == "allreduce/bucket.0" && s.step == 2 && s.actor == 0) {
      ++seen;
      EXPECT_EQ(s.ready.ps, us(530).ps);
      EXPECT_EQ(s.begin.ps, us(570).ps);  // the last rank's arrival
      EXPECT_EQ(s.end.ps, us(800).ps);
    }
  EXPECT_EQ(seen, 1);
}

TEST(Trace, AListOfEventsWithoutCategoriesIsOneToo) {
  Folder f;
  std::string text = cpu_rank(0, 0, false).text();
  std::string list = text.substr(text.find('['));
  list.pop_back();
  for (const char* category : {"\"cat\":\"cpu_op\",", "\"cat\":\"user_annotation\","})
    for (std::size_t at; (at = list.find(category)) != std::string::npos;)
      list.erase(at, std::string(category).size());
  Trace t = io::read_kineto(f.write("list.json", list), 20);
  EXPECT_FALSE(t.kineto);
  EXPECT_EQ(analysis::traced_steps(t).size(), 3u);
}

TEST(Trace, OnlyTheLastIterationsAreKept) {
  Folder f;
  std::string path = f.write("t.json", cpu_rank(0, 0, false).text());
  Trace all = io::read_kineto(path, 20);
  Trace last = io::read_kineto(path, 1);
  EXPECT_EQ(analysis::iterations(last).size(), 2u);  // and the one before
  EXPECT_LT(last.events.size(), all.events.size());
}

// A gradient that the shapes name otherwise than the model does.
TEST(Trace, AModelIsHeldToTheShapes) {
  Folder f;
  Trace t = read(f, cpu_rank(0, 0, false));
  Workload m = layered(2, 64, us(1), us(1), DeviceKind::Cpu);
  m.tensors[0].shape = {16};
  m.tensors[1].shape = {8, 4};
  try {
    analysis::workload_of(t, {.name = "w", .model = &m}, "");
    FAIL() << "shapes differ";
  } catch (const InputError& e) {
    EXPECT_NE(e.what.find("[4, 8]"), std::string::npos) << e.what;
  }
  m.tensors[1].shape = {4, 8};
  Workload w = analysis::workload_of(t, {.name = "w", .model = &m}, "").workload;
  EXPECT_EQ(w.tensors[w.arrival[0]].shape, (std::vector<std::int64_t>{4, 8}));
  m = layered(1, 64, us(1), us(1), DeviceKind::Cpu);
  try {
    analysis::workload_of(t, {.name = "w", .model = &m}, "");
    FAIL() << "numbers differ";
  } catch (const InputError& e) {
    EXPECT_NE(e.what.find("accumulates 2 micro-steps"), std::string::npos) << e.what;
  }
}

// Cut off anywhere, or with any byte another, a trace is read or refused.
TEST(Trace, DamageIsRefusedOrHarmless) {
  Folder f;
  std::string text = cpu_rank(0, 0, true).text("\"distributedInfo\":{\"rank\":3},");
  Random random(20261125);
  int refused = 0;
  for (int k = 0; k < 400; ++k) {
    std::string bad = text;
    if (k % 2 == 0)
      bad.resize(random.below(bad.size()));
    else
      for (int n = 0; n < 3; ++n) bad[random.below(bad.size())] = static_cast<char>(random.next());
    try {
      std::vector<Trace> one;
      one.push_back(io::read_kineto(f.write("bad.json", bad), 20));
      TracedRanks job = analysis::beside_one_another(std::move(one));
      analysis::explain_traces(job);
      analysis::run_of(job, {});
      analysis::workload_of(job.ranks[0].trace, {.name = "w"}, "");
    } catch (const InputError& e) {
      ++refused;
      EXPECT_FALSE(e.what.empty());
    }
  }
  EXPECT_GT(refused, 200);
  std::string packed = io::read_file(source_path("tests/data/kineto/README.md"));
  EXPECT_THROW(io::read_kineto(f.write("text.json", packed), 20), InputError);
}

TEST(Trace, NestingAndEndlessValuesAreRefused) {
  Folder f;
  EXPECT_THROW(io::read_kineto(f.write("deep.json", std::string(100'000, '[')), 1), InputError);
  EXPECT_THROW(io::read_kineto(f.write("empty.json", ""), 1), InputError);
  EXPECT_THROW(io::read_kineto(f.write("word.json", "true"), 1), InputError);
  EXPECT_THROW(io::read_kineto(f.write("no.json", "{\"a\": [1]}"), 1), InputError);
  // Of another accelerator the host's part would pass for all of it.
  Written w = cpu_rank(0, 0, false);
  w.event("mtia_ccp_events", "gemm", 9, 100, 5);
  EXPECT_THROW(read(f, w), InputError);
}

}  // namespace
}  // namespace ddpsim::test
