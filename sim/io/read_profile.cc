#include "sim/cost/carry.h"
#include "sim/cost/power.h"
#include "sim/io/reference_gpu.h"
#include "sim/io/schema/profile_fields.h"

namespace ddpsim::io {
namespace {

// Kernels that are carried over from another GPU, whose calls of the host the profile also takes
// where it has none of its own. REQUIRES: compute, memory and host of `p` are read.
void carry_kernels(const Reader& r, const KernelsFile& f, Profile& p) {
  r.at("from").choice({kReferenceName});
  if (p.kind != DeviceKind::Gpu) r.fail("kernels of a GPU are not carried over to a CPU");
  if (p.compute.sms == 0 || p.compute.clock_hz <= 0 || p.compute.capability == 0)
    r.fail("kernels that are carried over need compute/compute_capability, sms and clock_hz");
  const Profile& from = reference_gpu();
  p.costs = predict::carried(from, p, f.fed.value_or(predict::kFed));
  p.costs->source = f.costs.source;
  p.costs->carried_from = kReferenceName;
  if (f.common) p.costs->common = p.costs->common_conv = *f.common;
  if (f.common_conv) p.costs->common_conv = *f.common_conv;
  if (p.host.calls.empty()) p.host.calls = from.host.calls;
}

void read_kernels(const Reader& r, Profile& p) {
  KernelsFile f;
  read_fields(r, f);
  if (f.basis == "carried") return carry_kernels(r, f, p);
  p.costs = std::move(f.costs);
}

// REQUIRES: compute and memory of `p` are read.
void read_power(const Reader& r, Profile& p) {
  PowerFile f;
  read_fields(r, f);
  p.power = std::move(f.power);
  if (!p.power->like) return;
  if (p.compute.clock_hz <= 0) r.fail("power that is carried over needs compute/clock_hz");
  if (Problem problem = validate(*p.power)) r.fail_at(problem.path.substr(6), problem.message);
  const Profile& measured = reference_gpu();
  p.power->draw = predict::drawn_like(*measured.power, measured.compute.peak_flops, *p.power->like,
                                      p.compute, p.power->limit_w);
}

}  // namespace

Profile read_profile(const Json& j, const std::string& file) {
  Reader r(j, file);
  r.schema(kProfileSchema);
  if (j.contains("extends"))
    r.fail_at("/extends", "only a profile's file extends another; name a --profile instead");
  Profile p;
  read_fields(r, p);
  if (r.has("kernels")) read_kernels(r.at("kernels"), p);
  if (r.has("power")) read_power(r.at("power"), p);
  if (auto problem = validate(p)) r.fail_at(problem.path, problem.message);
  read_known_errors(j, file);
  return p;
}

}  // namespace ddpsim::io
