// Names of operations that a system of sim/systems has are read as that system's words, where they
// mean the same; every other operation is a word of its own, with the kind that the file gives it.
// Internal to read_playable.
#pragma once

#include <vector>

#include "sim/io/listed_step.h"

namespace ddpsim::io {

// Gives each operation its kind, word and subject and each step its buckets, and the Program of the
// head the words and labels.
void name_operations(std::vector<ListedStep>& steps, ProgramHead& head);

}  // namespace ddpsim::io
