// A Program that no folder of sim/systems lowered (Options::program): what stands in for its
// workload, what keeps it from being played, and what a faster device or host makes of it.
#pragma once

#include <string>
#include <vector>

#include "sim/predict/predict.h"
#include "sim/predict/resources.h"

namespace ddpsim::predict {

// What its steady step computes, in one micro-step. `batch`: samples of a rank and micro-step; 0 =
// not known. It has no layers, no optimizer and no order of arrival that means anything; a question
// of it needs Options::program.
Workload stand_in(const Program& p, const std::string& name, std::vector<Tensor> tensors,
                  int batch);

// What of the Program nothing can play: a collective that this communicator does not perform, or
// that what is set of NCCL leaves nothing for. Empty message = nothing. Besides check(q).
Problem check_program(const Program& p, const Question& q, Communicators* known = nullptr);

// Message fidelity plays all of its collectives.
bool by_message(const Program& p);

// The first operation of a step, by its place among the steps, that ddpsim's own executor cannot
// play, in a sentence; "" = it can play all.
std::string unplayable(const Program& p);

// Every measured time of what computes or copies, `factor` times as long.
void scale_computation(Program& p, double factor);

// The Program on a device or a host so much faster. What a Profile prices is as it was.
Program faster(const Program& p, Resource resource, double factor);

}  // namespace ddpsim::predict
