#include "calib/fit/kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "calib/fit/host.h"
#include "calib/fit/operators.h"
#include "calib/fit/samples.h"
#include "calib/fit/shapes.h"

namespace ddpsim::calib {
namespace {

struct Point {
  double flops = 0;
  double bytes = 0;
  double ps = 0;  // median
  Precision precision = Precision::Fp32;
  std::size_t kernel = 0;  // 0 gemm, 1 conv
  bool held_out = false;
};

Precision precision_of(const Sample& s) {
  std::int64_t p = parameter(s, "precision");
  if (p < 0 || p > 3) throw InputError{"sample " + s.op, "precision is 0 to 3"};
  return static_cast<Precision>(p);
}

Point point(const Sample& s) {
  Point out;
  out.ps = median_ps(s);
  out.held_out = held_out(s.op, s.parameters);
  if (s.op == "move") {
    out.bytes = static_cast<double>(parameter(s, "traffic"));
    return out;
  }
  out.precision = precision_of(s);
  const Precision type = out.precision;
  if (s.op == "gemm" || s.op == "torch/linear") {
    Gemm g{parameter(s, "m"), parameter(s, "n"), parameter(s, "k")};
    out.flops = flops(g);
    out.bytes = bytes(g, type);
  } else {
    out.kernel = 1;
    Conv c{parameter(s, "batch"),   parameter(s, "channels"), parameter(s, "size"),
           parameter(s, "filters"), parameter(s, "kernel"),   parameter(s, "stride")};
    out.flops = flops(c);
    out.bytes = bytes(c, type);
  }
  return out;
}

int octave(double ideal_ps) {  // floor(log2)
  int exponent = 0;
  std::frexp(std::max(ideal_ps, 1.0), &exponent);
  return exponent - 1;
}
std::int64_t middle(int octave) {
  return static_cast<std::int64_t>(std::ldexp(1.4142135623730951, octave));
}

// Knots of what is left, by octave of the ideal duration; the longest octave has 1.
std::vector<Knot> knots_of(const std::map<int, std::vector<double>>& factors) {
  std::vector<Knot> out;
  for (const auto& [o, f] : factors)
    out.push_back({middle(o), std::round(std::clamp(analysis::median(f), 1e-3, 1e3) * 1e4) / 1e4});
  return out;
}

Range spread(const std::vector<double>& v) {
  double mid = std::min(1.0, analysis::median(v));
  return {std::min(mid, analysis::percentile(v, 10)), mid,
          std::max(mid, std::min(1.0, analysis::percentile(v, 90)))};
}

struct Model {
  const Profile& p;
  double memory(const Point& q) const {
    double ideal = q.bytes / (p.memory.bandwidth_bytes_per_s * p.memory.efficiency.mid) * 1e12;
    return std::max(static_cast<double>(p.memory.kernel.ps),
                    ideal * correction(p.memory.stretch, ideal));
  }
  double ideal(const Point& q) const {
    return q.flops / (p.compute.peak_flops[q.precision] * p.compute.efficiency[q.kernel].mid) *
           1e12;
  }
  double time(const Point& q) const {
    if (q.flops <= 0 || p.compute.peak_flops[q.precision] <= 0) return memory(q);
    double i = ideal(q);
    return std::max(memory(q), i * correction(p.compute.stretch[q.kernel], i));
  }
};

void fit_memory(const std::vector<Point>& points, Profile& p) {
  double best = 0;
  double floor = 1e15;
  for (const Point& q : points) {
    if (q.held_out) continue;
    best = std::max(best, q.bytes / q.ps * 1e12);
    floor = std::min(floor, q.ps);
  }
  if (best <= 0) return;
  p.memory.bandwidth_bytes_per_s = std::round(best);
  p.memory.kernel = {static_cast<std::int64_t>(floor)};
  p.memory.efficiency = {1, 1, 1};
  p.memory.stretch.clear();
  int top = 0;
  auto ideal = [&](const Point& q) { return q.bytes / best * 1e12; };
  for (const Point& q : points)
    if (!q.held_out) top = std::max(top, octave(ideal(q)));
  std::vector<double> large;
  for (const Point& q : points)
    if (!q.held_out && octave(ideal(q)) >= top - 1) large.push_back(ideal(q) / q.ps);
  p.memory.efficiency = spread(large);
  std::map<int, std::vector<double>> factors;
  for (const Point& q : points) {
    double i = ideal(q) / p.memory.efficiency.mid;
    if (!q.held_out && q.ps > 1.02 * floor)
      factors[octave(i)].push_back(q.ps / i);  // what is not the floor
  }
  p.memory.stretch = knots_of(factors);
}

// `kernel`: 0 gemm, 1 conv.
void fit_products(const std::vector<Point>& points, std::size_t kernel, Profile& p) {
  std::vector<const Point*> mine;
  Model model{p};
  for (const Point& q : points)
    if (!q.held_out && q.kernel == kernel && q.flops > 0 && q.ps > 1.1 * model.memory(q))
      mine.push_back(&q);  // what memory does not decide
  if (mine.empty()) return;
  p.compute.efficiency[kernel] = {1, 1, 1};
  p.compute.stretch[kernel].clear();
  std::map<Precision, int> top;  // by precision
  for (const Point* q : mine)
    top[q->precision] =
        std::max(top.try_emplace(q->precision, 0).first->second, octave(model.ideal(*q)));
  std::vector<double> large;
  for (const Point* q : mine)
    if (octave(model.ideal(*q)) >= top[q->precision] - 1) large.push_back(model.ideal(*q) / q->ps);
  p.compute.efficiency[kernel] = spread(large);
  std::map<int, std::vector<double>> factors;
  for (const Point* q : mine) {
    double i = model.ideal(*q);
    factors[octave(i)].push_back(q->ps / i);
  }
  p.compute.stretch[kernel] = knots_of(factors);
}

void add_residual(const std::string& name, const std::vector<Point>& points, bool held_out,
                  Profile& p, auto belongs) {
  std::vector<double> errors;
  KernelResidual r;
  r.kernel = name;
  r.held_out = held_out;
  Model model{p};
  for (const Point& q : points) {
    if (q.held_out != held_out || !belongs(q)) continue;
    double size = q.flops > 0 ? q.flops : q.bytes;
    r.least = errors.empty() ? size : std::min(r.least, size);
    r.most = std::max(r.most, size);
    errors.push_back(std::abs(model.time(q) / q.ps - 1));
  }
  r.points = static_cast<int>(errors.size());
  if (errors.empty()) return;
  r.median_error = std::round(analysis::median(errors) * 1e4) / 1e4;
  r.p90_error = std::round(analysis::percentile(errors, 90) * 1e4) / 1e4;
  p.kernels.push_back(r);
}

// How much a communication kernel of NCCL's usual size (16 to 24 blocks) slows products and what
// memory decides; and what others do, where both were measured.
void fit_interference(const std::vector<const Run*>& runs, KernelFit& out) {
  constexpr double kLeast = 0.001;  // a profile's shares are above 0
  std::array<std::vector<double>, 2> lost;
  const Losses by_blocks = losses_beside(runs);
  for (const auto& [blocks, of] : by_blocks)
    if (blocks >= 16 && blocks <= 24)
      for (std::size_t k : {0, 1}) lost[k].insert(lost[k].end(), of[k].begin(), of[k].end());
  if (lost[0].empty()) return;
  Profile& p = out.profile;
  p.interference_basis = Evidence::Measured;
  p.sm_hold = hold_of(lost[0]);
  if (!lost[1].empty()) p.memory_hold = hold_of(lost[1]);
  p.hold_at.clear();
  for (const auto& [blocks, of] : by_blocks)
    if (!of[0].empty() && !of[1].empty())
      p.hold_at.push_back({static_cast<int>(blocks), std::max(kLeast, analysis::median(of[0])),
                           std::max(kLeast, analysis::median(of[1]))});
  out.notes.push_back("interference: a stand-in of 16 to 24 blocks takes " +
                      number("%.0f", 100 * p.sm_hold.mid) + " % of products" +
                      (!lost[1].empty() ? "" : " (nothing memory-bound was measured)"));
}

// What benchmark mode of cuDNN takes of heuristics mode's time, by shape; nothing is fitted from
// it.
std::vector<double> benchmark_shares(const std::vector<const Run*>& runs) {
  std::map<std::vector<std::int64_t>, double> fitted;
  std::vector<double> out;
  for (bool first : {true, false})
    for (const Run* run : runs)
      for (const Sample& s : run->samples) {
        if (s.op != "conv" || s.durations.empty() || by_heuristics(s) != first) continue;
        std::vector<std::int64_t> shape;
        for (const char* name :
             {"batch", "channels", "size", "filters", "kernel", "stride", "pass", "precision"})
          shape.push_back(parameter(s, name));
        if (first)
          fitted[shape] = median_ps(s);
        else if (auto same = fitted.find(shape); same != fitted.end())
          out.push_back(median_ps(s) / same->second);
      }
  return out;
}

// ", PyTorch 2.11.0 ...", of the Runs that say it.
std::string software_of(const std::vector<const Run*>& runs) {
  for (const Run* run : runs)
    if (!run->origin.software.empty()) return ", " + run->origin.software;
  return {};
}

}  // namespace

KernelFit fit_kernels(const Profile& base, const std::string& name,
                      const std::vector<const Run*>& runs) {
  KernelFit out;
  Profile& p = out.profile;
  p = base;
  p.name = name;
  p.kernels.clear();
  std::vector<Point> moves;
  std::vector<Point> products;
  bool bench = false;  // ddpsim's own, of matrix products
  for (const Run* run : runs)
    for (const Sample& s : run->samples) bench |= s.op == "gemm";
  auto linear = [&](const Sample& s) {
    return !bench && s.op == "torch/linear" && parameter(s, "pass") == 0;
  };
  for (const Run* run : runs)
    for (const Sample& s : run->samples) {
      if (s.durations.empty()) continue;
      if (s.op == "move")
        moves.push_back(point(s));
      else if (s.op == "gemm" || (s.op == "conv" && by_heuristics(s)) || linear(s))
        products.push_back(point(s));
    }
  int sms = base.kind == DeviceKind::Cpu ? 1 : 0;
  for (const Run* run : runs) sms = std::max(sms, gpu_size(run->origin.gpu).sms);
  if (moves.empty() && products.empty())
    throw InputError{
        "fit",
        "no Run holds samples of kernels (ddpsim calibrate --backend cuda --runs DIR makes them)"};
  if (!moves.empty()) {
    fit_memory(moves, p);
    p.memory.basis = Evidence::Measured;
    p.memory.source = "fitted from " + std::to_string(moves.size()) +
                      " memory-bound kernels; capacity as in the base profile";
    out.notes.push_back("memory: " + number("%.0f", p.memory.bandwidth_bytes_per_s / 1e9) +
                        " GB/s at best, a kernel takes " +
                        number("%.1f", static_cast<double>(p.memory.kernel.ps) / 1e6) +
                        " us at least");
  }
  // The best rate of a matrix product: convolutions may do fewer operations than are counted
  // (Winograd, FFT), and are the measure only where nothing else was measured.
  std::map<Precision, double> best;
  for (std::size_t kernel : {std::size_t{0}, std::size_t{1}}) {
    std::map<Precision, double> of_kernel;
    for (const Point& q : products)
      if (!q.held_out && q.kernel == kernel)
        of_kernel[q.precision] = std::max(of_kernel[q.precision], q.flops / q.ps * 1e12);
    best.insert(of_kernel.begin(), of_kernel.end());
  }
  if (!best.empty()) {
    p.compute.peak_flops = {};
    for (const auto& [precision, rate] : best) {
      p.compute.peak_flops[precision] = std::round(rate);
      out.notes.push_back(std::string(name_of(precision)) + ": " + number("%.1f", rate / 1e12) +
                          " TFLOP/s at best");
    }
    for (std::size_t kernel : {std::size_t{0}, std::size_t{1}}) fit_products(products, kernel, p);
    bool convs =
        std::any_of(products.begin(), products.end(), [](const Point& q) { return q.kernel == 1; });
    std::vector<double> shares = benchmark_shares(runs);
    if (!shares.empty())
      out.notes.push_back(
          "convolutions: fitted in cuDNN's heuristics mode, PyTorch's default; benchmark mode "
          "takes " +
          number("%.2f", analysis::median(shares)) + " of its time at the median of " +
          std::to_string(shares.size()) + " shapes and passes, " +
          number("%.2f", analysis::percentile(shares, 10)) + " in one of ten");
    p.compute.basis = Evidence::Measured;
    p.compute.source =
        "fitted from " + std::to_string(products.size()) +
        " matrix products and convolutions; peak_flops: the best rate measured" +
        (convs ? "" : "; no convolution was measured: its efficiency is the base profile's") +
        (shares.empty() ? "" : "; convolutions in cuDNN's heuristics mode, PyTorch's default") +
        "; attention: the base profile's range";
  }
  fit_host(runs, p, out.notes);
  fit_interference(runs, out);
  for (bool held : {false, true}) {
    add_residual("memory", moves, held, p, [](const Point&) { return true; });
    for (std::size_t kernel : {std::size_t{0}, std::size_t{1}})
      for (Precision precision : kPrecisions.names())
        add_residual(
            std::string(kernel == 0 ? "gemm " : "conv ") + name_of(precision), products, held, p,
            [&](const Point& q) { return q.kernel == kernel && q.precision == precision; });
  }
  if (sms == 0) {
    out.notes.push_back(
        "kernels: no Run says how many SMs the GPU has; products are not fitted by tiles");
    return out;
  }
  OperatorFit operators = fit_operators(sms, runs);
  p.costs = std::move(operators.costs);
  p.costs->source =
      "fitted to operators of one machine" + software_of(runs) + "; one shape in three left out";
  p.kernels = std::move(operators.residuals);
  out.notes.insert(out.notes.end(), operators.notes.begin(), operators.notes.end());
  return out;
}

}  // namespace ddpsim::calib
