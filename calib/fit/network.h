// A network's terms from samples of collectives on it, one transport's: efficiency, correction by
// chunk, wait for a receiver, launch, and at what rate halves are summed beside it.
#pragma once

#include <string>
#include <vector>

#include "calib/fit/fit.h"
#include "calib/fit/message_cost.h"

namespace ddpsim::calib {

// An all-reduce under a profile, picoseconds.
double priced(const Point& p, const Profile& profile);
// The transport of the links that its ring crosses.
std::string transport_of(const Point& p);

// All terms of the points' transport that all-reduces tell, as the points' backend has them.
// REQUIRES: a point at least, all of one backend and transport, which the profile has.
void fit_network(const std::vector<Point>& points, Profile& profile);

// Wake-up of an idle communication thread: begin - ready of collectives that found it idle.
std::vector<double> wake_ups(const Run& run);

// How long a small broadcast between two hosts takes that were silent, less its message: what it
// costs to begin.
void fit_launch(const std::vector<FitCollectives>& runs, TransportSection& t);

// Gloo sums halves in software: the rate at which the price of an all-reduce of halves is what was
// measured, by bisection.
void fit_half_sums(const std::vector<FitCollectives>& runs, Profile& p);

}  // namespace ddpsim::calib
