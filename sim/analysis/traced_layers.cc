// Autograd numbers its nodes as forward makes them, and backward's events bear the number: the node
// before a parameter's AccumulateGrad says which operator of forward used the parameter. Operators
// bear the number of the node that is made next, so that the last to begin with a number made it;
// the outermost one around it is where its module began, less Python.
//   forward_l = begin_(l+1) - begin_l   GPU: last end of kernels enqueued before begin_(l+1),
//                                       less the same before begin_l
#include "sim/analysis/traced_layers.h"

#include <algorithm>
#include <map>

#include "sim/analysis/trace_device.h"

namespace ddpsim::analysis {
namespace {

// Begins of the operators of forward, by the number of the node that they made.
std::map<std::int64_t, TimePoint> used_at(const Trace& trace, const TracedStep& step) {
  std::map<std::int64_t, TimePoint> out;
  TimePoint outer_begin{INT64_MIN};
  TimePoint outer_end{INT64_MIN};
  for (const TraceEvent& e : trace.events) {
    if (e.begin >= step.backward_begin) break;
    if (e.begin < step.iteration.begin || e.what != Traced::Operator ||
        e.thread != step.iteration.thread)
      continue;
    if (e.begin >= outer_end) {
      outer_begin = e.begin;
      outer_end = e.end;
    }
    out[e.correlation] = outer_begin;
  }
  return out;
}

// Of parts that may be longer than the whole: shares of it.
void fit(std::vector<TracedLayer>& layers, Duration TracedLayer::*part, Duration whole) {
  Duration sum;
  for (const TracedLayer& l : layers) sum += l.*part;
  if (sum <= whole) return;
  for (TracedLayer& l : layers)
    l.*part = {static_cast<std::int64_t>(static_cast<__int128>((l.*part).ps) * whole.ps / sum.ps)};
}

// Until when the device works on what the host enqueued before each of these times.
std::vector<TimePoint> device_until(const Trace& trace, const TracedStep& step,
                                    const std::vector<TimePoint>& times) {
  std::map<std::int64_t, TimePoint> launched;
  for (const TraceEvent& e : trace.events) {
    if (e.begin >= step.backward_begin) break;
    if (e.what == Traced::Launch && e.begin >= step.iteration.begin)
      launched.try_emplace(e.correlation, e.begin);
  }
  std::vector<TimePoint> out(times.size(), step.forward_begin);
  for (const TraceEvent& e : trace.events) {
    if (e.what != Traced::Device) continue;
    auto at = launched.find(e.correlation);
    if (at == launched.end()) continue;
    auto after = std::upper_bound(times.begin(), times.end(), at->second) - times.begin();
    if (static_cast<std::size_t>(after) == times.size()) continue;
    TimePoint& until = out[after];
    until = std::max(until, std::min(e.end, step.forward_end));
  }
  for (std::size_t k = 1; k < out.size(); ++k) out[k] = std::max(out[k], out[k - 1]);
  return out;
}

}  // namespace

std::vector<TracedLayer> layers_of(const Trace& trace, const TracedStep& step,
                                   const std::vector<std::string>& modules) {
  std::map<std::int64_t, TimePoint> used = used_at(trace, step);
  struct Found {
    TimePoint begin;
    TracedLayer layer;
  };
  std::map<std::string, Found> found;
  for (std::size_t k = 0; k < step.nodes.size(); ++k) {
    auto at = used.find(step.nodes[k]);
    if (step.nodes[k] < 0 || at == used.end()) return {};
    std::string module = modules[k];
    if (module.empty()) module = "operator." + std::to_string(at->second.ps);
    auto [of, first] = found.try_emplace(module, Found{at->second, {module, {}, {}, {}}});
    of->second.begin = std::min(of->second.begin, at->second);
    of->second.layer.arrivals.push_back(k);
  }
  std::vector<Found> order;
  for (auto& [module, f] : found) order.push_back(std::move(f));
  std::sort(order.begin(), order.end(),
            [](const Found& a, const Found& b) { return a.begin < b.begin; });
  std::vector<TracedLayer> out;
  std::vector<TimePoint> begins;
  for (Found& f : order) {
    begins.push_back(f.begin);
    out.push_back(std::move(f.layer));
  }
  for (std::size_t l = 0; l < out.size(); ++l) {
    if (modules[out[l].arrivals.front()].empty()) out[l].name = "layer." + std::to_string(l);
    out[l].forward = (l + 1 < out.size() ? begins[l + 1] : step.backward_begin) - begins[l];
  }
  if (!step.times.host) {
    fit(out, &TracedLayer::forward, step.times.forward);
    return out;
  }
  std::vector<TimePoint> until = device_until(trace, step, begins);
  until.push_back(step.forward_end);
  for (std::size_t l = 0; l < out.size(); ++l) {
    out[l].host_forward = out[l].forward;
    out[l].forward = std::max(until[l + 1] - until[l], Duration{});
  }
  fit(out, &TracedLayer::forward, step.times.forward);
  fit(out, &TracedLayer::host_forward, step.times.host->forward);
  return out;
}

}  // namespace ddpsim::analysis
