// LinkSpec: one direction of a cable, as a cluster file gives it.
#pragma once

#include <string>

#include "sim/model/error.h"
#include "sim/units/units.h"

namespace ddpsim {

// Links are full duplex with equal directions. burst > 0: a token bucket (see engine::Resource).
struct LinkSpec {
  Bandwidth bandwidth;
  Duration latency;
  Bytes burst;
  Bandwidth peak;
  std::string transport = "tcp";
  Bytes eager;  // the network asks the receiver before it sends messages of this many bytes or
                // more; 0 = it never asks
  Bandwidth staging;  // no GPUDirect: what one thread copies between GPU and network, both
                      // directions together; 0 = nothing is copied
};

// `path`: of the link in its file ("/link").
Problem check_link(const LinkSpec& link, const std::string& path);

}  // namespace ddpsim
