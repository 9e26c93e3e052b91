#include "sim/model/profile.h"

namespace ddpsim {
namespace {

Problem check_range(const Range& r, const std::string& path, double low, double high) {
  bool ordered = r.low <= r.mid && r.mid <= r.high;
  if (!ordered || !(r.low >= low) || !(r.high <= high))
    return {path, "low <= mid <= high, fractions within 0 and 1"};
  return {};
}

Problem check_knots(const std::vector<Knot>& knots, const std::string& path,
                    const std::string& what) {
  for (std::size_t i = 0; i < knots.size(); ++i) {
    if (!(knots[i].factor >= 1e-3 && knots[i].factor <= 1e3))
      return {path + std::to_string(i) + "/factor", "a factor is 0.001 to 1000"};
    if (knots[i].at < 0 || (i > 0 && knots[i].at <= knots[i - 1].at))
      return {path + std::to_string(i) + "/" + what, "knots are in ascending order of " + what};
  }
  return {};
}

Problem check_occasions(const TransportSection& t, const std::string& path) {
  if (!t.occasions) return {};
  const Occasions& o = *t.occasions;
  if (o.count < 2) return {path + "/count", "a range is over 2 or more occasions; leave it out"};
  auto ordered = [](const DurationRange& r) {
    return r.low.ps >= 0 && r.low <= r.mid && r.mid <= r.high;
  };
  if (!ordered(o.latency)) return {path + "/latency_ps", "0 <= low <= mid <= high"};
  if (!ordered(o.message_core)) return {path + "/message_core_ps", "0 <= low <= mid <= high"};
  if (o.latency.mid != t.latency)
    return {path + "/latency_ps/mid", "is the transport's latency_ps, and must equal it"};
  if (o.message_core.mid != t.message_core)
    return {path + "/message_core_ps/mid", "is the transport's message_core_ps, and must equal it"};
  for (auto [core, whole] : {std::pair{o.message_core.low, o.latency.low},
                             std::pair{o.message_core.high, o.latency.high}})
    if (core > whole)
      return {path + "/message_core_ps", "is a part of latency_ps, and cannot be longer"};
  return {};
}

}  // namespace

double at(const Range& r, Level level) {
  return level == Level::Low ? r.low : level == Level::Mid ? r.mid : r.high;
}

bool Profile::measured() const {
  bool m = compute.basis == Evidence::Measured && memory.basis == Evidence::Measured &&
           host.basis == Evidence::Measured;
  for (const auto& [transport, t] : transports) m = m && t.basis == Evidence::Measured;
  for (const auto& basis : {interference_basis, reduction_basis})
    m = m && basis.value_or(Evidence::Measured) == Evidence::Measured;
  return m;
}

Problem validate(const PowerSection& p) {
  constexpr double kMost = 1e5;
  if (!(p.limit_w > 0 && p.limit_w <= kMost))
    return {"/power/limit_w", "more than 0 and at most 100000 watts"};
  const Draw& d = p.draw;
  if (!(d.busy_w >= 0 && d.busy_w <= kMost)) return {"/power/busy_w", "0 to 100000 watts"};
  if (!(d.idle_w >= 0 && d.idle_w < p.limit_w)) return {"/power/idle_w", "is below limit_w"};
  for (double joules : d.joules_per_flop)
    if (!(joules >= 0 && joules <= 1e-6))
      return {"/power/joules_per_flop", "0 to a millionth of a joule"};
  if (!p.like) return {};
  const SameChip& c = *p.like;
  if (!(c.limit_w > 0 && c.limit_w <= kMost))
    return {"/power/like/limit_w", "more than 0 and at most 100000 watts"};
  if (!(c.clock_hz > 0)) return {"/power/like/clock_hz", "a clock is positive"};
  if (!(c.peak_flops[Precision::Fp32] > 0)) return {"/power/like/peak_flops", "fp32 at least"};
  return {};
}

Problem validate(const Profile& p) {
  if (p.name.empty()) return {"/name", "a profile needs a name"};
  for (std::size_t i = 0; i < p.compute.efficiency.size(); ++i)
    if (auto e = check_range(p.compute.efficiency[i], "/compute/efficiency", 1e-6, 1)) return e;
  for (std::size_t i = 0; i < p.compute.stretch.size(); ++i)
    if (auto e =
            check_knots(p.compute.stretch[i],
                        std::string("/compute/stretch/") + kKernelClasses[i] + "/", "ideal_ps"))
      return e;
  if (p.power)
    if (auto e = validate(*p.power)) return e;
  if (auto e = check_knots(p.memory.stretch, "/memory/stretch/", "ideal_ps")) return e;
  if (!(p.memory.bandwidth_bytes_per_s >= 1e6))
    return {"/memory/bandwidth_bytes_per_s",
            "memory bandwidth is at least a million bytes a second"};
  if (p.memory.capacity.count < 0) return {"/memory/capacity_bytes", "a capacity is not negative"};
  if (auto e = check_range(p.memory.efficiency, "/memory/efficiency", 1e-6, 1)) return e;
  for (Duration d :
       {p.memory.kernel, p.host.launch, p.host.hook, p.host.collective_launch, p.host.traverse})
    if (d.ps < 0) return {"", "times are not negative"};
  for (const CallCost& c : p.host.calls)
    if (c.forward.ps < 0 || c.backward.ps < 0 || c.op.empty())
      return {"/host/calls", "times of a call are not negative, and of an op"};
  if (const Range& f = p.host.call_factor;
      !(f.high > 0.01 && f.high <= f.mid && f.mid <= f.low && f.low <= 100))
    return {"/host/call_factor", "0.01 < high <= mid <= low <= 100 (low takes most)"};
  if (p.costs)
    if (auto e = validate(*p.costs)) return e;
  if (p.transports.empty()) return {"/transports", "a profile needs at least one transport"};
  for (const auto& [name, t] : p.transports) {
    std::string path = "/transports/" + name;
    if (auto e = check_range(t.efficiency, path + "/efficiency", 1e-6, 1)) return e;
    if (t.host_memory)
      if (auto e = check_range(*t.host_memory, path + "/host_memory", 1e-6, 1)) return e;
    if (const auto& r = t.thread_bytes_per_s;
        r && !(r->low >= 1e6 && r->low <= r->mid && r->mid <= r->high && r->high <= 1e12))
      return {path + "/thread_bytes_per_s",
              "low <= mid <= high, a million to a million million bytes a second"};
    if (!(t.one_way >= 1 && t.one_way <= 2))
      return {path + "/one_way", "1 (as fast as one that does both) to 2"};
    if (!(t.step_factor >= 0.01 && t.step_factor <= 100))
      return {path + "/step_factor", "a factor is 0.01 to 100"};
    if (t.launch.ps < 0 || t.latency.ps < 0) return {path, "times are not negative"};
    if (t.ll_max_bytes_per_s != 0 && !(t.ll_max_bytes_per_s >= 1e3))
      return {path + "/ll_max_bytes_per_s", "a rate is at least a thousand bytes a second"};
    if (auto e = check_knots(t.knots, path + "/knots/", "chunk_bytes")) return e;
    if (auto e = check_occasions(t, path + "/occasions")) return e;
  }
  for (const auto& [hold, path] :
       {std::pair{p.sm_hold, "/interference/sm_hold"},
        std::pair{p.memory_hold.value_or(Range{0, 0, 0}), "/interference/memory_hold"}})
    if (!(hold.high <= hold.mid && hold.mid <= hold.low && hold.high >= 0 && hold.low < 1))
      return {path, "0 <= high <= mid <= low < 1 (low takes most)"};
  for (std::size_t k = 0; k < p.hold_at.size(); ++k) {
    const Profile::HoldAt& h = p.hold_at[k];
    const bool rises = k == 0 || (h.blocks > p.hold_at[k - 1].blocks);
    if (!(rises && h.blocks > 0 && h.products > 0 && h.products < 1 && h.memory > 0 &&
          h.memory < 1))
      return {"/interference/by_blocks",
              "more blocks from one to the next, shares between 0 and 1"};
  }
  const Range cv = p.rank_cv.value_or(Range{0, 0, 0});
  if (!(0 <= cv.high && cv.high <= cv.mid && cv.mid <= cv.low && cv.low <= 0.5))
    return {"/stragglers/cv", "0 <= high <= mid <= low <= 0.5 (low varies most)"};
  if (p.reduction_bytes_per_s != 0 && !(p.reduction_bytes_per_s >= 1e3))
    return {"/reduction/bytes_per_s", "a rate is at least a thousand bytes a second"};
  return {};
}

double correction(const std::vector<Knot>& knots, double x) {
  if (knots.empty()) return 1;
  if (x <= static_cast<double>(knots.front().at)) return knots.front().factor;
  for (std::size_t i = 1; i < knots.size(); ++i) {
    auto x0 = static_cast<double>(knots[i - 1].at);
    auto x1 = static_cast<double>(knots[i].at);
    if (x <= x1)
      return knots[i - 1].factor + (knots[i].factor - knots[i - 1].factor) * (x - x0) / (x1 - x0);
  }
  return knots.back().factor;
}

double hold_factor(const Profile& p, int channels, bool memory) {
  if (p.hold_at.empty() || channels <= 0) return 1;
  auto at = [&](double blocks) {
    auto share = [&](const Profile::HoldAt& h) { return memory ? h.memory : h.products; };
    const Profile::HoldAt* before = &p.hold_at.front();
    for (const Profile::HoldAt& h : p.hold_at) {
      if (h.blocks >= blocks) {
        if (h.blocks == before->blocks) return share(h) * std::min(1.0, blocks / h.blocks);
        const double part = (blocks - before->blocks) / (h.blocks - before->blocks);
        return share(*before) + (share(h) - share(*before)) * part;
      }
      before = &h;
    }
    return share(*before);
  };
  constexpr double kSms = 132;  // of the GPUs that it was measured on
  return at(channels * (p.compute.sms > 0 ? kSms / p.compute.sms : 1)) / at(kUsualBlocks);
}

}  // namespace ddpsim
