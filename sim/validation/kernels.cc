#include "sim/validation/kernels.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "sim/analysis/compare.h"
#include "sim/cost/kernel_time.h"
#include "sim/units/convert.h"

namespace ddpsim::validation {
namespace {

double flops(const PublishedKernel& k) {
  return 2.0 * static_cast<double>(k.rows) * static_cast<double>(k.inputs) *
         static_cast<double>(k.outputs);
}

KernelLine line_of(const std::string& what, const std::vector<const KernelResult*>& of) {
  KernelLine out;
  out.what = what;
  std::vector<double> errors, magnitudes, rates;
  std::set<std::string> sources;
  for (const KernelResult* r : of) {
    errors.push_back(r->error());
    magnitudes.push_back(std::abs(r->error()));
    rates.push_back(flops(r->row) / seconds(r->row.measured));
    sources.insert(r->row.source);
  }
  out.rows = of.size();
  out.sources = sources.size();
  out.bias = analysis::median(errors);
  out.median = analysis::median(magnitudes);
  out.p95 = analysis::percentile(magnitudes, 95);
  out.rate = analysis::median(rates);
  return out;
}

template <class Has>
void add_line(const std::string& what, const std::vector<KernelResult>& results, Has has,
              std::vector<KernelLine>& to) {
  std::vector<const KernelResult*> of;
  for (const KernelResult& r : results)
    if (has(r.row)) of.push_back(&r);
  if (!of.empty()) to.push_back(line_of(what, of));
}

struct Size {
  const char* what;
  double least, most;  // FLOP
};
constexpr Size kSizes[] = {
    {"below 10 GFLOP", 0, 1e10}, {"10 to 100 GFLOP", 1e10, 1e11}, {"above 100 GFLOP", 1e11, 1e300}};

}  // namespace

KernelResult predict_kernel(const PublishedKernel& row, const Profile& profile) {
  const KernelCosts& costs = *profile.costs;
  const predict::Product product =
      predict::linear_product(row.rows, row.inputs, row.outputs, Pass::Forward, row.precision);
  const ProductCost& cost = *find_product(costs, "gemm", row.precision);
  return {row, {std::llround(predict::product_ps(product, cost, costs))}};
}

KernelsReport judge_kernels(const std::vector<KernelResult>& results) {
  KernelsReport out;
  std::set<std::string> gpus;
  for (const KernelResult& r : results) gpus.insert(r.row.gpu);
  add_line(
      "all", results, [](const PublishedKernel&) { return true; }, out.lines);
  for (const std::string& gpu : gpus) {
    add_line(
        gpu, results, [&](const PublishedKernel& k) { return k.gpu == gpu; }, out.lines);
    for (const Size& s : kSizes)
      add_line(
          gpu + ", " + s.what, results,
          [&](const PublishedKernel& k) {
            return k.gpu == gpu && flops(k) >= s.least && flops(k) < s.most;
          },
          out.lines);
  }
  return out;
}

std::map<std::string, double> values(const std::vector<KernelResult>& results) {
  std::map<std::string, double> out;
  auto add = [&](const std::string& name, auto has) {
    std::vector<KernelLine> lines;
    add_line(name, results, has, lines);
    for (const KernelLine& l : lines)
      out[name + ".bias"] = l.bias, out[name + ".median"] = l.median, out[name + ".p95"] = l.p95;
  };
  add("all", [](const PublishedKernel&) { return true; });
  std::set<std::string> profiles;
  for (const KernelResult& r : results) profiles.insert(r.row.profile);
  for (const std::string& p : profiles)
    add(p, [&](const PublishedKernel& k) { return k.profile == p; });
  return out;
}

}  // namespace ddpsim::validation
