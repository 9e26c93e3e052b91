#include "sim/systems/apex/record.h"

#include "sim/systems/apex/apex.h"
#include "sim/systems/apex/plan.h"
#include "sim/systems/base/released.h"

namespace ddpsim::systems {
namespace {

apex::Version apex_release_of(const Plan& p) {
  return apex_of(p).release;
}
void set_apex_release(Plan& p, apex::Version v) {
  apex_of(p).release = v;
}
const char* apex_schedule_of(const Plan& plan) {
  return apex_of(plan).release == ApexPlan{}.release
             ? ""
             : "schedule of Apex of May 2025, recorded without a GPU, and what the plan's month "
               "does otherwise, from source reading; never executed";
}
// Rows of version.h that the lowering does not have.
std::vector<std::string> apex_warnings(const Plan& plan) {
  const ApexPlan& a = apex_of(plan);
  if (!a.retain_allreduce_buffers || a.release.has(apex::Change::RetainedBuffersAreGradients))
    return {};
  return {"before NVIDIA Apex " +
          apex::Version::first_with(apex::Change::RetainedBuffersAreGradients) +
          " buffers that are retained lie beside gradients; read, and modelled as of later ones, "
          "where gradients are views of them"};
}

std::span<const KnobRecord> apex_knobs() {
  static const KnobRecord knobs[] = {
      {"apex", "release", "25.05", "a month of Apex's master, or its tag: 19.02 to 25.05", false,
       release_field<apex_release_of, set_apex_release>},
      {"message_size",
       "elements",
       "10000000",
       "a bucket is closed when it has this many, of each type by itself",
       true,
       [](Plan& p) { return Field(&apex_of(p).message_size); },
       {1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 2e7, 5e7, 1e8}},
      {"delay_allreduce", "", "false",
       "everything is reduced after backward, in one flat copy of each type", true,
       [](Plan& p) { return Field(&apex_of(p).delay_allreduce); }},
      {"allreduce_trigger_params", "names", "none",
       "in place of message_size: a bucket is closed with each of these parameters", false,
       [](Plan& p) { return Field(&apex_of(p).allreduce_trigger_params); }},
      {"num_allreduce_streams",
       "streams",
       "1",
       "buckets take turns on so many streams, each with a communicator of its own",
       true,
       [](Plan& p) { return Field(&apex_of(p).num_allreduce_streams); },
       {1, 2, 4}},
      {"retain_allreduce_buffers", "", "false",
       "gradients become views of the flat buffers: no copy out", false,
       [](Plan& p) { return Field(&apex_of(p).retain_allreduce_buffers); }},
      {"allreduce_always_fp32", "", "false", "halves are reduced in four bytes", false,
       [](Plan& p) { return Field(&apex_of(p).allreduce_always_fp32); }},
      {"gradient_average", "", "true", "sums are divided by the ranks, after the all-reduce", false,
       [](Plan& p) { return Field(&apex_of(p).gradient_average); }},
      {"gradient_predivide_factor", "", "1",
       "gradients are divided by it before the all-reduce, and multiplied after it", false,
       [](Plan& p) { return Field(&apex_of(p).gradient_predivide_factor); }},
      {"disable_allreduce", "", "false",
       "disable_allreduce() in micro-steps but the last; false: each of them reduces", false,
       [](Plan& p) { return Field(&apex_of(p).disable_allreduce); }}};
  return knobs;
}

}  // namespace

SystemRecord apex_record() {
  return {
      .system = kApexSystem,
      .aliases = {{"apex_ddp"}},
      .title = "NVIDIA Apex DDP",
      .brief = "Apex DDP",
      .units = "buckets",
      .does =
          "apex.parallel.DistributedDataParallel: buckets by elements, flattened and all-reduced "
          "on streams of their own",
      .evidence = "schedules recorded of Apex of May 2025 on CPUs; never executed",
      .schedule =
          "schedule equal to that of Apex's own code (May 2025), recorded without a GPU; its times "
          "were never executed",
      .words = apex_words(),
      .knobs = apex_knobs(),
      .lower = lower_apex,
      .validate = validate_apex,
      .count =
          [](const Workload& w, const Plan& p) {
            return (apex_of(p).delay_allreduce ? apex_fallback(w, p) : apex_buckets(w, p)).size();
          },
      .ranked = {{"num_allreduce_streams", "2"}, {"delay_allreduce", "true"}},
      .warnings = apex_warnings,
      .schedule_of = apex_schedule_of};
}

}  // namespace ddpsim::systems
