#include "sim/io/power_json.h"

#include <string>

#include "sim/cost/power.h"
#include "sim/io/reference_gpu.h"

namespace ddpsim::io {
namespace {

ByPrecision read_by_precision(const Reader& r) {
  r.only({"fp32", "tf32", "bf16", "fp16"});
  ByPrecision out;
  for (Precision p : kPrecisions.names())
    if (r.has(name_of(p))) out[p] = r.at(name_of(p)).number();
  return out;
}

OrderedJson write_by_precision(const ByPrecision& v) {
  OrderedJson j = OrderedJson::object();
  for (Precision p : kPrecisions.names())
    if (v[p] > 0) j[name_of(p)] = v[p];
  return j;
}

SameChip read_like(const Reader& r) {
  r.only({"gpu", "limit_w", "clock_hz", "peak_flops"});
  const Reader peaks = r.at("peak_flops");
  SameChip out{r.at("gpu").text(), r.at("limit_w").number(), r.at("clock_hz").number(),
               read_by_precision(peaks)};
  for (Precision p : kPrecisions.names())
    if (peaks.has(name_of(p)) && !(out.peak_flops[p] > 0))
      peaks.at(name_of(p))
          .fail("a peak rate is positive; leave out what the device does not offer");
  return out;
}

}  // namespace

PowerSection read_power(const Reader& r, const Profile& p) {
  PowerSection out;
  out.source = r.at("source").text();
  out.limit_w = r.at("limit_w").number();
  if (r.at("basis").choice({"measured", "carried"}) == 0) {
    r.only({"basis", "source", "limit_w", "idle_w", "busy_w", "joules_per_flop"});
    out.draw.idle_w = r.at("idle_w").number();
    out.draw.busy_w = r.at("busy_w").number();
    out.draw.joules_per_flop = read_by_precision(r.at("joules_per_flop"));
    return out;
  }
  r.only({"basis", "source", "limit_w", "like"});
  if (p.compute.clock_hz <= 0) r.fail("power that is carried over needs compute/clock_hz");
  out.like = read_like(r.at("like"));
  if (Problem problem = validate(out)) r.fail_at(problem.path.substr(6), problem.message);
  const Profile& measured = reference_gpu();
  out.draw = predict::drawn_like(*measured.power, measured.compute.peak_flops, *out.like, p.compute,
                                 out.limit_w);
  return out;
}

OrderedJson write_power(const PowerSection& p) {
  OrderedJson j{
      {"basis", p.like ? "carried" : "measured"}, {"source", p.source}, {"limit_w", p.limit_w}};
  if (p.like) {
    j["like"] = {{"gpu", p.like->gpu},
                 {"limit_w", p.like->limit_w},
                 {"clock_hz", p.like->clock_hz},
                 {"peak_flops", write_by_precision(p.like->peak_flops)}};
    return j;
  }
  j["idle_w"] = p.draw.idle_w;
  j["busy_w"] = p.draw.busy_w;
  j["joules_per_flop"] = write_by_precision(p.draw.joules_per_flop);
  return j;
}

}  // namespace ddpsim::io
