#include "calib/execute.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>

#include <fmt/format.h>
#include <sys/mman.h>

#include "calib/data_check.h"
#include "calib/origin.h"
#include "calib/player.h"
#include "calib/stage.h"
#include "sim/analysis/compare.h"
#include "sim/cost/roofline.h"
#include "sim/systems/base/lower.h"

namespace ddpsim::calib {
namespace {

// One job, ready to be played.
struct Job {
  StepTimes times;
  Program program;
  collective::Communicator comm;
  Part part;
  int slots = 1;
  int first_process = 0;
  std::vector<double> factors;      // by rank
  std::vector<RankRecord> records;  // by rank
};

struct Shared {
  Rendezvous rendezvous;
  std::atomic<std::int64_t> retransmits;
};

void prepare(Job& job, const Workload& w, const Plan& plan, const predict::Question& q,
             std::vector<DeviceId> devices, int steady_steps, const Program* given) {
  job.times = predict::step_times(w, q.profile, Level::Mid);
  job.program =
      given ? *given
            : systems::lower({w, job.times, q.profile.kind, static_cast<int>(devices.size()),
                              q.fabric.cluster().devices_per_host},
                             plan);
  job.comm = collective::make_communicator(q.fabric, std::move(devices), job.program.backend,
                                           all_reduce_algorithm(plan, job.program.backend));
  job.part = make_part(job.program, job.comm, q.profile, steady_steps);
  const bool gpu = job.program.device == DeviceKind::Gpu;
  const int streams = gpu ? 1 : job.part.worker_threads;
  const int slots = gpu ? job.part.communicators : collective::kSlotsOfStream * streams;
  job.slots = (gpu || streams > 1 ? slots : 1) * job.part.lanes;
  job.factors.assign(job.part.ranks, 1);
}

std::size_t record_bytes(const Job& job) {
  std::size_t steps = job.part.sequence.size();
  return static_cast<std::size_t>(job.part.ranks) * steps *
         (job.part.most_ops * sizeof(OpTimes) + sizeof(std::int64_t));
}

std::byte* lay_out(Job& job, std::byte* at) {
  std::size_t steps = job.part.sequence.size();
  for (int r = 0; r < job.part.ranks; ++r) {
    RankRecord record;
    record.times = reinterpret_cast<OpTimes*>(at);
    at += steps * job.part.most_ops * sizeof(OpTimes);
    record.step_ends = reinterpret_cast<std::int64_t*>(at);
    at += steps * sizeof(std::int64_t);
    job.records.push_back(record);
  }
  return at;
}

std::byte* private_memory(std::int64_t bytes) {
  if (bytes == 0) return nullptr;
  void* at = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    throw std::runtime_error(fmt::format("no memory for {} bytes of gradients a rank", bytes));
  std::memset(at, 0, static_cast<std::size_t>(bytes));
  return static_cast<std::byte*>(at);
}

constexpr std::int64_t kHeadStartNs = 30'000'000;

void play_rank(const Job& job, int rank, const std::vector<int>& hosts, bool shaped, int processes,
               const ExecuteOptions& options, Shared& shared) {
  std::byte* gradients = private_memory(job.part.gradient_bytes);
  std::byte* others = private_memory(job.part.other_bytes);
  fill_gradients(job.part, rank, gradients);
  Rendezvous& meeting = shared.rendezvous;
  Mesh mesh(job.slots);
  int me = job.first_process + rank;
  meeting.port[me] = mesh.listen(stage_address(hosts[me], shaped));
  meeting.meet(0, processes);
  std::vector<Peer> peers;
  for (int r = 0; r < job.part.ranks; ++r) {
    int p = job.first_process + r;
    peers.push_back({stage_address(hosts[p], shaped), meeting.port[p]});
  }
  mesh.connect(rank, peers, job.part.peers(rank, &collective::Step::sends),
               job.part.peers(rank, &collective::Step::receives));
  meeting.meet(1, processes);
  if (options.real_compute) {
    // One rank after the other, so that each finds a quiet core.
    for (int p = 0; p < processes; ++p) {
      if (p == me) calibrate_compute();
      meeting.meet(p % 2 == 0 ? 4 : 5, (p / 2 + 1) * processes);
    }
  }
  if (me == 0) meeting.start_ns = now_ns() + kHeadStartNs;
  meeting.meet(2, processes);
  play(job.part, rank, mesh, gradients, others, meeting.start_ns, job.factors[rank],
       options.real_compute, job.records[rank]);
  shared.retransmits += mesh.retransmits();
  std::string wrong = check_gradients(job.part, gradients);
  if (wrong.empty()) wrong = check_collectives(job.part, rank, mesh);
  if (!wrong.empty()) throw std::runtime_error("rank " + std::to_string(rank) + ": " + wrong);
}

const char* algorithm_of(const Job& job, const Op& op) {
  switch (op.kind.operation) {
    case Operation::Broadcast:
    case Operation::Reduce:
      return "tree";
    case Operation::AllReduce:
      return name_of(job.comm.pattern(Operation::AllReduce).algorithm);
    default:
      return "ring";
  }
}

void read_steps(const Job& job, const ExecuteOptions& options, Run& run) {
  auto ranks = static_cast<std::size_t>(job.part.ranks);
  std::size_t steps = job.part.sequence.size();
  std::int64_t before = 0;
  for (std::size_t k = 0; k < steps; ++k) {
    std::int64_t end = 0;
    for (std::size_t r = 0; r < ranks; ++r) end = std::max(end, job.records[r].step_ends[k]);
    const StepProgram& s = *job.part.kinds[job.part.sequence[k]].program;
    if (k > 0) run.steps.push_back({s.kind, Duration{(end - before) * 1000}});
    bool recorded = k > 0 && k + static_cast<std::size_t>(options.recorded_steps) >= steps;
    for (std::size_t r = 0; recorded && r < ranks; ++r) {
      for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
        if (!worth_a_span(s.ops[i].kind)) continue;
        const OpTimes& t = job.records[r].times[k * job.part.most_ops + i];
        run.spans.push_back(measured_span(job.program, s, i, static_cast<int>(run.steps.size()) - 1,
                                          static_cast<int>(r), before, t.ready, t.begin, t.end,
                                          algorithm_of(job, s.ops[i])));
      }
    }
    before = end;
  }
  run.tensor_names = job.program.tensor_names;
  run.streams = job.program.streams;
}

// The first step has no step before it: measured from the common start.
void read_first(const Job& job, std::int64_t start, Run& run) {
  std::int64_t end = 0;
  for (const RankRecord& r : job.records) end = std::max(end, r.step_ends[0]);
  run.steps.insert(run.steps.begin(), {job.part.kinds[job.part.sequence[0]].program->kind,
                                       Duration{(end - start) * 1000}});
  for (Span& s : run.spans) ++s.step;
}

constexpr double kSegmentBytes = 8948;  // payload of a frame of 9000 bytes

// Segments that all jobs send in all steps, about.
double segments_of(const std::vector<std::unique_ptr<Job>>& jobs) {
  double out = 0;
  for (const auto& job : jobs)
    out += 2.0 * (job->part.ranks - 1) * static_cast<double>(job->part.gradient_bytes) *
           static_cast<double>(job->part.sequence.size()) / kSegmentBytes;
  return out;
}

void judge(Run& run, std::int64_t retransmits, double segments, bool beside_others) {
  judge_spread(run, beside_others);
  Quality& q = run.quality;
  q.retransmits = retransmits;
  // One in 10,000 costs less than 0.1 % of a step; a time-out (200 ms) shows in the spread.
  if (static_cast<double>(retransmits) > std::max(4.0, 1e-4 * segments))
    add_noise(q, fmt::format("{} TCP segments were sent again", retransmits));
}

}  // namespace

Run execute(const predict::Question& q, const ExecuteOptions& options) {
  const Scenario& s = q.scenario;
  std::vector<std::unique_ptr<Job>> jobs;
  auto add = [&](const Workload& w, const Plan& plan, std::vector<DeviceId> devices, int steady,
                 const Program* given) {
    jobs.push_back(std::make_unique<Job>());
    prepare(*jobs.back(), w, plan, q, std::move(devices), steady, given);
  };
  add(q.workload, s.plan, devices_of(s), options.steady_steps, options.program);
  for (std::size_t k = 0; k < s.other_jobs.size(); ++k)
    add(s.other_jobs[k].workload, s.other_jobs[k].plan, s.other_jobs[k].rank_order,
        k < options.other_steps.size() ? options.other_steps[k] : 4 * options.steady_steps,
        nullptr);
  for (const auto& [rank, factor] : s.slow_ranks) jobs[0]->factors[rank] = factor;

  std::vector<int> hosts;
  std::size_t bytes = sizeof(Shared);
  for (auto& job : jobs) {
    job->first_process = static_cast<int>(hosts.size());
    for (DeviceId d : job->comm.devices) hosts.push_back(q.fabric.host_of(d).number);
    bytes += record_bytes(*job);
  }
  SharedMemory memory(bytes + 64);
  auto* shared = new (memory.data()) Shared{};
  std::byte* at = memory.data() + (sizeof(Shared) + 63) / 64 * 64;
  for (auto& job : jobs) at = lay_out(*job, at);

  double load = machine_load();
  auto processes = static_cast<int>(hosts.size());
  StageResult stage = run_stage(
      q.fabric.cluster(), hosts, s.ranks, options.loopback, options.timeout_s, shared->rendezvous,
      [&](int process, bool shaped) {
        for (const auto& job : jobs)
          if (process >= job->first_process && process < job->first_process + job->part.ranks)
            play_rank(*job, process - job->first_process, hosts, shaped, processes, options,
                      *shared);
      });
  Run run = measured_run(EvidenceClass::Replay, stage, load);
  run.origin.compute = options.real_compute ? "real" : "timed";
  run.origin.profile = q.profile.name;
  read_steps(*jobs[0], options, run);
  read_first(*jobs[0], shared->rendezvous.start_ns, run);
  judge(run, shared->retransmits, segments_of(jobs), !s.other_jobs.empty());
  return run;
}

}  // namespace ddpsim::calib
