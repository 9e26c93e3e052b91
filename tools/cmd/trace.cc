// ddpsim trace: one steady step as a Chrome / Perfetto trace.
#include <ostream>

#include "sim/io/write_prediction.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/given_program.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {

void add_trace(Command& app, Terminal& t) {
  struct Flags {
    QuestionFlags question;
    OutputFlags output;
    std::string step;
  };
  auto flags = std::make_shared<Flags>();
  Command* c = app.add_subcommand(
      "trace", "Write one steady step as a trace for chrome://tracing or ui.perfetto.dev");
  add_question_flags(*c, flags->question);
  add_measured_flags(*c, flags->question);
  add_program_flags(*c, flags->question);
  add_step_flag(*c, flags->step);
  add_output_flags(*c, flags->output, {"json"});
  c->callback([&t, flags] {
    Loaded l = load(t, flags->question);
    l.options.common_start = from_common_start(flags->step);
    predict::Prediction p = predict::predict(l.question(), l.options);
    p.run.key = l.key;
    write_answer(t, flags->output, io::write_trace(p.run));
    if (!flags->output.out.empty())
      t.err << "ddpsim: wrote " << flags->output.out
            << "; open it at ui.perfetto.dev or chrome://tracing\n";
  });
}

}  // namespace ddpsim::cli
