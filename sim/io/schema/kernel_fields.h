// Keys of a profile's `kernels` and `power`.
#pragma once

#include "sim/io/schema/fields.h"
#include "sim/model/profile.h"

namespace ddpsim::io {

// Numbers by the names of a list, all of them.
template <const auto& kNames>
struct AsNumbers {
  std::array<double, std::size(kNames)>& value;
};
template <const auto& kNames>
struct Codec<AsNumbers<kNames>> {
  static void read(const Reader& r, AsNumbers<kNames> into) {
    r.only({std::begin(kNames), std::end(kNames)});
    for (std::size_t i = 0; i < std::size(kNames); ++i) into.value[i] = r.at(kNames[i]).number();
  }
  static OrderedJson write(AsNumbers<kNames> v) {
    OrderedJson j;
    for (std::size_t i = 0; i < std::size(kNames); ++i) j[kNames[i]] = v.value[i];
    return j;
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Section;
    for (const char* name : kNames) {
      FieldRecord& one = f.fields.emplace_back();
      one.key = name;
      one.help = std::string("of ") + name;
      one.kind = FieldKind::Number;
      one.required = true;
    }
  }
};
// Numbers by precision: what is left out is not offered, or takes nothing.
template <bool kPositive>
struct AsByPrecision {
  ByPrecision& value;
};
template <bool kPositive>
struct Codec<AsByPrecision<kPositive>> {
  static void read(const Reader& r, AsByPrecision<kPositive> into) {
    r.only({kPrecisions.begin(), kPrecisions.end()});
    for (Precision p : kPrecisions.names()) {
      if (!r.has(name_of(p))) continue;
      const Reader number = r.at(name_of(p));
      into.value[p] = number.number();
      if (kPositive && !(into.value[p] > 0))
        number.fail("a peak rate is positive; leave out what the device does not offer");
    }
  }
  static OrderedJson write(AsByPrecision<kPositive> v) {
    OrderedJson j = OrderedJson::object();
    for (Precision p : kPrecisions.names())
      if (v.value[p] > 0) j[name_of(p)] = v.value[p];
    return j;
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Section;
    for (const char* name : kPrecisions) {
      FieldRecord& one = f.fields.emplace_back();
      one.key = name;
      one.help = std::string("in ") + name;
      one.kind = FieldKind::Number;
      one.unit = kPositive ? "flop/s" : "J/flop";
      if (kPositive) one.least = 0;
      one.above = kPositive;
    }
  }
};
inline AsByPrecision<true> as_peaks(ByPrecision& v) {
  return {v};
}

// ---- kernels

inline constexpr std::array<const char*, 3> kProductKernels{"gemm", "conv", "conv_1x1"};
// In the order of kTiles.
inline constexpr std::array<const char*, kTiles.size()> kTileNames{"256x128", "128x128", "256x64",
                                                                   "128x64", "64x64"};
inline constexpr std::array<const char*, 3> kPassNames = kPasses.values;
inline constexpr std::array<const char*, 3> kUnalignedNames{"8", "4", "2"};

template <class V>
void fields(V& v, Spread& s) {
  v.required("quick", s.quick, "measured / predicted: a tenth of the shapes is below");
  v.required("slow", s.slow, "and a tenth above");
}
template <class V>
void fields(V& v, ProductCost& c) {
  v.required("class", AsWord<kProductKernels>{c.kernel}, "matrix products, or convolutions");
  v.required("precision", c.precision, "of its operands");
  v.required("flops_per_s", c.flops_per_s, "of all SMs, by tiles of 256 x 128, aligned")
      .unit("flop/s");
  v.required("fixed_ps", as_ps(c.fixed), "of a kernel");
  v.required("wave_ps", as_ps(c.wave), "of one tile on each SM, besides its operations");
  v.required("split_ps", as_ps(c.split), "of adding up the parts of a sum, besides its traffic");
  v.required("tiles", AsNumbers<kTileNames>{c.tile}, "shares of the rate, by tile");
  v.required("unaligned", AsNumbers<kUnalignedNames>{c.unaligned},
             "shares of the rate where rows begin at multiples of so many bytes only");
  v.required("passes", AsNumbers<kPassNames>{c.pass.values}, "shares of the rate, by pass");
  v.field("conversion", c.conversion,
          "convolutions in NCHW: traffic of conversions, as a multiple of the activations");
  v.field("winograd", c.winograd, "3 x 3 at stride 1: so many times fewer operations");
  v.field("spread", c.spread, "80 % of the shapes that the fit did not see").always();
}
template <class V>
void fields(V& v, MemoryCost& c) {
  v.required("op", c.op, "\"batch_norm\", \"relu\", ...");
  v.required("backward", c.backward, "its backward");
  v.required("halves", c.halves, "its elements have two bytes");
  v.required("channels_last", c.channels_last, "the memory format of its images");
  v.required("fixed_ps", as_ps(c.fixed), "of a kernel");
  v.required("efficiency", c.efficiency, "of the traffic that a described layer counts");
  v.field("spread", c.spread, "80 % of the shapes that the fit did not see").always();
}
template <class V>
void fields(V& v, AttentionCost& c) {
  v.required("backward", c.backward, "its backward");
  v.required("halves", c.halves, "its elements have two bytes");
  v.field("flash2", c.flash2, "FlashAttention-2, not the kernel that PyTorch takes there");
  v.required("flops_per_s", c.flops_per_s, "of all SMs").unit("flop/s");
  v.required("fixed_ps", as_ps(c.fixed), "of a kernel");
  v.required("block_ps", as_ps(c.block), "of one block of scores, besides its products");
  v.field("spread", c.spread, "80 % of the shapes that the fit did not see").always();
}
// The section as it stands: kernels that were measured, or how they are carried over.
struct KernelsFile {
  static constexpr std::array<const char*, 2> kBases{"measured", "carried"};
  std::string basis = "measured";
  std::string from;
  KernelCosts costs;
  std::optional<double> fed;
  std::optional<Spread> common;
  std::optional<Spread> common_conv;
};
template <class V>
void fields(V& v, KernelsFile& f) {
  const Where measured = where("basis", "measured");
  const Where carried = where("basis", "carried");
  v.required("basis", AsWord<KernelsFile::kBases>{f.basis}, "measured here, or on another GPU");
  v.required("from", f.from, "the profile that was measured", carried);
  v.required("source", f.costs.source, "which GPU, which software; reports");
  v.required("sms", f.costs.sms, "streaming multiprocessors", measured).range(1, 100'000);
  v.required("bandwidth_bytes_per_s", f.costs.bandwidth_bytes_per_s,
             "that large element-wise kernels reach", measured)
      .unit("bytes/s");
  v.required("products", f.costs.products, "matrix products and convolutions", measured);
  v.required("memory", f.costs.memory, "kernels that memory decides", measured);
  v.required("attention", f.costs.attention, "fused attention", measured);
  v.field("fed", f.fed, "multiply-adds of halves that reach an SM's tensor cores a clock", carried)
      .range(1, 1e5, "1 to 100000 multiply-adds a clock");
  v.field("common", f.common, "measured / predicted of all kernels of a step together", carried);
  v.field("common_conv", f.common_conv, "the same of convolutional networks", carried);
}

// ---- power

template <class V>
void fields(V& v, SameChip& s) {
  v.required("gpu", s.gpu, "a card of the same chip; often the card itself");
  v.required("limit_w", s.limit_w, "of its board").unit("W");
  v.required("clock_hz", s.clock_hz, "at which it has its peaks").unit("Hz");
  v.required("peak_flops", as_peaks(s.peak_flops), "by precision; without sparsity");
}
struct PowerFile {
  std::string basis = "measured";
  PowerSection power;
};
template <class V>
void fields(V& v, PowerFile& f) {
  PowerSection& p = f.power;
  const Where measured = where("basis", "measured");
  v.required("basis", AsWord<KernelsFile::kBases>{f.basis}, "measured here, or on another GPU");
  v.required("source", p.source, "where its numbers are from");
  v.required("limit_w", p.limit_w, "of the board").unit("W");
  v.required("like", p.like, "a card of the same chip", where("basis", "carried"));
  v.required("idle_w", p.draw.idle_w, "at the clock of the peaks, while nothing runs", measured)
      .unit("W");
  v.required("busy_w", p.draw.busy_w, "more, while any kernel runs", measured).unit("W");
  v.required("joules_per_flop", AsByPrecision<false>{p.draw.joules_per_flop},
             "of products, convolutions and attention", measured);
}

}  // namespace ddpsim::io
