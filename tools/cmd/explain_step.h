// ddpsim explain SCENARIO.
#pragma once

#include "tools/cmd/question.h"

namespace ddpsim::cli {

void explain_step(Terminal& t, const QuestionFlags& question, const OutputFlags& output);

}  // namespace ddpsim::cli
