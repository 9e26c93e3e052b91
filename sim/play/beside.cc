// How many steps each job has to play is not known before: this job has to see a slower one's whole
// steps, a faster one has to last as long as this job, and what they share makes all of them
// longer. So first by the steps that each takes alone, then by those that were seen, until the
// window is there.
#include "sim/play/beside.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace ddpsim::predict {
namespace {

constexpr int kCounted = 7;           // steps of this job, at least
constexpr double kPeriods = 2;        // of the slowest other job, at least
constexpr double kMostTasks = 2.5e6;  // of one simulation, unless that of the fewest steps beside a
                                      // job like this one has more
constexpr int kRounds = 8;

struct Pace {
  double step = 1;   // ps, in the mean over all its steps
  double tasks = 1;  // of one
  int warmup = 0;    // first steps
};

// Of one job: when its first steps are over, and how far it is at any time after that.
struct Track {
  std::vector<double> ends;  // of the last of its first steps, and of every steady one
  explicit Track(const std::vector<SimulatedStep>& steps) {
    double at = 0;
    for (const SimulatedStep& s : steps) {
      if (s.kind == StepKind::Steady) {
        if (ends.empty()) ends.push_back(at);
        ends.push_back(static_cast<double>(s.end.ps));
      }
      at = static_cast<double>(s.end.ps);
    }
  }
  double begin() const { return ends.front(); }
  double end() const { return ends.back(); }
  double step() const {
    return std::max(1.0, (end() - begin()) / static_cast<double>(ends.size() - 1));
  }
  double longest_step() const {
    double most = 1;
    for (std::size_t k = 1; k < ends.size(); ++k) most = std::max(most, ends[k] - ends[k - 1]);
    return most;
  }
  // Steady steps, and the part of one that is going on. REQUIRES: begin() <= time.
  double progress(double time) const {
    auto next = std::upper_bound(ends.begin(), ends.end(), time);
    if (next == ends.end()) return static_cast<double>(ends.size() - 1);
    return static_cast<double>(next - ends.begin() - 1) +
           (time - *(next - 1)) / std::max(1.0, *next - *(next - 1));
  }
};

struct Window {
  std::size_t from = 0;  // index into Track::ends of this job
  double periods = 0;
};

class Player {
 public:
  Player(const NeighbourJob& own, const Profile& profile, const SimulationOptions& options,
         std::vector<NeighbourJob> others)
      : own_(own), profile_(profile), options_(options), others_(std::move(others)) {
    options_.warmup = true;
    options_.steady_steps = 0;
    own_pace_ = pace_alone(own_);
    for (NeighbourJob& o : others_) {
      Pace p = pace_alone(o);
      // Of what lasts so much longer the first steps would only have to be waited for.
      o.warmup = p.step <= kCounted * own_pace_.step;
      if (!o.warmup) p.warmup = 0;
      paces_.push_back(p);
    }
  }

  PlayedBeside run() {
    double all_warm = (own_pace_.warmup + 1) * own_pace_.step;
    double longest = 0;
    for (const Pace& p : paces_)
      all_warm = std::max(all_warm, p.warmup * p.step), longest = std::max(longest, p.step);
    double until = all_warm + counted(own_pace_.step, longest);
    std::vector<int> played;
    for (int round = 0;; ++round) {
      plan(until);
      std::vector<int> wanted = counts();
      if (round == kRounds || wanted == played) return told({});
      played = wanted;
      out_.simulation =
          simulate(*own_.program, *own_.comm, profile_, *own_.classes, options_, others_);
      if (!out_.simulation.complete) return std::move(out_);
      auto w = window();
      if (w && outlasted()) return told(w);
      if (!affordable_ && round > 0) return told({});
      until = look(w.has_value());
    }
  }

 private:
  Pace pace_alone(const NeighbourJob& job) const {
    SimulationOptions alone = options_;
    alone.spans = false;
    alone.warmup = false;
    alone.steady_steps = 2;
    Simulation s = simulate(*job.program, *job.comm, profile_, *job.classes, alone);
    auto step = static_cast<double>((s.steps[1].end - s.steps[0].end).ps);
    return {std::max(1.0, step), static_cast<double>(s.completions) / 2,
            static_cast<int>(job.program->warmup.size())};
  }

  std::vector<int> counts() const {
    std::vector<int> out{options_.steady_steps};
    for (const NeighbourJob& o : others_) out.push_back(o.steady_steps);
    return out;
  }

  // Steps until that time, never fewer than before; of the others so many that they last longer:
  // what they do after this job's end changes nothing of it.
  void plan(double until) {
    constexpr int kLeast = 3;
    const double most = std::max(kMostTasks, tasks(kCounted + 1, 3.0 * (kCounted + 3)));
    int wanted = std::max({options_.steady_steps, steps_until(until, own_pace_), kCounted + 1});
    affordable_ = tasks(wanted, most) <= most;
    while (wanted > kLeast && tasks(wanted, most) > most) wanted -= 1 + wanted / 64;
    double enough = most;
    while (enough > kLeast && tasks(wanted, enough) > most) enough *= 0.9;
    options_.steady_steps = wanted;
    for (std::size_t k = 0; k < others_.size(); ++k)
      others_[k].steady_steps = static_cast<int>(std::min(theirs(wanted, k), enough));
  }
  static int steps_until(double time, const Pace& p) {
    return static_cast<int>(std::min(std::ceil(time / p.step), 1e8)) - p.warmup;
  }
  double theirs(int mine, std::size_t k) const {
    double end = (own_pace_.warmup + mine) * own_pace_.step;
    return std::max(2.0, std::ceil(1.1 * end / paces_[k].step) + 2 - paces_[k].warmup);
  }
  // Of one simulation, no job of the others with more than `most` steady steps.
  double tasks(int mine, double most) const {
    double sum = (own_pace_.warmup + mine) * own_pace_.tasks;
    for (std::size_t k = 0; k < others_.size(); ++k)
      sum += (paces_[k].warmup + std::min(theirs(mine, k), most)) * paces_[k].tasks;
    return sum;
  }

  bool outlasted() const {
    return std::all_of(
        out_.simulation.others.begin(), out_.simulation.others.end(),
        [&](const auto& steps) { return steps.back().end >= out_.simulation.steps.back().end; });
  }

  // How long a window is, at least.
  static double counted(double own_step, double longest) {
    return std::max(kCounted * own_step,
                    longest > own_step ? kPeriods * longest * 1.02 + 2 * own_step : 0);
  }

  // What was simulated says how long steps are; returns until when the next simulation has to go
  // on.
  double look(bool long_enough) {
    Track own(out_.simulation.steps);
    own_pace_.step = own.end() / static_cast<double>(out_.simulation.steps.size());
    double all_warm = own.ends[1];
    double longest = 0;
    for (std::size_t k = 0; k < others_.size(); ++k) {
      Track other(out_.simulation.others[k]);
      paces_[k].step = other.end() / static_cast<double>(out_.simulation.others[k].size());
      all_warm = std::max(all_warm, other.begin());
      longest = std::max(longest, other.longest_step());  // those after this job's end are shorter
    }
    return long_enough ? own.end()
                       : std::max(1.05 * own.end(), all_warm + counted(own.step(), longest));
  }

  // Ends with this job's last step, begins after everybody's first ones and this job's first steady
  // one; the longest that is a whole number of the slowest other job's steps, as nearly as this
  // job's allow.
  std::optional<Window> window() const {
    Track own(out_.simulation.steps);
    double from = own.ends[1];
    std::optional<Track> slowest;
    for (const auto& steps : out_.simulation.others) {
      Track other(steps);
      from = std::max(from, other.begin());
      if (!slowest || other.step() > slowest->step()) slowest = other;
    }
    std::size_t least = affordable_ ? kCounted : 1;
    double before = 0;
    for (std::size_t i = 1; i + least < own.ends.size(); ++i) {
      if (own.ends[i] < from) continue;
      double p = slowest->progress(own.end()) - slowest->progress(own.ends[i]);
      double after = slowest->progress(own.end()) - slowest->progress(own.ends[i + 1]);
      if (std::round(p) < kPeriods) break;
      if (std::abs(p - std::round(p)) <= 0.5 * std::max(before - p, p - after)) return Window{i, p};
      before = p;
    }
    return {};
  }

  // Without a window: whatever there is after the first steady step.
  PlayedBeside told(std::optional<Window> w) {
    const auto& steps = out_.simulation.steps;
    Beside& b = out_.told;
    b.complete = w.has_value();
    b.periods = w ? w->periods : 0;
    out_.from = steps.size() - Track(steps).ends.size() + (w ? w->from : 1);
    b.jobs = static_cast<int>(others_.size());
    b.steps = static_cast<int>(steps.size() - 1 - out_.from);
    b.mean = {(steps.back().end - steps[out_.from].end).ps / b.steps};
    b.shortest = b.longest = b.last = steps.back().end - steps[steps.size() - 2].end;
    for (std::size_t k = out_.from + 1; k < steps.size(); ++k) {
      b.shortest = std::min(b.shortest, steps[k].end - steps[k - 1].end);
      b.longest = std::max(b.longest, steps[k].end - steps[k - 1].end);
    }
    return std::move(out_);
  }

  NeighbourJob own_;
  const Profile& profile_;
  SimulationOptions options_;
  std::vector<NeighbourJob> others_;
  Pace own_pace_;
  std::vector<Pace> paces_;  // of the others
  PlayedBeside out_;
  bool affordable_ = true;
};

}  // namespace

PlayedBeside play_beside(const NeighbourJob& own, const Profile& profile,
                         const SimulationOptions& options, std::vector<NeighbourJob> others) {
  return Player(own, profile, options, std::move(others)).run();
}

}  // namespace ddpsim::predict
