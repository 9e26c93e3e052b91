// The data that ranks play, and whether a played collective left the right values: sums are known
// in advance, and so is whose elements are where.
#pragma once

#include <cstddef>
#include <string>

#include "calib/player.h"

namespace ddpsim::calib {

// Plays the largest collective of each operation, group and root of a steady step once more, on
// data that says where it comes from; returns what is wrong with what it leaves ("" = nothing).
// All ranks call it, after play().
std::string check_collectives(const Part& part, int rank, Mesh& mesh);

// Fills a rank's gradients so that every sum is known; after the last step says what is wrong with
// them ("" = nothing).
void fill_gradients(const Part& part, int rank, std::byte* gradients);
std::string check_gradients(const Part& part, const std::byte* gradients);

}  // namespace ddpsim::calib
