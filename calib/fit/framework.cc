#include "calib/fit/framework.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>

#include "calib/fit/samples.h"

namespace ddpsim::calib {
namespace {

constexpr double kSmallMatrix = 16 << 10;  // bytes of one whose product is its operators' calls
constexpr std::int64_t kLarge = 1 << 20;   // bytes of a tensor whose kernels do not count

// Time that `with` adds to `without`, of a model without computation: {tensors, bytes of each,
// ranks at once} -> picoseconds.
using Added = std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, double>;
Added added(const std::vector<FitCollectives>& runs, const char* without, const char* with) {
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>,
           std::map<bool, std::vector<double>>>
      found;
  for (const FitCollectives& c : runs)
    for (const Sample& s : c.run->samples)
      if (bool more = s.op == with; more || s.op == without)
        found[{parameter(s, "tensors"), parameter(s, "bytes"), parameter(s, "ranks")}][more]
            .push_back(median_ps(s));
  Added out;
  for (const auto& [key, sides] : found)
    if (sides.size() == 2)
      out[key] = analysis::median(sides.at(true)) - analysis::median(sides.at(false));
  return out;
}

// fp16_compress_hook reads and writes four times the bucket's bytes, and divides half of them: what
// large buckets take, less the traffic.
void fit_half_division(const Added& by_hook, Fit& out) {
  std::vector<double> found;
  for (const auto& [key, ps] : by_hook) {
    auto [tensors, bytes, ranks] = key;
    auto total = static_cast<double>(bytes * tensors);
    double left = ps - 4e12 * total / out.profile.memory.bandwidth_bytes_per_s;
    if (bytes >= kLarge && ranks == 1 && left > 0) found.push_back(0.5e12 * total / left);
  }
  out.profile.memory.half_divide_bytes_per_s =
      found.empty() ? 0 : std::round(analysis::median(found));
  if (!found.empty())
    out.notes.push_back(
        "division of halves: " + number("%.2f", out.profile.memory.half_divide_bytes_per_s / 1e9) +
        " GB/s a core");
}

}  // namespace

void fit_framework(const std::vector<FitCollectives>& runs, Fit& out) {
  Added by_ddp = added(runs, "bare_backward", "ddp_backward");
  if (by_ddp.empty()) return;
  Profile& p = out.profile;
  constexpr std::int64_t kSmall = 16 << 10;
  std::vector<double> each;
  for (const auto& [key, ps] : by_ddp)
    if (auto [tensors, bytes, ranks] = key; bytes <= kSmall && ranks == 1)
      each.push_back(ps / static_cast<double>(tensors));
  if (each.empty()) return;
  double small = std::max(0.0, analysis::median(each));
  std::vector<double> alone;
  std::vector<double> together;
  for (const auto& [key, ps] : by_ddp) {
    auto [tensors, bytes, ranks] = key;
    if (bytes < kLarge) continue;
    double rate = 4e12 * static_cast<double>(bytes * tensors) /
                  std::max(1.0, ps - small * static_cast<double>(tensors));
    (ranks == 1 ? alone : together).push_back(rate * static_cast<double>(ranks));
  }
  if (alone.empty()) return;
  // One hook and two kernels are not told apart: a third each.
  p.host.hook = p.memory.kernel = {static_cast<std::int64_t>(small / 3)};
  p.host.basis = p.memory.basis = Evidence::Measured;
  p.host.source =
      "fitted: hook and kernels of one small parameter under DDP, a third each; launch, "
      "collective_launch and traverse as in the base profile";
  p.memory.source =
      "fitted: DDP's copies of large parameters by one rank, and by several at once "
      "(shared_bytes_per_s)";
  p.memory.bandwidth_bytes_per_s = std::round(analysis::median(alone));
  auto [slowest, fastest] = std::minmax_element(alone.begin(), alone.end());
  p.memory.efficiency = {std::min(1.0, *slowest / p.memory.bandwidth_bytes_per_s), 1, 1};
  out.notes.push_back(
      "DDP's own work: " + number("%.1f", small / 1e6) + " us a parameter, copies at " +
      number("%.1f", p.memory.bandwidth_bytes_per_s / 1e9) + " GB/s (" +
      number("%.1f", *slowest / 1e9) + " to " + number("%.1f", *fastest / 1e9) + ")");
  fit_half_division(added(runs, "ddp_backward", "half_backward"), out);
  if (together.empty()) return;
  p.memory.shared_bytes_per_s = std::round(analysis::median(together));
  out.notes.push_back("copies of several ranks at once: " +
                      number("%.1f", p.memory.shared_bytes_per_s / 1e9) + " GB/s together");
}

void fit_thin_products(const std::vector<FitCollectives>& runs, Fit& out) {
  std::vector<const Sample*> all;
  for (const FitCollectives& c : runs)
    for (const Sample& s : c.run->samples)
      if (s.op == "thin_product") all.push_back(&s);
  auto bytes = [](const Sample& s) {
    return 4.0 * static_cast<double>(parameter(s, "rows") * parameter(s, "columns"));
  };
  std::vector<double> small;
  for (const Sample* s : all)
    if (bytes(*s) <= kSmallMatrix)
      small.push_back(median_ps(*s) / static_cast<double>(parameter(*s, "operators")));
  const double call = small.empty() ? 0 : analysis::median(small);
  std::vector<double> found;
  for (const Sample* s : all) {
    const double left = median_ps(*s) - call * static_cast<double>(parameter(*s, "operators"));
    if (bytes(*s) >= static_cast<double>(kLarge) && left > 0)
      found.push_back(1e12 * bytes(*s) / left);
  }
  if (found.empty()) return;
  out.profile.host.small_operator = {std::llround(call)};
  out.profile.memory.thin_product_bytes_per_s = std::round(analysis::median(found));
  auto [slowest, fastest] = std::minmax_element(found.begin(), found.end());
  out.notes.push_back("products of matrices with a few columns: " +
                      number("%.2f", analysis::median(found) / 1e9) + " GB/s of the matrix (" +
                      number("%.1f", *slowest / 1e9) + " to " + number("%.1f", *fastest / 1e9) +
                      "), and " + number("%.1f", call / 1e6) + " us an operator that Python calls");
}

}  // namespace ddpsim::calib
