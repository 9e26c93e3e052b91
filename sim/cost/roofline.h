// Times of a described workload on a Profile's device, and prices of single operations.
#pragma once

#include <optional>
#include <string>

#include "sim/model/plan.h"
#include "sim/model/profile.h"
#include "sim/model/program.h"

namespace ddpsim::predict {

// time of a layer = max(flops / (peak * efficiency), bytes / (memory bandwidth * efficiency),
// kernels * shortest kernel). Captured workloads: as they are at Level::Mid, at the ends longer and
// shorter by what 80 % of the capture's passes varied (StepTimes::slow, quick). With a measured
// step (Workload::measured_step): those at Level::Mid times its factor, at every level. REQUIRES:
// validate(w) and validate(p) found nothing, roofline_problem(w, p) is empty.
//
// `weights`: what FSDP gathers them in. Where those are halves, a described workload computes in
// them, whatever its precision is: weights arrive in halves and inputs are cast once, so that no
// layer casts, as autocast's do (torch.distributed.fsdp.MixedPrecision, param_dtype). The optimizer
// keeps the workload's own.
StepTimes step_times(const Workload& w, const Profile& p, Level level,
                     std::optional<DType> weights = {});
// Why this workload cannot be timed on this profile ("" = it can): precision not offered, wrong
// kind of device.
std::string roofline_problem(const Workload& w, const Profile& p,
                             std::optional<DType> weights = {});
// FSDP's param_dtype; none where the plan has none.
std::optional<DType> gathered_in(const Plan& plan);
// The precision of a step: of a described one the halves that its weights are gathered in, else the
// workload's own.
Precision computed_in(const Workload& w, std::optional<DType> weights);

// Memory bandwidth that one device reaches, bytes per picosecond.
double memory_rate(const Profile& p, Level level);

// Part of the price that computes and moves next to nothing: a CPU divides halves in software, and
// passes over a matrix in thin products more slowly than memory would let it, and Python calls the
// small operators around them one by one.
Duration core_time(const Op& op, const StepProgram& step, const Profile& p);

// Duration of an operation that is priced by the Profile: memory traffic on the device, launches
// and hooks on the host.
Duration price(const Op& op, const StepProgram& step, const Program& program, const Profile& p,
               Level level);

}  // namespace ddpsim::predict
