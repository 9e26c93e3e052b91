#include "sim/io/kernels_json.h"

#include <string>

#include "sim/cost/carry.h"
#include "sim/io/reference_gpu.h"

namespace ddpsim::io {
namespace {

constexpr const char* kUnaligned[] = {"8", "4", "2"};

std::string name_of(const TileShape& t) {
  return std::to_string(t.longer) + "x" + std::to_string(t.shorter);
}

Duration read_ps(const Reader& r, const char* key) {
  Reader v = r.at(key);
  std::int64_t ps = v.integer();
  if (ps < 0 || ps > kSecond.ps) v.fail("a time of 0 to a second (1000000000000 ps)");
  return {ps};
}

Spread read_spread(const Reader& r) {
  r.only({"quick", "slow"});
  return {r.at("quick").number(), r.at("slow").number()};
}
OrderedJson write_spread(const Spread& s) {
  return {{"quick", s.quick}, {"slow", s.slow}};
}

ProductCost read_product(const Reader& r) {
  r.only({"class", "precision", "flops_per_s", "fixed_ps", "wave_ps", "split_ps", "tiles",
          "unaligned", "passes", "conversion", "winograd", "spread"});
  ProductCost c;
  constexpr const char* kKernels[] = {"gemm", "conv", "conv_1x1"};
  c.kernel = kKernels[r.at("class").choice({"gemm", "conv", "conv_1x1"})];
  c.precision = static_cast<Precision>(r.at("precision").choice({"fp32", "tf32", "bf16", "fp16"}));
  c.flops_per_s = r.at("flops_per_s").number();
  c.fixed = read_ps(r, "fixed_ps");
  c.wave = read_ps(r, "wave_ps");
  c.split = read_ps(r, "split_ps");
  Reader tiles = r.at("tiles");
  tiles.only({"256x128", "128x128", "256x64", "128x64", "64x64"});
  for (std::size_t i = 0; i < kTiles.size(); ++i)
    c.tile[i] = tiles.at(name_of(kTiles[i]).c_str()).number();
  Reader unaligned = r.at("unaligned");
  unaligned.only({"8", "4", "2"});
  for (std::size_t i = 0; i < 3; ++i) c.unaligned[i] = unaligned.at(kUnaligned[i]).number();
  Reader passes = r.at("passes");
  passes.only({"forward", "data_gradient", "weight_gradient"});
  for (Pass p : c.pass.names()) c.pass[p] = passes.at(ddpsim::name_of(p)).number();
  if (r.has("conversion")) c.conversion = r.at("conversion").number();
  if (r.has("winograd")) c.winograd = r.at("winograd").number();
  if (r.has("spread")) c.spread = read_spread(r.at("spread"));
  return c;
}

OrderedJson write_product(const ProductCost& c) {
  OrderedJson j{{"class", c.kernel},
                {"precision", name_of(c.precision)},
                {"flops_per_s", c.flops_per_s},
                {"fixed_ps", c.fixed.ps},
                {"wave_ps", c.wave.ps},
                {"split_ps", c.split.ps}};
  for (std::size_t i = 0; i < kTiles.size(); ++i) j["tiles"][name_of(kTiles[i])] = c.tile[i];
  for (std::size_t i = 0; i < 3; ++i) j["unaligned"][kUnaligned[i]] = c.unaligned[i];
  for (Pass p : c.pass.names()) j["passes"][ddpsim::name_of(p)] = c.pass[p];
  if (c.conversion > 0) j["conversion"] = c.conversion;
  if (c.winograd > 1) j["winograd"] = c.winograd;
  j["spread"] = write_spread(c.spread);
  return j;
}

MemoryCost read_memory(const Reader& r) {
  r.only({"op", "backward", "halves", "channels_last", "fixed_ps", "efficiency", "spread"});
  MemoryCost c;
  c.op = r.at("op").text();
  c.backward = r.at("backward").boolean();
  c.halves = r.at("halves").boolean();
  c.channels_last = r.at("channels_last").boolean();
  c.fixed = read_ps(r, "fixed_ps");
  c.efficiency = r.at("efficiency").number();
  if (r.has("spread")) c.spread = read_spread(r.at("spread"));
  return c;
}

OrderedJson write_memory(const MemoryCost& c) {
  return {{"op", c.op},
          {"backward", c.backward},
          {"halves", c.halves},
          {"channels_last", c.channels_last},
          {"fixed_ps", c.fixed.ps},
          {"efficiency", c.efficiency},
          {"spread", write_spread(c.spread)}};
}

AttentionCost read_attention(const Reader& r) {
  r.only({"backward", "halves", "flash2", "flops_per_s", "fixed_ps", "block_ps", "spread"});
  AttentionCost c;
  c.backward = r.at("backward").boolean();
  c.halves = r.at("halves").boolean();
  if (r.has("flash2")) c.flash2 = r.at("flash2").boolean();
  c.flops_per_s = r.at("flops_per_s").number();
  c.fixed = read_ps(r, "fixed_ps");
  c.block = read_ps(r, "block_ps");
  if (r.has("spread")) c.spread = read_spread(r.at("spread"));
  return c;
}

OrderedJson write_attention(const AttentionCost& c) {
  OrderedJson j{{"backward", c.backward}, {"halves", c.halves}};
  if (c.flash2) j["flash2"] = true;
  j["flops_per_s"] = c.flops_per_s;
  j["fixed_ps"] = c.fixed.ps;
  j["block_ps"] = c.block.ps;
  j["spread"] = write_spread(c.spread);
  return j;
}

}  // namespace

void read_carried(const Reader& r, Profile& p) {
  r.only({"basis", "source", "from", "common", "common_conv", "fed"});
  r.at("from").choice({kReferenceName});
  if (p.kind != DeviceKind::Gpu) r.fail("kernels of a GPU are not carried over to a CPU");
  if (p.compute.sms == 0 || p.compute.clock_hz <= 0 || p.compute.capability == 0)
    r.fail("kernels that are carried over need compute/compute_capability, sms and clock_hz");
  const Profile& from = reference_gpu();
  double fed = r.has("fed") ? r.at("fed").number() : predict::kFed;
  if (!(fed >= 1 && fed <= 1e5)) r.at("fed").fail("1 to 100000 multiply-adds a clock");
  p.costs = predict::carried(from, p, fed);
  p.costs->source = r.at("source").text();
  p.costs->carried_from = kReferenceName;
  if (r.has("common")) p.costs->common = p.costs->common_conv = read_spread(r.at("common"));
  if (r.has("common_conv")) p.costs->common_conv = read_spread(r.at("common_conv"));
  if (p.host.calls.empty()) p.host.calls = from.host.calls;
}

KernelCosts read_kernel_costs(const Reader& r) {
  r.only({"basis", "source", "sms", "bandwidth_bytes_per_s", "products", "memory", "attention"});
  KernelCosts k;
  r.at("basis").choice({"measured"});
  k.source = r.at("source").text();
  k.sms = r.at("sms").small(1, 100'000);
  k.bandwidth_bytes_per_s = r.at("bandwidth_bytes_per_s").number();
  for (const Reader& c : r.at("products").items()) k.products.push_back(read_product(c));
  for (const Reader& c : r.at("memory").items()) k.memory.push_back(read_memory(c));
  for (const Reader& c : r.at("attention").items()) k.attention.push_back(read_attention(c));
  return k;
}

std::vector<CallCost> read_calls(const Reader& r) {
  std::vector<CallCost> out;
  for (const Reader& c : r.items()) {
    c.only({"op", "forward_ps", "backward_ps"});
    out.push_back({c.at("op").text(), read_ps(c, "forward_ps"), read_ps(c, "backward_ps")});
  }
  return out;
}

OrderedJson write_kernel_costs(const KernelCosts& k) {
  if (!k.carried_from.empty())
    return {{"basis", "carried"},
            {"from", k.carried_from},
            {"source", k.source},
            {"fed", k.fed},
            {"common", write_spread(k.common)},
            {"common_conv", write_spread(k.common_conv)}};
  OrderedJson j{{"basis", "measured"},
                {"source", k.source},
                {"sms", k.sms},
                {"bandwidth_bytes_per_s", k.bandwidth_bytes_per_s}};
  for (const char* list : {"products", "memory", "attention"}) j[list] = OrderedJson::array();
  for (const ProductCost& c : k.products) j["products"].push_back(write_product(c));
  for (const MemoryCost& c : k.memory) j["memory"].push_back(write_memory(c));
  for (const AttentionCost& c : k.attention) j["attention"].push_back(write_attention(c));
  return j;
}

OrderedJson write_calls(const std::vector<CallCost>& calls) {
  OrderedJson out = OrderedJson::array();
  for (const CallCost& c : calls)
    out.push_back({{"op", c.op}, {"forward_ps", c.forward.ps}, {"backward_ps", c.backward.ps}});
  return out;
}

}  // namespace ddpsim::io
