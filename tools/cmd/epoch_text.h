// An epoch's steps and last batch, as commands say them.
#pragma once

#include <string>

#include "sim/io/codecs.h"
#include "sim/model/sampler.h"

namespace ddpsim::cli {

// "183024 samples a rank (1 ...); 5720 steps an epoch, the last batch has ...".
std::string epoch_sentence(const Sampling& s, const Epoch& e);
io::OrderedJson epoch_json(const Sampling& s, const Epoch& e);

}  // namespace ddpsim::cli
