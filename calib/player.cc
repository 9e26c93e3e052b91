#include "calib/player.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>

#include "sim/cost/roofline.h"
#include "sim/systems/base/worker_pool.h"

namespace ddpsim::calib {

namespace {

double g_rounds_per_ns = 0;  // of spin(); set once before threads start

// A chain of dependent multiply-adds: no memory, nothing to vectorise.
double spin(std::int64_t rounds) {
  double x = 1;
  for (std::int64_t i = 0; i < rounds; ++i) {
    x = x * 0.999999 + 1e-7;
    asm volatile("" : "+x"(x));  // a compiler would find out where this leads
  }
  return x;
}

std::atomic<double> g_sink;

}  // namespace

void calibrate_compute() {
  constexpr std::int64_t kRounds = 2'000'000;
  double best = 0;
  for (int i = 0; i < 7; ++i) {
    std::int64_t begin = now_ns();
    g_sink = spin(kRounds);
    best = std::max(best, static_cast<double>(kRounds) / static_cast<double>(now_ns() - begin));
  }
  g_rounds_per_ns = best;
}

void compute_ns(std::int64_t ns) {
  g_sink = spin(static_cast<std::int64_t>(static_cast<double>(ns) * g_rounds_per_ns));
}

namespace {

// A group's schedule with the job's ranks for its own.
void add_group(const collective::Schedule& of, const std::vector<int>& ranks,
               collective::Schedule& all) {
  for (std::size_t i = 0; i < of.ranks.size(); ++i) {
    collective::RankSteps& steps = all.ranks[ranks[i]] = of.ranks[i];
    for (auto& lane : steps.lanes)
      for (collective::Step& step : lane)
        for (auto* list : {&step.sends, &step.receives})
          for (collective::Message& m : *list) m.peer = ranks[m.peer];
  }
}

// The communicators of a Program's groups, of the job's first one on.
std::vector<std::vector<collective::Communicator>> communicators_of(
    const Part& part, const collective::Communicator& job, Algorithm algorithm) {
  std::vector<std::vector<collective::Communicator>> out{{job}};
  for (std::size_t k = 1; k < part.groups.size(); ++k) {
    out.emplace_back();
    for (const std::vector<int>& ranks : part.groups[k]) {
      std::vector<DeviceId> devices;
      for (int r : ranks) devices.push_back(job.devices[r]);
      out.back().push_back(
          collective::make_communicator(*job.fabric, std::move(devices), job.backend(), algorithm));
    }
  }
  return out;
}

collective::Schedule schedule_for(const Part& part,
                                  const std::vector<collective::Communicator>& groups,
                                  const Part::Collective& c) {
  collective::Schedule all;
  all.ranks.resize(part.ranks);
  for (std::size_t g = 0; g < groups.size(); ++g)
    add_group(collective::schedule_of(groups[g], groups[g].id(c.operation), c.elements,
                                      element_size(c.type), c.root),
              part.groups[c.group][g], all);
  return all;
}

}  // namespace

Part make_part(const Program& program, const collective::Communicator& comm, const Profile& profile,
               int steady_steps) {
  Part part;
  part.ranks = comm.ranks();
  part.worker_threads = program.worker_threads;
  const std::vector<Lane> own = own_communicators(program);
  part.communicators = 1 + static_cast<int>(own.size());
  part.groups.push_back({std::vector<int>(static_cast<std::size_t>(part.ranks))});
  std::iota(part.groups[0][0].begin(), part.groups[0][0].end(), 0);
  for (const RankGroups& g : program.groups) part.groups.push_back(members(g, part.ranks));
  const auto communicators =
      communicators_of(part, comm, comm.pattern(Operation::AllReduce).algorithm);
  std::vector<const StepProgram*> kinds;
  for (const StepProgram& s : program.warmup) kinds.push_back(&s);
  kinds.push_back(&program.steady);
  for (const StepProgram* s : kinds) {
    Part::Step step;
    step.program = s;
    step.awaited.assign(s->ops.size(), 0);
    step.collective.assign(s->ops.size(), -1);
    step.awaited.back() = 1;
    std::int64_t gradients = 0;
    std::int64_t others = 0;
    for (std::uint32_t i = 0; i < s->ops.size(); ++i) {
      const Op& op = s->ops[i];
      for (std::uint32_t d : deps_of(*s, i)) step.awaited[d] = 1;
      step.duration_ns.push_back(
          is_collective(op.kind) ? 0
                                 : predict::price(op, *s, program, profile, Level::Mid).ps / 1000);
      if (!is_collective(op.kind)) continue;
      Part::Collective c;
      c.operation = op.kind.operation;
      c.type = op.dtype;
      c.elements = op.bytes / element_size(c.type);
      c.group = op.group;
      c.root = std::max(0, op.root);
      c.communicator = static_cast<int>(communicator_of(own, op.lane));
      c.gradients = carries_tensors(op.kind) && c.operation == Operation::AllReduce && c.group == 0;
      c.offset = c.gradients ? gradients : others;
      (c.gradients ? gradients : others) += op.bytes;
      c.schedule = schedule_for(part, communicators[c.group], c);
      part.lanes = std::max(part.lanes, c.schedule.lanes());
      step.collective[i] = static_cast<std::int32_t>(step.collectives.size());
      step.collectives.push_back(std::move(c));
    }
    part.gradient_bytes = std::max(part.gradient_bytes, gradients);
    part.other_bytes = std::max(part.other_bytes, others);
    part.most_ops = std::max(part.most_ops, s->ops.size());
    part.kinds.push_back(std::move(step));
  }
  for (std::size_t i = 0; i + 1 < part.kinds.size(); ++i) part.sequence.push_back(i);
  for (int i = 0; i < steady_steps; ++i) part.sequence.push_back(part.kinds.size() - 1);
  return part;
}

std::vector<int> Part::peers(int rank,
                             std::vector<collective::Message> collective::Step::*end) const {
  std::set<int> out;
  for (const Step& s : kinds)
    for (const Collective& c : s.collectives)
      for (const auto& lane : c.schedule.ranks[rank].lanes)
        for (const auto& step : lane)
          for (const auto& m : step.*end) out.insert(m.peer);
  return {out.begin(), out.end()};
}

namespace {

class Player {
 public:
  Player(const Part& part, int rank, Mesh& mesh, std::byte* gradients, std::byte* others,
         std::int64_t start, double factor, bool real, RankRecord record)
      : part_(part),
        rank_(static_cast<std::size_t>(rank)),
        mesh_(mesh),
        gradients_(gradients),
        others_(others),
        start_(start),
        factor_(factor),
        real_(real),
        record_(record),
        slot_busy_(static_cast<std::size_t>(mesh.slots() / part.lanes)) {
    pool_.threads = part.worker_threads;
    std::uint32_t count = 0;
    for (std::size_t kind : part.sequence) {
      first_collective_.push_back(count);
      count += static_cast<std::uint32_t>(part.kinds[kind].collectives.size());
    }
  }

  void run() {
    std::set<Lane> lanes;
    for (const Part::Step& s : part_.kinds)
      for (const Op& op : s.program->ops) lanes.insert(op.lane);
    std::vector<std::thread> threads;
    auto guarded = [this](auto body) {
      return [this, body] {
        try {
          body();
        } catch (const std::exception& e) {
          give_up(e.what());
        }
      };
    };
    for (Lane lane : lanes)
      if (lane != Lane::Host && lane != Lane::Worker)
        threads.emplace_back(guarded([this, lane] { run_lane(lane); }));
    if (lanes.count(Lane::Worker))
      for (int i = 0; i < part_.worker_threads; ++i)
        threads.emplace_back(guarded([this] { run_worker(); }));
    guarded([this] { run_lane(Lane::Host); })();
    for (std::thread& t : threads) t.join();
    if (failed_) throw std::runtime_error(error_);
  }

 private:
  OpTimes& times(std::size_t step, std::uint32_t op) const {
    return record_.times[step * part_.most_ops + op];
  }
  const Part::Step& kind(std::size_t step) const { return part_.kinds[part_.sequence[step]]; }

  // Every lane in listed order; the host also hands collectives to the workers.
  void run_lane(Lane lane) {
    sleep_until_ns(start_);
    std::int64_t clock = start_;
    for (std::size_t step = 0; step < part_.sequence.size(); ++step) {
      const Part::Step& k = kind(step);
      const auto& ops = k.program->ops;
      for (std::uint32_t i = 0; i < ops.size(); ++i) {
        if (lane == Lane::Host && ops[i].lane == Lane::Worker)
          enqueue(step, i, wait_for_deps(step, i, 0));
        if (ops[i].lane != lane) continue;
        std::int64_t begin = wait_for_deps(step, i, lane == Lane::Callback ? 0 : clock);
        if (k.collective[i] >= 0)
          clock = communicate(step, i, begin);
        else
          clock = compute(step, i, begin);
        if (i + 1 == ops.size()) record_.step_ends[step] = now_ns();
      }
    }
  }

  std::int64_t compute(std::size_t step, std::uint32_t i, std::int64_t begin) {
    const Part::Step& k = kind(step);
    OpTimes& t = times(step, i);
    auto d =
        static_cast<std::int64_t>(std::llround(static_cast<double>(k.duration_ns[i]) * factor_));
    std::int64_t end = begin + d;
    if (real_) {
      begin = std::max(begin, now_ns());
      if (d > 0) compute_ns(d);
      end = std::max(begin, now_ns());
    } else if (k.awaited[i]) {
      if (end > now_ns()) sleep_until_ns(end);
    }
    t.ready = t.begin = begin;
    finish(t, end, k.awaited[i]);
    return end;
  }

  std::int64_t communicate(std::size_t step, std::uint32_t i, std::int64_t ready) {
    const Part::Step& k = kind(step);
    auto index = static_cast<std::size_t>(k.collective[i]);
    const Part::Collective& c = k.collectives[index];
    const int slot = part_.communicators > 1
                         ? c.communicator
                         : static_cast<int>((first_collective_[step] + index) %
                                            static_cast<std::uint32_t>(slot_busy_.size()));
    OpTimes& t = times(step, i);
    t.ready = ready;
    thread_local Scratch scratch;
    {
      std::lock_guard<std::mutex> in_order(slot_busy_[slot]);
      t.begin = now_ns();
      mesh_.play(c.schedule.ranks[rank_], (c.gradients ? gradients_ : others_) + c.offset, c.type,
                 scratch, slot * part_.lanes);
    }
    std::int64_t end = now_ns();
    finish(t, end, true);
    return end;
  }

  void finish(OpTimes& t, std::int64_t end, bool awaited) {
    if (!awaited) {
      t.end.store(end, std::memory_order_release);
      return;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      t.end.store(end, std::memory_order_release);
    }
    changed_.notify_all();
  }

  // Latest end of what the operation waits for, at least `from`.
  std::int64_t wait_for_deps(std::size_t step, std::uint32_t i, std::int64_t from) {
    const StepProgram& s = *kind(step).program;
    auto wait_for = [&](std::uint32_t d) {
      OpTimes& t = times(step, d);
      std::int64_t end = t.end.load(std::memory_order_acquire);
      if (end == 0) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(
            lock, [&] { return failed_ || (end = t.end.load(std::memory_order_acquire)) != 0; });
        if (failed_) throw std::runtime_error(error_);
      }
      from = std::max(from, end);
    };
    for (std::uint32_t d : s.ops[i].dep)
      if (d != kNoOp) wait_for(d);
    for (const auto& e : s.extra_deps)
      if (e.op == i) wait_for(e.dep);
    return from;
  }

  // ---- workers

  void enqueue(std::size_t step, std::uint32_t op, std::int64_t ready) {
    std::lock_guard<std::mutex> lock(pool_mutex_);
    times(step, op).ready = ready;
    auto key = static_cast<std::uint32_t>(step * part_.most_ops + op);
    if (auto picked = systems::enqueue(pool_, key)) {
      picked_.push_back(*picked);
      pool_changed_.notify_one();
    }
  }

  void run_worker() {
    std::uint32_t total = 0;
    for (std::size_t k : part_.sequence)
      for (const Op& op : part_.kinds[k].program->ops) total += op.lane == Lane::Worker;
    for (;;) {
      std::uint32_t key = 0;
      {
        std::unique_lock<std::mutex> lock(pool_mutex_);
        pool_changed_.wait(lock, [&] { return failed_ || !picked_.empty() || finished_ == total; });
        if (failed_ || picked_.empty()) return;
        key = picked_.front();
        picked_.pop_front();
      }
      for (bool more = true; more;) {
        std::size_t step = key / part_.most_ops;
        auto op = static_cast<std::uint32_t>(key % part_.most_ops);
        communicate(step, op, times(step, op).ready);
        std::lock_guard<std::mutex> lock(pool_mutex_);
        auto next = systems::finished(pool_);
        more = next.has_value();
        if (more) key = *next;
        if (++finished_ == total) pool_changed_.notify_all();
      }
    }
  }

  void give_up(const std::string& why) {
    {
      std::scoped_lock lock(mutex_, pool_mutex_);
      if (!failed_) error_ = why;
      failed_ = true;
    }
    changed_.notify_all();
    pool_changed_.notify_all();
  }

  const Part& part_;
  std::size_t rank_;
  Mesh& mesh_;
  std::byte* gradients_;
  std::byte* others_;
  std::int64_t start_;
  double factor_;
  bool real_;
  RankRecord record_;
  std::vector<std::uint32_t> first_collective_;  // by step: collectives of all steps before
  std::vector<std::mutex> slot_busy_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool failed_ = false;
  std::string error_;
  std::mutex pool_mutex_;
  std::condition_variable pool_changed_;
  systems::WorkerPool pool_;
  std::deque<std::uint32_t> picked_;
  std::uint32_t finished_ = 0;
};

}  // namespace

void play(const Part& part, int rank, Mesh& mesh, std::byte* gradients, std::byte* others,
          std::int64_t start_ns, double factor, bool real_compute, RankRecord record) {
  Player(part, rank, mesh, gradients, others, start_ns, factor, real_compute, record).run();
}

}  // namespace ddpsim::calib
