// --program FILE: a schedule that no system of ddpsim lowers, from a file (docs/formats.md,
// program).
#pragma once

#include <string>

#include "sim/door/loader.h"

namespace ddpsim::door {

struct GivenProgram {
  Program program;
  std::string name;  // as the file says, or the file's own
  std::string file;
  std::string recorded_from;  // "PyTorch 2.7.0": its durations are the recording machine's; "" = no
  std::string scaled;         // the value of --compute-scale; "" = 1
};

// What says again what the file says. Throws InputError.
void refuse_beside_program(const QuestionText& flags, const std::vector<io::Setting>& settings);
// Makes the question one of the Program: its stand-in workload, backend, ranks and options. Throws
// InputError. REQUIRES: flags.program; the hardware and the scenario are there.
void give_program(const QuestionText& flags, Asked& asked);
// Throws InputError where this cluster cannot play it. REQUIRES: predict::check found nothing.
void check_given_program(const QuestionText& flags, const Asked& asked);
// Throws InputError where its steady step takes no time. REQUIRES: what check_given_program() and
// size_of() say is in bounds.
void check_period(const Asked& asked);
// The question's Program: the given one, or what its plan lowers to. Where a step decides what is
// reduced together, one that was played.
Program lowered_program(const Loaded& l);
// Of the longest of its steps: seconds of computation, bytes and number of its collectives.
struct ProgramSize {
  double seconds = 0;
  double bytes = 0;
  double collectives = 0;
};
ProgramSize size_of(const Program& p, const Profile& profile);

// Sentences for people: "program FILE: 161 operations a step, 7 of them collectives, over nccl".
std::string plan_text(const GivenProgram& p);
// Where its computation's times are from.
std::string times_text(const GivenProgram& p);

}  // namespace ddpsim::door
