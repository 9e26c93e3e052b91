// How much of a step each link would need at its full rate: what a picture of the cluster shows.
#pragma once

#include <vector>

#include "sim/predict/predict.h"

namespace ddpsim::predict {

class Prices;

struct LinkBusy {
  topology::LinkId link = 0;
  double busy = 0;  // share of the step; the largest is Prediction::busiest_link's
};
// Of the links that a Program's steady collectives use, ascending. `step`: how long it takes.
// `prices`: of this communicator, at Level::Mid.
std::vector<LinkBusy> link_use(const Program& program, const collective::Communicator& comm,
                               const Profile& profile, Duration step, Prices& prices);
// Of the links that the steady step's collectives use, ascending. `step`: its duration. REQUIRES:
// check(q) found nothing.
std::vector<LinkBusy> link_use(const Question& q, Duration step, const Options& options = {});

}  // namespace ddpsim::predict
