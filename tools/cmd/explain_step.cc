// ddpsim explain SCENARIO: what a step waits for, which buckets are exposed, what decides when, and
// what would have to be faster.
#include "tools/cmd/explain_step.h"

#include <fmt/format.h>

#include "sim/door/given_program.h"
#include "sim/io/write_explanation.h"
#include "sim/predict/known_times.h"
#include "sim/predict/left_out.h"
#include "sim/report/explanation_text.h"
#include "sim/report/text.h"
#include "sim/systems/base/record.h"
#include "tools/cmd/progress.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {

void explain_step(Terminal& t, const QuestionFlags& question, const OutputFlags& output) {
  Loaded l = load(t, question);
  if (!l.scenario.other_jobs.empty())
    throw InputError{"#/other_jobs",
                     "explain looks at one job by itself: what the others put on the links is not "
                     "in what it shows; --set other_jobs=[] explains this job alone, ddpsim "
                     "predict shows its step beside the others"};
  predict::KnownTimes known(l.workload, l.profile);
  l.options.times = &known;
  predict::Explanation e = timed(t, [&] { return predict::explain(l.question(), l.options); });
  std::string what =
      l.program ? l.workload.name
                : fmt::format("{}, {}, {}{}", l.workload.name, batch_text(l.workload),
                              precision_text(l.workload, l.scenario.plan), loop_text(l.workload));
  std::string heading = fmt::format("{} on {}: {} rank{}", what, l.cluster.name, l.scenario.ranks,
                                    l.scenario.ranks == 1 ? "" : "s");
  if (l.program) heading += "\n" + plan_text(*l.program) + "; " + times_text(*l.program);
  if (std::string nccl = nccl_text(l.scenario.plan); !nccl.empty()) heading += "; " + nccl;
  heading += fmt::format("\nprofile {}: {}", l.profile.name,
                         report::basis_sentence(l.profile, l.workload));
  std::vector<std::string> notes = predict::what_is_left_out(l.workload, l.scenario.plan);
  if (std::string note = jitter_note(l.scenario); !note.empty()) notes.push_back(note);
  if (auto* const warnings = systems::record_of(l.scenario.plan.system).warnings)
    for (std::string& warning : warnings(l.scenario.plan)) notes.push_back(std::move(warning));
  for (const std::string& note : notes) heading += "\n" + note;
  io::OrderedJson j = io::write_explanation(e);
  j["profile"] = l.profile.name;
  j["basis"] = report::basis_sentence(l.profile, l.workload);
  j["notes"] = notes;
  write_answer(t, output,
               output.format == "json"
                   ? j.dump(1) + "\n"
                   : report::explanation_page(heading, e, output.format == "md"));
}

}  // namespace ddpsim::cli
