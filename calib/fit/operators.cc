#include "calib/fit/operators.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "calib/fit/descent.h"
#include "calib/fit/points.h"
#include "calib/fit/samples.h"

namespace ddpsim::calib {
namespace {

constexpr std::size_t kFewest = 8;  // shapes from which the constants of a form can be told
constexpr std::size_t kSpread = 5;  // held-out shapes from which a spread can be told
constexpr double kNanosecond = 1e3;

double off(double fitted, double measured) {
  return std::max(fitted / measured, measured / fitted) - 1;
}
Duration rounded(double ps) {
  return {static_cast<std::int64_t>(std::llround(ps))};
}
double rounded_share(double v) {
  return std::round(v * 1e4) / 1e4;
}

// 80 % of measured / fitted lie between the ends.
Spread spread_of(const std::vector<double>& ratios) {
  if (ratios.size() < kSpread) return {};
  return {std::min(1.0, rounded_share(analysis::percentile(ratios, 10))),
          std::max(1.0, rounded_share(analysis::percentile(ratios, 90)))};
}

// `least` and `most`: of the sizes over which it holds.
struct Errors {
  std::vector<double> ratios;  // measured / fitted
  double least = 0;
  double most = 0;
  void add(double size, double measured, double fitted) {
    least = ratios.empty() ? size : std::min(least, size);
    most = std::max(most, size);
    ratios.push_back(measured / fitted);
  }
  KernelResidual residual(const std::string& name, bool held_out) const {
    std::vector<double> errors;
    for (double r : ratios) errors.push_back(std::abs(1 / r - 1));
    return {name,
            held_out,
            static_cast<int>(errors.size()),
            least,
            most,
            rounded_share(analysis::median(errors)),
            rounded_share(analysis::percentile(errors, 90))};
  }
};

// ---- matrix products and convolutions

using ProductKey = std::pair<std::string, Precision>;

std::string name_of(const ProductKey& key) {
  return key.first + " " + ddpsim::name_of(key.second);
}

// What the descent changes; ProductCost keeps times as integers.
struct ProductValues {
  double rate = 0, fixed = 2.5e6, wave = 1e6, split = 2e6, conversion = 2;
  std::array<double, kTiles.size()> tile{1, 0.85, 0.7, 0.65, 0.45};
  std::array<double, 3> unaligned{0.8, 0.35, 0.17};
  By<Pass, double, 3> pass{1, 1, 1};
};

void apply(const ProductValues& v, bool contiguous, ProductCost& c) {
  c.flops_per_s = std::round(v.rate);
  c.fixed = rounded(v.fixed);
  c.wave = rounded(v.wave);
  c.split = rounded(v.split);
  c.tile = v.tile;
  c.unaligned = v.unaligned;
  c.pass = v.pass;
  c.conversion = contiguous ? v.conversion : 0;
}

// Constants of which no shape says anything are those of aligned rows, or of forward.
ProductCost fit_product(const std::vector<const ProductPoint*>& points, const KernelCosts& k) {
  ProductCost c;
  c.kernel = points.front()->kernel;
  c.precision = points.front()->precision;
  ProductValues v;
  bool contiguous = predict::is_core(k);  // which packs operands of every product
  std::set<int> aligned;
  std::set<Pass> passes;
  for (const ProductPoint* q : points) {
    v.rate = std::max(v.rate, q->flops / q->ps * 1e12);
    contiguous |= q->contiguous;
    aligned.insert(q->as_product && q->contiguous ? std::min(q->product.aligned, *q->as_product)
                                                  : q->product.aligned);
    passes.insert(q->product.pass);
  }
  std::vector<Bounded> free{{&v.rate, v.rate / 4, v.rate * 4},
                            {&v.fixed, 100 * kNanosecond, 5e7},
                            {&v.wave, kNanosecond, 5e7},
                            {&v.split, 10 * kNanosecond, 5e7}};
  for (std::size_t i = 1; i < kTiles.size(); ++i) free.push_back({&v.tile[i], 0.05, 1.5});
  for (std::size_t i = 0; i < 3; ++i) {
    if (aligned.count(8 >> i))
      free.push_back({&v.unaligned[i], 0.01, 1});
    else
      v.unaligned[i] = 1;
    const auto pass = static_cast<Pass>(i);
    if (i > 0 && passes.count(pass)) free.push_back({&v.pass[pass], 0.2, 2});
  }
  if (contiguous) free.push_back({&v.conversion, 0.05, 20});
  descend(free, [&] {
    apply(v, contiguous, c);
    double sum = 0;
    for (const ProductPoint* q : points) sum += off(time_of(*q, c, k), q->ps);
    return sum;
  });
  for (auto* list : {&v.unaligned, &v.pass.values})
    for (double& share : *list) share = rounded_share(share);
  for (double& share : v.tile) share = rounded_share(share);
  v.conversion = rounded_share(v.conversion);
  apply(v, contiguous, c);
  return c;
}

void fit_products(const Points& points, OperatorFit& out) {
  std::map<ProductKey, std::vector<const ProductPoint*>> seen;
  for (const ProductPoint& q : points.products)
    if (!q.held_out) seen[{q.kernel, q.precision}].push_back(&q);
  for (const auto& [key, list] : seen) {
    if (list.size() < kFewest) {
      out.notes.push_back(name_of(key) + ": " + std::to_string(list.size()) +
                          " shapes are too few to fit");
      continue;
    }
    ProductCost c = fit_product(list, out.costs);
    Errors held;
    for (const ProductPoint& q : points.products)
      if (q.held_out && q.kernel == key.first && q.precision == key.second)
        held.add(q.flops, q.ps, time_of(q, c, out.costs));
    c.spread = spread_of(held.ratios);
    out.costs.products.push_back(c);
  }
}

// ---- what memory decides

using MemoryKey = std::tuple<std::string, bool, bool, bool>;

MemoryKey key_of(const MemoryPoint& q) {
  return {q.op, q.backward, q.halves, q.channels_last};
}

double time_of(const MemoryPoint& q, const MemoryCost& c, const KernelCosts& k) {
  return predict::memory_ps(q.traffic, q.kernels, c, k);
}

// fixed and efficiency of one kind of kernel; `fixed`: where one size says nothing of it.
MemoryCost fit_memory_class(const std::vector<const MemoryPoint*>& points, double fixed,
                            const KernelCosts& k) {
  const MemoryPoint& first = *points.front();
  MemoryCost c{first.op, first.backward, first.halves, first.channels_last, rounded(fixed), 1, {}};
  double efficiency = 1;
  std::vector<Bounded> free{{&efficiency, 0.01, 20}};
  std::set<double> sizes;
  for (const MemoryPoint* q : points) sizes.insert(q->traffic);
  // No kernel is shorter than a plain one.
  if (sizes.size() > 1 && first.op.find("_f") == first.op.npos)
    free.push_back({&fixed, fixed, 1e9});
  descend(free, [&] {
    c.fixed = rounded(fixed);
    c.efficiency = efficiency;
    double sum = 0;
    for (const MemoryPoint* q : points) sum += off(time_of(*q, c, k), q->ps);
    return sum;
  });
  c.fixed = rounded(fixed);
  c.efficiency = rounded_share(efficiency);
  return c;
}

// The bandwidth is what plain element-wise kernels reach: their efficiency is 1.
void fit_memory(const Points& points, OperatorFit& out) {
  std::map<MemoryKey, std::vector<const MemoryPoint*>> seen;
  std::vector<const MemoryPoint*> plain;
  for (const MemoryPoint& q : points.memory) {
    if (q.held_out) continue;
    seen[key_of(q)].push_back(&q);
    if (q.op == "add") plain.push_back(&q);
  }
  if (plain.size() < 2)
    throw InputError{"fit",
                     "no Run says how fast memory is (stage memory, or torch/pointwise/add)"};
  double bandwidth = 0;
  double fixed = 1e15;
  for (const MemoryPoint* q : plain) {
    bandwidth = std::max(bandwidth, q->traffic / q->ps * 1e12);
    fixed = std::min(fixed, q->ps);
  }
  KernelCosts& k = out.costs;
  MemoryCost add{"add", false, false, false, {}, 1, {}};
  descend({{&bandwidth, bandwidth / 4, bandwidth * 4}, {&fixed, 100 * kNanosecond, 1e9}}, [&] {
    k.bandwidth_bytes_per_s = bandwidth;
    add.fixed = rounded(fixed);
    double sum = 0;
    for (const MemoryPoint* q : plain) sum += off(time_of(*q, add, k), q->ps);
    return sum;
  });
  k.bandwidth_bytes_per_s = std::round(bandwidth);
  for (const auto& [key, list] : seen) k.memory.push_back(fit_memory_class(list, fixed, k));
  if (!seen.count({"add", false, true, false})) {  // ddpsim's own bench has floats alone
    add.fixed = rounded(fixed);
    add.halves = true;
    k.memory.push_back(add);
  }
}

// ---- attention

using AttentionKey = std::tuple<bool, bool, bool>;  // FlashAttention-2, backward, halves

const char* name_of_attention(bool halves, bool flash2) {
  return flash2 ? "flash2 bf16" : halves ? "attention bf16" : "attention tf32";
}

void fit_attention(const Points& points, OperatorFit& out) {
  std::map<AttentionKey, std::vector<const AttentionPoint*>> seen;
  for (const AttentionPoint& q : points.attention)
    if (!q.held_out) seen[{q.flash2, q.backward, q.halves}].push_back(&q);
  for (const auto& group : seen) {
    const auto [flash2, backward, halves] = group.first;
    const std::vector<const AttentionPoint*>& list = group.second;
    if (list.size() < 3) {
      out.notes.push_back("attention: " + std::to_string(list.size()) +
                          " shapes are too few to fit");
      continue;
    }
    // Head sizes tell products from exponentials; of one size alone, products go as fast as the
    // best that was measured.
    std::set<std::int64_t> dims;
    for (const AttentionPoint* q : list) dims.insert(q->shape.dim);
    AttentionCost c{backward, halves, flash2, 0, {}, {}, {}};
    const MemoryCost* plain = find_memory(out.costs, "add", false, false, false);
    double least = plain ? static_cast<double>(plain->fixed.ps) : 100 * kNanosecond;
    double rate = 1e14;
    for (const ProductPoint& q : points.products)
      if (!q.held_out && (predict::element_bytes(q.precision) == 2) == halves)
        rate = std::max(rate, q.flops / q.ps * 1e12);
    double fixed = least;
    double block = 1e5;
    std::vector<Bounded> free{{&block, kNanosecond, 1e8}, {&fixed, least, 1e9}};
    if (dims.size() > 1) free.push_back({&rate, 1e12, 2e15});
    descend(free, [&] {
      c.flops_per_s = rate;
      c.fixed = rounded(fixed);
      c.block = rounded(block);
      double sum = 0;
      for (const AttentionPoint* q : list)
        sum += off(predict::attention_ps(q->shape, c, out.costs), q->ps);
      return sum;
    });
    c.flops_per_s = std::round(rate);
    c.fixed = rounded(fixed);
    c.block = rounded(block);
    out.costs.attention.push_back(c);
  }
}

// ---- what is left

struct Judged {
  std::map<std::string, Errors> seen;
  std::map<std::string, Errors> held_out;
};

Judged judge(const KernelCosts& k, const Points& points) {
  Judged out;
  auto of = [&](bool held) -> std::map<std::string, Errors>& {
    return held ? out.held_out : out.seen;
  };
  for (const ProductPoint& q : points.products)
    if (const ProductCost* c = find_product(k, q.kernel, q.precision))
      of(q.held_out)[name_of({q.kernel, q.precision})].add(q.flops, q.ps, time_of(q, *c, k));
  for (const MemoryPoint& q : points.memory) {
    const MemoryCost* c = find_memory(k, q.op, q.backward, q.halves, q.channels_last);
    if (!c || c->op != q.op) continue;
    bool optimizer = q.op.find("_foreach") != q.op.npos || q.op.find("_fused") != q.op.npos;
    of(q.held_out)[optimizer ? "optimizer" : "memory"].add(q.traffic, q.ps, time_of(q, *c, k));
  }
  for (const AttentionPoint& q : points.attention)
    if (const AttentionCost* c = find_attention(k, q.backward, q.halves, q.flash2))
      of(q.held_out)[name_of_attention(q.halves, q.flash2)].add(
          static_cast<double>(q.shape.batch * q.shape.heads * q.shape.sequence), q.ps,
          predict::attention_ps(q.shape, *c, k));
  return out;
}

}  // namespace

GpuSize gpu_size(const std::string& gpu) {
  GpuSize out;
  auto before = [&](const char* word) -> std::int64_t {
    std::size_t at = gpu.find(word);
    if (at == gpu.npos) return 0;
    std::size_t begin = at;
    while (begin > 0 && gpu[begin - 1] >= '0' && gpu[begin - 1] <= '9') --begin;
    std::int64_t value = 0;
    for (; begin < at && value < 1'000'000'000; ++begin) value = 10 * value + (gpu[begin] - '0');
    return value;
  };
  out.sms = static_cast<int>(std::min<std::int64_t>(before(" SMs"), 100'000));
  out.mebibytes = before(" MiB");
  return out;
}

OperatorFit fit_operators(int sms, const std::vector<const Run*>& runs) {
  OperatorFit out;
  out.costs.sms = sms;
  Points points = points_of(sms, runs);
  fit_memory(points, out);
  fit_products(points, out);
  fit_attention(points, out);
  Judged judged = judge(out.costs, points);
  // Too few sizes of each kind were left out: one spread for all that memory decides.
  for (MemoryCost& c : out.costs.memory) c.spread = spread_of(judged.held_out["memory"].ratios);
  // FlashAttention-2's too few shapes that were left out say no less than the other kernel's.
  for (AttentionCost& c : out.costs.attention) {
    const std::vector<double>& own = judged.held_out[name_of_attention(c.halves, c.flash2)].ratios;
    c.spread = spread_of(own.size() < kSpread && c.flash2
                             ? judged.held_out[name_of_attention(c.halves, false)].ratios
                             : own);
  }
  for (const auto& [name, e] : judged.seen)
    if (!e.ratios.empty()) out.residuals.push_back(e.residual(name, false));
  for (const auto& [name, e] : judged.held_out)
    if (!e.ratios.empty()) out.residuals.push_back(e.residual(name, true));
  return out;
}

std::vector<KernelResidual> judge_operators(const KernelCosts& costs,
                                            const std::vector<const Run*>& runs) {
  Points points = points_of(costs.sms, runs);
  for (auto& q : points.products) q.held_out = true;
  for (auto& q : points.memory) q.held_out = true;
  for (auto& q : points.attention) q.held_out = true;
  std::vector<KernelResidual> out;
  for (const auto& [name, e] : judge(costs, points).held_out) out.push_back(e.residual(name, true));
  return out;
}

}  // namespace ddpsim::calib
