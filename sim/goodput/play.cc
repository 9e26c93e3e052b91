//   the next failure comes when the hosts' hazard since the last one, integral of hosts / MTBF dt,
//   reaches an exponential number of mean 1
//   between failures: cycles of `steps` steps and a checkpoint, counted, not walked through
#include "sim/goodput/play.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "sim/goodput/draws.h"
#include "sim/units/convert.h"

namespace ddpsim::goodput {
namespace {

// Of a stretch of steps: what the world made of it, and what the missing hosts would have.
struct Work {
  std::int64_t useful = 0;
  std::int64_t missing = 0;
  Work& operator+=(const Work& w) {
    useful += w.useful;
    missing += w.missing;
    return *this;
  }
};

class Player {
 public:
  Player(const Job& job, std::uint64_t seed, std::uint64_t course)
      : j_(job),
        failures_(seed, 2 * course),
        delays_(seed, 2 * course + 1),
        active_(job.hosts),
        spares_(job.spares),
        worked_(saturating_multiply(job.checkpoints.steps, job.step.ps)) {
    stalled_ = std::max(job.checkpoints.stalls.ps, job.checkpoints.writes.ps - worked_);
    cycle_ = saturating_add(worked_, stalled_);
    for (const HostsAt& h : job.added) come_.emplace(h.at.ps, Coming{h.hosts, false});
    hazard_ = failures_.exponential();
  }

  Course run() {
    const std::int64_t end = j_.horizon.ps;
    while (now_ < end) {
      if (down_) {
        if (next_coming() <= now_) take_coming(false);
        if (active_ < j_.least_hosts) {
          wait(std::min(end, next_coming()));
        } else {
          down_ = !suffer();
        }
        continue;
      }
      const std::int64_t failure = next_failure();
      const std::int64_t next = std::max(now_, std::min({end, failure, next_coming()}));
      work(next - now_);
      pass(next - now_);
      if (now_ == end) break;
      if (next == failure) {
        if (survivors()) undo_step();
        strike();
        down_ = true;
      } else {
        take_coming(true);
      }
    }
    settle(older_);
    settle(newer_);
    return out_;
  }

 private:
  struct Coming {
    int hosts = 0;
    bool ready = false;  // a replica group that has started; else a host that has to
  };

  // Time and hazard.
  double rate() const {  // failures a picosecond
    return j_.host_mtbf_s > 0 ? active_ / (j_.host_mtbf_s * kPsPerSecond) : 0;
  }
  std::int64_t drawn_failure() const {
    if (rate() <= 0) return kForever;
    return saturating_add(now_, ceil_ps(std::max(hazard_, 0.0), rate()));
  }
  std::int64_t given_failure() const {
    return given_ < j_.lost.size() ? std::max(now_, j_.lost[given_].at.ps) : kForever;
  }
  std::int64_t next_failure() const { return std::min(drawn_failure(), given_failure()); }
  std::int64_t next_coming() const { return come_.empty() ? kForever : come_.begin()->first; }
  void pass(std::int64_t ps) {
    hazard_ -= static_cast<double>(ps) * rate();
    now_ += ps;
  }
  void spend(Spent s, std::int64_t ps) {
    out_.ledger[s].ps += ps;
    pass(ps);
  }

  // What stands still does not fail.
  void wait(std::int64_t until) {
    out_.ledger[Spent::Waiting].ps += until - now_;
    now_ = until;
  }

  // Work.
  Work made(std::int64_t ps) const {
    auto useful = static_cast<std::int64_t>(static_cast<__int128>(ps) *
                                            std::min(active_, j_.hosts) / j_.hosts);
    return {useful, ps - useful};
  }
  void settle(Work& w) {
    out_.ledger[Spent::Useful].ps += w.useful;
    out_.ledger[Spent::Missing].ps += w.missing;
    w = {};
  }
  void lose(Work& w) {
    out_.ledger[Spent::LostWork].ps += w.useful + w.missing;
    w = {};
  }
  // Within a cycle. REQUIRES: at_ + ps <= its end.
  void part(std::int64_t ps) {
    const std::int64_t steps = std::clamp<std::int64_t>(worked_ - at_, 0, ps);
    newer_ += made(steps);
    out_.ledger[Spent::Checkpoint].ps += ps - steps;
    at_ += ps;
    if (at_ >= j_.checkpoints.writes.ps) settle(older_);
  }
  void end_cycle() {
    settle(older_);
    older_ = newer_;
    newer_ = {};
    at_ = 0;
    if (j_.checkpoints.writes.ps == 0) settle(older_);
  }
  void work(std::int64_t ps) {
    if (const std::int64_t rest = cycle_ - at_; ps >= rest) {
      part(rest);
      end_cycle();
      ps -= rest;
      if (const std::int64_t whole = ps / cycle_; whole > 0) {
        newer_ = made((whole - 1) * worked_);
        settle(newer_);
        out_.ledger[Spent::Checkpoint].ps += (whole - 1) * stalled_;
        part(cycle_);
        end_cycle();
        ps -= whole * cycle_;
      }
    }
    part(ps);
  }
  // A checkpoint that was being made is none.
  void abandon_checkpoint() {
    const std::int64_t stood = std::max<std::int64_t>(at_ - worked_, 0);
    out_.ledger[Spent::Checkpoint].ps -= stood;
    out_.ledger[Spent::LostWork].ps += stood;
    at_ -= stood;
  }
  void roll_back() {
    abandon_checkpoint();
    lose(newer_);
    lose(older_);
    at_ = 0;
  }
  void undo_step() {
    abandon_checkpoint();
    Work last = made(at_ % j_.step.ps);
    // Of a step in which hosts came or went, what it was made by.
    const std::int64_t whole = last.useful + last.missing;
    last.useful = std::clamp(last.useful, whole - newer_.missing, newer_.useful);
    last.missing = whole - last.useful;
    newer_.useful -= last.useful;
    newer_.missing -= last.missing;
    at_ -= last.useful + last.missing;
    lose(last);
  }

  // Hosts.
  Circumstances circumstances(bool replaced) const {
    return {j_.recovery, j_.failure, active_, replaced, active_ >= j_.hosts};
  }
  bool survivors() const { return j_.recovery == Recovery::Torchft; }
  bool loses_host() const {
    return j_.failure == Failure::Host || j_.recovery != Recovery::Torchrun;
  }
  void take_away(int hosts, bool given) {
    hosts = std::min(hosts, active_);
    replaced_ = true;
    if (!given && !loses_host()) return;
    active_ -= hosts;
    const std::int64_t started = survivors() ? rejoins_after(j_.times).ps : 0;
    // A process that ended, of a replica group whose host is good, starts again there.
    const bool good = survivors() && !given && j_.failure != Failure::Host;
    if (good) {
      come_.emplace(saturating_add(now_, started), Coming{hosts, true});
      return;
    }
    if (j_.back) come_.emplace(saturating_add(now_, j_.back->ps), Coming{hosts, false});
    const int taken = std::min(spares_, hosts);
    spares_ -= taken;
    if (survivors()) {
      if (taken > 0) come_.emplace(saturating_add(now_, started), Coming{taken, true});
    } else {
      active_ += taken;
      replaced_ = taken > 0;
    }
  }
  // At a failure: who is lost, what is rolled back, when the next one fails.
  void strike() {
    ++out_.failures;
    if (drawn_failure() <= given_failure()) {
      hazard_ = failures_.exponential();
      take_away(1, false);
    } else {
      take_away(j_.lost[given_++].hosts, true);
    }
    if (!survivors() || active_ == 0) roll_back();
    recover(true, replaced_);
  }
  // The same circumstances have the same list.
  void recover(bool failed, bool replaced) {
    const Circumstances now = circumstances(replaced);
    if (failed == failed_ && known_ == now) return;
    failed_ = failed;
    known_ = now;
    list_ = failed ? after_failure(j_.times, now) : after_joining(j_.times, now);
  }
  // False: the next failure came first.
  bool suffer() {
    for (const Delay& d : list_) {
      const auto drawn =
          static_cast<std::int64_t>(delays_.uniform() * static_cast<double>(d.random.ps));
      const std::int64_t end =
          std::min(j_.horizon.ps, saturating_add(now_, saturating_add(d.fixed.ps, drawn)));
      const std::int64_t next = next_failure();
      spend(d.spent, std::min(end, next) - now_);
      if (next < end) {
        strike();
        return false;
      }
    }
    return true;
  }
  // Those whose time has come. `running`: the job is, and they are let in at a price.
  void take_coming(bool running) {
    int joined = 0;
    while (!come_.empty() && come_.begin()->first <= now_) {
      Coming c = come_.begin()->second;
      come_.erase(come_.begin());
      const int wanted = std::max(0, j_.hosts - active_ - joined - starting());
      const int in = c.ready ? c.hosts : std::min(c.hosts, wanted);
      spares_ += c.hosts - in;
      if (survivors() && !c.ready) {
        if (in > 0)
          come_.emplace(saturating_add(now_, rejoins_after(j_.times).ps), Coming{in, true});
      } else {
        joined += in;
      }
    }
    if (joined == 0) return;
    if (running && j_.recovery == Recovery::Torchrun) roll_back();
    active_ += joined;
    out_.joins += running ? 1 : 0;
    recover(!running, true);
    down_ = true;
  }
  int starting() const {
    int n = 0;
    for (const auto& [at, c] : come_) n += c.ready ? c.hosts : 0;
    return n;
  }

  const Job& j_;
  Draws failures_;
  Draws delays_;
  Course out_;
  std::int64_t now_ = 0;
  double hazard_ = 0;      // that is left until the next drawn failure
  std::size_t given_ = 0;  // failures that were
  int active_;
  int spares_;
  std::multimap<std::int64_t, Coming> come_;
  bool down_ = false;
  bool replaced_ = true;  // of the last failure
  std::vector<Delay> list_;
  bool failed_ = false;  // what list_ is of
  std::optional<Circumstances> known_;
  std::int64_t worked_;   // steps of a cycle
  std::int64_t stalled_;  // its checkpoint
  std::int64_t cycle_;    // both
  std::int64_t at_ = 0;   // within the cycle
  Work newer_;            // since the last checkpoint
  Work older_;            // in a checkpoint that is being written
};

}  // namespace

Course play(const Job& job, std::uint64_t seed, std::uint64_t course) {
  return Player(job, seed, course).run();
}

Courses play_many(const Job& job, std::uint64_t seed, int count) {
  Courses out;
  out.count = count;
  std::vector<double> seen;
  for (int i = 0; i < count; ++i) {
    Course c = play(job, seed, i);
    for (Spent s : Ledger::names()) out.share[s] += c.ledger[s] / job.horizon / count;
    out.failures += static_cast<double>(c.failures) / count;
    out.joins += static_cast<double>(c.joins) / count;
    seen.push_back(c.ledger[Spent::Useful] / job.horizon);
  }
  out.goodput = out.share[Spent::Useful];
  std::sort(seen.begin(), seen.end());
  const auto at = [&](double q) {
    return seen[static_cast<std::size_t>(std::lround(q * static_cast<double>(seen.size() - 1)))];
  };
  out.low = at(0.1);
  out.high = at(0.9);
  double squares = 0;
  for (double g : seen) squares += (g - out.goodput) * (g - out.goodput);
  if (count > 1) out.error = std::sqrt(squares / (count - 1) / count);
  return out;
}

}  // namespace ddpsim::goodput
