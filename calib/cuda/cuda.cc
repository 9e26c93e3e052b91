#include "calib/cuda/cuda.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <new>
#include <optional>

#include "calib/clock.h"
#include "calib/cuda/collectives.h"
#include "calib/cuda/device.h"
#include "calib/cuda/kernels.h"
#include "calib/cuda/libraries.h"
#include "calib/cuda/ranks.h"
#include "calib/cuda/stages.h"
#include "calib/gpu/play.h"
#include "calib/origin.h"
#include "sim/cost/roofline.h"
#include "sim/io/codecs.h"
#include "sim/predict/lowered.h"

namespace ddpsim::calib::cuda {
namespace {

std::string gpu_name() {
  cudaDeviceProp properties{};
  DDPSIM_CUDA(cudaGetDeviceProperties(&properties, 0));
  int driver = 0;
  int runtime = 0;
  DDPSIM_CUDA(cudaDriverGetVersion(&driver));
  DDPSIM_CUDA(cudaRuntimeGetVersion(&runtime));
  auto version = [](int v) {
    return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
  };
  return std::string(properties.name) + " (" + std::to_string(properties.multiProcessorCount) +
         " SMs, " + std::to_string(properties.totalGlobalMem >> 20) + " MiB; driver for CUDA " +
         version(driver) + ", runtime " + version(runtime) + ")";
}

std::string libraries_found() {
  std::string out;
  auto add = [&](const char* what, const std::function<std::string()>& found) {
    try {
      out += (out.empty() ? "" : "; ") + std::string(what) + " " + found();
    } catch (const std::exception&) {  // then nothing of it is measured either
    }
  };
  add("cuBLASLt", [] { return std::to_string(cublaslt().cublasLtGetVersion()); });
  add("cuDNN", [] { return std::to_string(cudnn().cudnnGetVersion()); });
  add("NCCL", [] { return nccl().version(); });
  return out;
}

// A measured Run of this machine's GPUs, empty but for its origin.
Run gpu_run(EvidenceClass evidence, const char* backend) {
  Run run = measured_run(evidence, StageResult{}, machine_load());
  run.origin.backend = backend;
  run.origin.hosts = "gpus";
  run.origin.reason.clear();
  run.origin.compute = "real";
  run.origin.gpu = in_child([] { return gpu_name(); });
  run.origin.software = in_child(libraries_found);
  return run;
}

// Else each reason that there is, once: the last is not always the one that matters.
void require_samples(const Run& run) {
  if (!run.samples.empty()) return;
  std::string said;
  std::vector<std::string> reasons;
  for (const Skipped& s : run.skipped) {
    if (std::find(reasons.begin(), reasons.end(), s.why) != reasons.end()) continue;
    reasons.push_back(s.why);
    said += (said.empty() ? "" : "; ") + s.what + ": " + s.why;
  }
  throw std::runtime_error(said.empty() ? "nothing could be measured" : said);
}

constexpr double kLookS = 100;  // a cold start loads a library of half a gigabyte

}  // namespace

bool built() {
  return true;
}

Probe probe() {
  Probe out;
  // A child for each, so that one that crashes costs one row.
  auto look = [&](const char* what, const std::function<std::string()>& found) {
    try {
      out.items.push_back({what, true, in_child(found, kLookS)});
    } catch (const std::runtime_error& e) {
      out.items.push_back({what, false, e.what()});
    }
    return out.items.back().found;
  };
  bool gpu = look("gpu", [] {
    int n = 0;
    DDPSIM_CUDA(cudaGetDeviceCount(&n));
    return std::to_string(n) + " x " + gpu_name();
  });
  if (!gpu) return out;
  look("cuBLASLt",
       [] { return std::to_string(cublaslt().cublasLtGetVersion()) + ", " + cublaslt().place; });
  look("cuDNN", [] { return std::to_string(cudnn().cudnnGetVersion()) + ", " + cudnn().place; });
  look("NCCL", [] { return nccl().version() + ", " + nccl().place; });
  look("NVML", [] { return nvml().place; });
  // The daemon starts its server with the first client: that is what fails where MPS is not
  // allowed.
  std::optional<MpsDaemon> daemon;
  try {
    daemon.emplace();
  } catch (const std::runtime_error& e) {
    out.items.push_back({"MPS", false, e.what()});
    return out;
  }
  look("MPS", [&] {
    for (const auto& [name, value] : one_gpu_environment(0, 2, daemon->folder()))
      ::setenv(name.c_str(), value.c_str(), 1);
    DDPSIM_CUDA(cudaSetDevice(0));
    StreamOwner stream;
    launch_nothing(stream);
    DDPSIM_CUDA(cudaStreamSynchronize(stream));
    return std::string("a private daemon serves a client");
  });
  return out;
}

std::vector<Run> calibrate(const CalibrateOptions& options) {
  std::int64_t begin = now_ns();
  auto left_s = [&] {
    return std::max(1.0, options.budget_s - static_cast<double>(now_ns() - begin) / 1e9);
  };  // starting costs, too
  if (options.stage == "nccl") {
    Run run = gpu_run(EvidenceClass::Collective, "nccl");
    run.key = options.one_gpu ? "calibrate/nccl-one-gpu" : "calibrate/nccl";
    CalibrateOptions rest = options;
    rest.budget_s = left_s();
    std::vector<Run> runs = measure_nccl(run, rest);
    if (runs.empty()) require_samples(run);  // throws
    runs.front().skipped = std::move(run.skipped);
    return runs;
  }
  const std::pair<const char*, void (*)(Run&, const Budget&)> known[] = {
      {"memory", measure_memory}, {"gemm", measure_gemm},
      {"host", measure_host},     {"conv", measure_conv},
      {"copies", measure_copies}, {"interference", measure_interference}};
  for (const auto& stage : known) {
    const char* name = stage.first;
    void (*measure)(Run&, const Budget&) = stage.second;
    if (options.stage != name) continue;
    Run run = gpu_run(EvidenceClass::Kernel, "cuda");
    run.key = std::string("calibrate/") + name;
    std::string why;
    std::string text = in_child_so_far(
        [&](const auto& say) {
          auto save = [&] {
            if (!run.samples.empty()) say(io::write_run(run).dump());
          };
          try {
            measure(run, {left_s(), save});
          } catch (const std::runtime_error& e) {
            if (run.samples.empty()) throw;
            run.skipped.push_back({std::string("the rest of stage ") + name, e.what()});
          }
          require_samples(run);
          save();
        },
        left_s() + 20, why);
    if (text.empty()) throw std::runtime_error(why.empty() ? "nothing could be measured" : why);
    Run done = io::read_run(io::parse_json(text, "the stage's Run"), "the stage's Run");
    if (!why.empty())
      done.skipped.push_back(
          {std::string("the rest of stage ") + name, why});  // what was measured before counts
    return {std::move(done)};
  }
  throw std::runtime_error("there is no stage \"" + options.stage + "\"");
}

namespace {

struct RankResult {
  std::int64_t start_ns;
  std::int64_t host_ns;
};
struct OpResult {
  std::int64_t ready_ns, begin_ns, end_ns;
};

}  // namespace

struct OneGpu::Daemon {
  MpsDaemon mps;
};
OneGpu::OneGpu() : daemon_(std::make_unique<Daemon>()) {}
OneGpu::~OneGpu() = default;
std::vector<std::pair<std::string, std::string>> OneGpu::environment(int rank, int ranks) const {
  return one_gpu_environment(rank, ranks, daemon_->mps.folder());
}

Run execute(const predict::Question& q, const ExecuteOptions& options) {
  const Scenario& s = q.scenario;
  if (!s.other_jobs.empty())
    throw std::runtime_error("other jobs beside this one cannot be played on GPUs");
  int ranks = s.ranks;
  if (ranks > 64) throw std::runtime_error("more than 64 ranks on one machine");
  if (options.one_gpu && ranks > 16)
    throw std::runtime_error("several ranks on one GPU are 2 to 16");
  StepTimes times = predict::step_times(q.workload, q.profile, Level::Mid);
  Program program = predict::lowered(q, times);
  gpu::Part part = gpu::make_part(program, q.profile, ranks);
  std::size_t steps = part.kinds.size() - 1 +
                      static_cast<std::size_t>(options.steady_steps + options.recorded_steps);
  std::size_t each = program.steady.ops.size();  // of which every recorded step has times
  std::size_t per_rank = sizeof(RankResult) + steps * sizeof(std::int64_t) +
                         static_cast<std::size_t>(options.recorded_steps) * each * sizeof(OpResult);

  Run run = gpu_run(EvidenceClass::Replay, "nccl");
  std::optional<MpsDaemon> mps;
  if (options.one_gpu && ranks > 1) mps.emplace();
  SharedMemory memory(sizeof(RanksShared) + static_cast<std::size_t>(ranks) * per_rank + 64);
  auto* shared = new (memory.data()) RanksShared{};
  auto results_of = [&](int rank) {
    return memory.data() + (sizeof(RanksShared) + 63) / 64 * 64 +
           static_cast<std::size_t>(rank) * per_rank;
  };
  RanksOptions o;
  o.ranks = ranks;
  o.one_gpu = mps ? &*mps : nullptr;
  o.environment.assign(s.plan.environment.begin(), s.plan.environment.end());
  o.timeout_s = options.timeout_s;
  run_ranks(o, *shared, [&](const RankPlace& place, ncclComm_t comm) {
    if (mps) require_side_by_side(*shared, place, comm);
    // One after the other, so that each times its products on a GPU that nobody else uses.
    std::unique_ptr<CudaDevice> device;
    for (int r = 0; r < ranks; ++r) {
      if (r == place.rank)
        device = std::make_unique<CudaDevice>(part.gradient_bytes, part.other_bytes,
                                              ranks > 1 ? comm : nullptr);
      shared->rendezvous.meet(r % 2 == 0 ? 4 : 5, (r / 2 + 1) * ranks);
    }
    shared->rendezvous.meet(2, ranks);
    auto slow = s.slow_ranks.find(place.rank);
    gpu::Played played;
    try {
      played = gpu::play(part,
                         {options.steady_steps, options.recorded_steps,
                          slow == s.slow_ranks.end() ? 1 : slow->second},
                         *device);
    } catch (const std::exception& e) {
      leave(*shared, place, e);
    }
    auto* head = reinterpret_cast<RankResult*>(results_of(place.rank));
    *head = {played.start_ns, played.host_ns};
    auto* ends = reinterpret_cast<std::int64_t*>(head + 1);
    for (const gpu::PlayedStep& step : played.steps) *ends++ = step.end_ns;
    auto* ops = reinterpret_cast<OpResult*>(ends);
    for (const gpu::PlayedOp& op : played.ops) *ops++ = {op.ready_ns, op.begin_ns, op.end_ns};
  });

  auto head = [&](int r) { return reinterpret_cast<const RankResult*>(results_of(r)); };
  auto ends = [&](int r) { return reinterpret_cast<const std::int64_t*>(head(r) + 1); };
  auto ops = [&](int r) { return reinterpret_cast<const OpResult*>(ends(r) + steps); };
  std::int64_t before = 0;
  for (int r = 0; r < ranks; ++r)
    before = r == 0 ? head(r)->start_ns : std::min(before, head(r)->start_ns);
  for (std::size_t k = 0; k < steps; ++k) {
    std::int64_t end = 0;
    for (int r = 0; r < ranks; ++r) end = std::max(end, ends(r)[k]);
    bool warm = k + 1 < part.kinds.size();
    bool noted = k + static_cast<std::size_t>(options.recorded_steps) >= steps;
    run.steps.push_back({warm ? part.kinds[k].program->kind : StepKind::Steady,
                         Duration{std::max<std::int64_t>(1, (end - before) * 1000)}, noted});
    for (int r = 0; noted && r < ranks; ++r)
      for (std::uint32_t i = 0; i < each; ++i) {
        if (!worth_a_span(program.steady.ops[i].kind)) continue;
        const OpResult& t =
            ops(r)[(k + static_cast<std::size_t>(options.recorded_steps) - steps) * each + i];
        run.spans.push_back(measured_span(program, program.steady, i, static_cast<int>(k), r,
                                          before, t.ready_ns, t.begin_ns, t.end_ns, "nccl"));
      }
    before = end;
  }
  run.tensor_names = program.tensor_names;
  run.origin.profile = q.profile.name;
  // Steps by events must add up to what the host's clock says of all of them.
  double by_host = 0;
  double by_events = 0;
  for (int r = 0; r < ranks; ++r)
    by_host = std::max(by_host, static_cast<double>(head(r)->host_ns));
  for (const StepRecord& step : run.steps)
    by_events += static_cast<double>(step.duration.ps) / 1000;
  if (std::abs(by_events / by_host - 1) > 0.02)
    add_noise(run.quality, "the steps by events are " +
                               std::to_string(std::lround(by_events / 1e3)) +
                               " us together, the host's clock says " +
                               std::to_string(std::lround(by_host / 1e3)) + " us");
  judge_spread(run, false);
  if (mps)
    run.skipped.push_back({"links",
                           "all ranks are on one GPU: collectives go through sockets on loopback, "
                           "and say nothing about NVLink or a network"});
  return run;
}

}  // namespace ddpsim::calib::cuda
