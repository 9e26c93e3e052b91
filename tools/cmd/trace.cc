// ddpsim trace: one steady step as a Chrome / Perfetto trace, or as a picture.
#include <ostream>

#include "sim/door/given_program.h"
#include "sim/io/write_prediction.h"
#include "sim/report/timeline_svg.h"
#include "sim/units/text.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

std::string title_of(const Loaded& l, const predict::Prediction& p) {
  return l.workload.name + " on " + l.cluster.name + ", " + std::to_string(l.scenario.ranks) +
         (l.scenario.ranks == 1 ? " rank" : " ranks") + ": a step of " + to_string(p.summary.step);
}

}  // namespace

void add_trace(Command& app, Terminal& t) {
  struct Flags {
    QuestionFlags question;
    OutputFlags output;
    std::string step;
  };
  auto flags = std::make_shared<Flags>();
  Command* c = app.add_subcommand(
      "trace",
      "Write one steady step as a trace for chrome://tracing or ui.perfetto.dev, or as a picture "
      "(--out step.svg)");
  add_question_flags(*c, flags->question);
  add_measured_flags(*c, flags->question);
  add_program_flags(*c, flags->question);
  add_step_flag(*c, flags->step);
  add_output_flags(*c, flags->output, {"json", "svg"},
                   "json (default): a trace; svg (default of --out NAME.svg): a picture");
  flags->output.format.clear();  // by the name of --out
  c->callback([&t, flags] {
    for (const char* picture : {".png", ".pdf", ".jpg"})
      if (flags->output.out.ends_with(picture))
        throw InputError{
            "--out " + flags->output.out,
            "a picture is an SVG (--out step.svg), and a trace is JSON (--out step.json)"};
    Loaded l = load(t, flags->question);
    l.options.common_start = from_common_start(flags->step);
    predict::Prediction p = predict::predict(l.question(), l.options);
    p.run.key = l.key;
    bool draws = flags->output.format == "svg" ||
                 (flags->output.format.empty() && flags->output.out.ends_with(".svg"));
    write_answer(t, flags->output,
                 draws ? report::timeline_svg(p.run, title_of(l, p)) : io::write_trace(p.run));
    for (const std::string& note : p.extrapolated) t.err << "ddpsim: " << note << "\n";
    if (!flags->output.out.empty())
      t.err << "ddpsim: wrote " << flags->output.out
            << (draws ? "; it shows the rank that ends last\n"
                      : "; open it at ui.perfetto.dev or chrome://tracing\n");
  });
}

}  // namespace ddpsim::cli
