// ddpsim explain SCENARIO: what a step waits for, which buckets are exposed, what decides when, and what would have to be faster.
#include "tools/cmd/explain_step.h"

#include <fmt/format.h>

#include "sim/io/write_explanation.h"
#include "sim/report/explanation_text.h"

namespace ddpsim::cli {

void explain_step(Terminal& t, const QuestionFlags& question, const OutputFlags& output) {
  Loaded l = load(t, question);
  if (!l.scenario.other_jobs.empty()) throw InputError{"#/other_jobs", "explain looks at one job by itself; leave the other jobs out"};
  predict::Explanation e = predict::explain(l.question(), l.options);
  std::string heading = fmt::format("{}, batch {} per rank, {} on {}: {} rank{}; profile {}", l.workload.name, l.workload.batch, name_of(l.workload.precision), l.cluster.name,
                                    l.scenario.ranks, l.scenario.ranks == 1 ? "" : "s", l.profile.name);
  write_answer(t, output, output.format == "json" ? io::write_explanation(e).dump(1) + "\n" : report::explanation_page(heading, e, output.format == "md"));
}

}  // namespace ddpsim::cli
