// product: fixed + (min over cuts ^ 4 + (bytes / bandwidth) ^ 4) ^ (1/4)
// memory:  kernels * fixed + traffic / (bandwidth * efficiency)
#include "sim/cost/kernel_time.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "sim/units/convert.h"

namespace ddpsim::predict {
namespace {

constexpr double kLeastSum = 256;  // a part of a sum is not shorter
constexpr double kMostParts = 128;
constexpr double kConversions = 3;      // image, filters, result
constexpr double kAttentionRows = 128;  // of a tile
constexpr double kCoreTile = 8;         // floats of an AVX2 register

double ceil_div(double a, double b) {
  return std::ceil(a / b);
}

// Long stretches of two resources overlap but for their ends.
double together(double a, double b) {
  double a2 = a * a;
  double b2 = b * b;
  return std::sqrt(std::sqrt(a2 * a2 + b2 * b2));
}

double unaligned_share(const ProductCost& c, int aligned) {
  return aligned >= 16 ? 1.0 : c.unaligned[aligned >= 8 ? 0 : aligned >= 4 ? 1 : 2];
}

}  // namespace

double element_bytes(Precision p) {
  return is_half(p) ? 2.0 : 4.0;
}

int alignment(std::int64_t elements, Precision p) {
  auto bytes = elements * static_cast<std::int64_t>(element_bytes(p));
  for (int by : {16, 8, 4})
    if (bytes % by == 0) return by;
  return 2;
}

Product linear_product(std::int64_t rows, std::int64_t inputs, std::int64_t outputs, Pass pass,
                       Precision p) {
  auto m = static_cast<double>(rows);
  auto k = static_cast<double>(inputs);
  auto n = static_cast<double>(outputs);
  Product q;
  q.pass = pass;
  q.bytes = element_bytes(p) * (m * n + m * k + n * k);
  q.aligned = std::min(alignment(inputs, p), alignment(outputs, p));
  if (pass == Pass::Forward) q.rows = m, q.columns = n, q.sum = k;
  if (pass == Pass::DataGradient) q.rows = m, q.columns = k, q.sum = n;
  if (pass == Pass::WeightGradient) q.rows = n, q.columns = k, q.sum = m;
  return q;
}

double conv_bytes(const ConvShape& c, Precision p) {
  const double image = product_of(c.batch, c.channels, c.size, c.size);
  const double result = product_of(c.batch, c.filters, c.out, c.out);
  const double filters = product_of(c.channels / c.groups, c.filters, c.kernel, c.kernel);
  return element_bytes(p) * (image + result + filters);
}

double conversion_ps(double bytes, const ProductCost& c, const KernelCosts& k) {
  const MemoryCost* plain = find_memory(k, "add", false, false, false);
  double fixed = plain ? static_cast<double>(plain->fixed.ps) : 0;
  return kConversions * fixed + c.conversion * bytes / per_ps(k.bandwidth_bytes_per_s);
}

Product conv_product(const ConvShape& c, Pass pass, Precision p) {
  const double pixels = product_of(c.batch, c.out, c.out);
  const double window = product_of(c.kernel, c.kernel);
  auto channels = static_cast<double>(c.channels / c.groups);
  auto filters = static_cast<double>(c.filters / c.groups);
  Product q;
  q.pass = pass;
  q.count = static_cast<double>(c.groups);
  q.bytes = conv_bytes(c, p);
  auto skipped = static_cast<double>(c.size * c.size - c.out * c.out * c.kernel * c.kernel);
  if (pass != Pass::DataGradient && skipped > 0)  // 1 x 1 at a stride: pixels that nobody reads
    q.bytes -= element_bytes(p) * product_of(c.batch, c.channels) * skipped;
  q.aligned = std::min(alignment(c.channels / c.groups, p), alignment(c.filters / c.groups, p));
  if (pass == Pass::Forward) q.rows = pixels, q.columns = filters, q.sum = channels * window;
  if (pass == Pass::DataGradient) {
    // As many operations as forward: at stride s each pixel of the image meets 1 / s^2 of a window.
    q.rows = product_of(c.batch, c.size, c.size);
    q.columns = channels;
    q.sum = filters * window * pixels / q.rows;
  }
  if (pass == Pass::WeightGradient) q.rows = filters, q.columns = channels * window, q.sum = pixels;
  return q;
}

bool is_by_samples(const ConvShape& c) {
  return c.groups == 1 && c.batch < 16 && c.kernel == 1 && c.out == c.size;
}

Product by_samples_product(const ConvShape& c, Pass pass, Precision p) {
  ConvShape one = c;
  one.batch = 1;
  Product q = conv_product(one, pass, p);
  q.count = static_cast<double>(c.batch);
  q.bytes *= q.count;
  return q;
}

namespace {

// A product has so many rows, or columns, of tiles of each size.
constexpr int kSizes[] = {256, 128, 64};
constexpr bool all_sizes() {
  for (const TileShape& t : kTiles)
    if (std::find(kSizes, std::end(kSizes), t.longer) == std::end(kSizes) ||
        std::find(kSizes, std::end(kSizes), t.shorter) == std::end(kSizes))
      return false;
  return true;
}
static_assert(all_sizes());
struct TilesAlong {
  explicit TilesAlong(double length) {
    for (std::size_t k = 0; k < std::size(kSizes); ++k) tiles[k] = ceil_div(length, kSizes[k]);
  }
  double by(int size) const { return tiles[size == kSizes[0] ? 0 : size == kSizes[1] ? 1 : 2]; }
  double tiles[std::size(kSizes)];
};

// `worth`: says of a tile, and of all operations that it makes, whether its cuts matter.
template <typename Worth, typename Visit>
void each_cut(const Product& q, int sms, Worth worth, Visit visit) {
  if (sms == 1) {  // a core: rows and columns are filled up to registers, nothing else
    const double rows = ceil_div(q.rows, kCoreTile) * kCoreTile;
    const double columns = ceil_div(q.columns, kCoreTile) * kCoreTile;
    return visit(Cut{0, q.count, 2 * rows * columns * q.sum, 1});
  }
  const TilesAlong rows(q.rows);
  const TilesAlong columns(q.columns);
  for (std::size_t t = 0; t < kTiles.size(); ++t)
    for (bool turned : {false, true}) {
      const int a = turned ? kTiles[t].shorter : kTiles[t].longer;
      const int b = turned ? kTiles[t].longer : kTiles[t].shorter;
      if (turned && a == b) continue;
      const double tiles = rows.by(a) * columns.by(b) * q.count;
      const double flops = 2.0 * a * b * q.sum;
      if (!worth(t, flops * tiles)) continue;
      for (double parts = 1; parts <= kMostParts; parts *= 2) {
        if (parts > 1 && (q.sum / parts < kLeastSum || tiles * parts > 8.0 * sms)) break;
        visit(Cut{t, ceil_div(tiles * parts, sms), flops / parts, parts});
      }
    }
}

// `each`: calls the second of what it is given with every way to cut the product for which the
// first is true.
template <typename Each>
double fastest(const Product& q, const ProductCost& c, const KernelCosts& k, Each each) {
  double rate = per_ps(c.flops_per_s) / k.sms * unaligned_share(c, q.aligned) * c.pass[q.pass];
  double bandwidth = per_ps(k.bandwidth_bytes_per_s);
  auto wave = static_cast<double>(c.wave.ps);
  auto split = static_cast<double>(c.split.ps);
  double least = -1;
  const double all = rate * k.sms * (1 + 1e-9);  // of all SMs, all the time, whatever is rounded
  each([&](std::size_t tile,
           double flops) { return least < 0 || flops < least * all * c.tile[tile]; },
       [&](const Cut& cut) {
         double ps = cut.waves * (cut.flops / (rate * c.tile[cut.tile]) + wave);
         if (cut.parts > 1) ps += split + q.rows * q.columns * q.count * 4 * cut.parts / bandwidth;
         if (least < 0 || ps < least) least = ps;
       });
  const double traffic = q.bytes / bandwidth;
  if (is_core(k)) return static_cast<double>(c.fixed.ps) + least + c.conversion * traffic;
  return static_cast<double>(c.fixed.ps) + together(least, traffic);
}

}  // namespace

std::vector<Cut> cuts_of(const Product& q, int sms) {
  std::vector<Cut> out;
  each_cut(
      q, sms, [](std::size_t, double) { return true; },
      [&](const Cut& cut) { out.push_back(cut); });
  return out;
}

double product_ps(const Product& q, const std::vector<Cut>& cuts, const ProductCost& c,
                  const KernelCosts& k) {
  return fastest(q, c, k,
                 [&](auto, auto visit) { std::for_each(cuts.begin(), cuts.end(), visit); });
}

double product_ps(const Product& q, const ProductCost& c, const KernelCosts& k) {
  return fastest(q, c, k, [&](auto worth, auto visit) { each_cut(q, k.sms, worth, visit); });
}

double conv_ps(const ConvShape& s, Pass pass, bool channels_last, const ProductCost& c,
               const KernelCosts& k) {
  if (is_core(k) && c.kernel == "conv_1x1")
    return product_ps(by_samples_product(s, pass, c.precision), c, k);
  Product q = conv_product(s, pass, c.precision);
  if (s.kernel == 3 && s.size == s.out && pass != Pass::WeightGradient) q.sum /= c.winograd;
  double ps = product_ps(q, c, k);
  if (channels_last || c.conversion <= 0 || is_core(k)) return ps;
  double converted = ps + conversion_ps(conv_bytes(s, c.precision), c, k);
  if (s.kernel != 1 || s.size != s.out) return converted;
  q.aligned = alignment(s.out * s.out, c.precision);
  return std::min(converted, product_ps(q, c, k));
}

double memory_ps(double traffic, double kernels, const MemoryCost& c, const KernelCosts& k) {
  return kernels * static_cast<double>(c.fixed.ps) +
         traffic / (per_ps(k.bandwidth_bytes_per_s) * c.efficiency);
}

double optimizer_launches(const Optimizer& o, double tensors, double elements) {
  // torch/aten/src/ATen/native/cuda/MultiTensorApply.cuh: lists of at most 36 tensors, and at most
  // 320 blocks of 65,536 elements a launch.
  constexpr double kTensors = 36;
  constexpr double kElements = 320.0 * 65536;
  auto passes = static_cast<double>(optimizer_passes(o));
  if (!is_multi_tensor(o)) return passes * tensors;
  return passes * std::max(ceil_div(tensors, kTensors), ceil_div(elements, kElements));
}

double attention_flops(const AttentionShape& a, bool backward) {
  const double scores = product_of(a.sequence, a.sequence);
  const double heads = product_of(a.batch, a.heads);
  return 4 * heads * scores * static_cast<double>(a.dim) * (backward ? 2.5 : 1.0) *
         (a.causal ? 0.5 : 1.0);
}

double attention_ps(const AttentionShape& a, const AttentionCost& c, const KernelCosts& k) {
  double blocks = ceil_div(static_cast<double>(a.sequence), kAttentionRows);
  double waves = ceil_div(blocks * static_cast<double>(a.batch * a.heads), k.sms);
  double flops =
      4 * kAttentionRows * kAttentionRows * static_cast<double>(a.dim) * (c.backward ? 2.5 : 1.0);
  double each = flops / (per_ps(c.flops_per_s) / k.sms) + static_cast<double>(c.block.ps);
  // A causal row of blocks ends at the diagonal.
  return static_cast<double>(c.fixed.ps) + waves * (a.causal ? (blocks + 1) / 2 : blocks) * each;
}

}  // namespace ddpsim::predict
