#include <fmt/format.h>

#include "tools/cmd/steps.h"

namespace ddpsim::cli {
namespace {

using namespace validation;

std::string hundred(double v) {
  return fmt::format("{:.1f}", 100 * v);
}
const char* name_of(StepQuestion q) {
  return kStepQuestions[static_cast<std::size_t>(q)];
}

}  // namespace

std::string steps_table(const StepsReport& r) {
  std::string out =
      fmt::format("{:<14} {:<44} {:>4} {:>7} {:>7} {:>8} {:>6} {:>9} {:>8}\n", "question", "rows",
                  "n", "sources", "bias %", "median %", "p95 %", "in 80 %", "others %");
  for (const StepGroup& g : r.groups)
    out +=
        fmt::format("{:<14} {:<44} {:>4} {:>7} {:>7} {:>8} {:>6} {:>9} {:>8}\n",
                    name_of(g.question), g.by == "all" ? "all" : g.by + " " + g.name, g.n,
                    g.sources, hundred(g.bias), hundred(g.median), hundred(g.p95),
                    fmt::format("{}/{}", g.within, g.n), g.left_out ? hundred(*g.left_out) : "-");
  return out;
}

std::string steps_markdown(const StepsReport& r) {
  return steps_table(r);
}

io::OrderedJson steps_json(const StepsReport& r) {
  return {{"rows", r.rows}};
}

}  // namespace ddpsim::cli
