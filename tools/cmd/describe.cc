// ddpsim describe: a workload of any PyTorch model, without a GPU and without the model's memory.
#include "tools/cmd/describe.h"

#include <memory>
#include <ostream>

#include <fmt/format.h>

#include "sim/door/documents.h"
#include "sim/io/files.h"
#include "sim/model/error.h"
#include "sim/units/number.h"
#include "sim/units/text.h"
#include "tools/cmd/amounts.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/progress.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

constexpr const char* kFactory =
    "a factory is written FILE.py:FUNCTION or MODULE:FUNCTION, and returns (model, inputs, "
    "loss_fn, optimizer), of which the last two may be left out";

struct DescribeCommandFlags {
  DescribeFlags what;
  std::string out;
};

void check_number(const char* flag, const std::string& text) {
  if (text.empty()) return;
  auto n = parse_integer(text);
  if (!n || *n < 1 || *n > INT32_MAX)
    throw InputError{std::string(flag) + " " + text, "expected a whole number of at least 1"};
}

void check_what(const DescribeFlags& f) {
  int given = !f.factory.empty() + !f.model.empty() + !f.script.empty();
  if (given == 0)
    throw InputError{"describe", std::string("no model given; name it with --factory (") +
                                     kFactory +
                                     "), --script (that trains) or --model (of torchvision)"};
  if (given > 1)
    throw InputError{"describe",
                     "--factory, --model and --script each name a model; give one of them"};
  if (f.script.empty() && !f.ranks.empty())
    throw InputError{
        "--ranks " + f.ranks,
        "is of --script; how many ranks a workload runs on is asked of ddpsim predict"};
  if (f.script.empty() && !f.timeout.empty())
    throw InputError{"--timeout " + f.timeout, "is of --script; name one"};
  if (f.script.empty() && f.allow_writes)
    throw InputError{"--allow-writes", "is of --script; name one"};
  if (!f.script.empty() && !f.optimizer.empty())
    throw InputError{"--optimizer " + f.optimizer,
                     "a script has its own; --optimizer-name says what stands for it"};
  check_number("--ranks", f.ranks);
  if (!f.factory.empty() && f.factory.find(':') == std::string::npos)
    throw InputError{"--factory " + f.factory, kFactory};
  if (f.model.empty() && !f.image.empty())
    throw InputError{"--image " + f.image, "is of --model; a factory makes its own inputs"};
  check_number("--batch", f.batch);
  check_number("--image", f.image);
}

std::string stem(const std::string& file) {
  std::string out = file.substr(file.rfind('/') + 1);
  for (const char* ending : {".gz", ".json"})
    if (std::string e = ending; out.size() > e.size() && out.ends_with(e))
      out.resize(out.size() - e.size());
  return out;
}

// The answer's file is none that is described, and can be written.
void check_out(const DescribeCommandFlags& flags) {
  if (flags.out.empty()) return;
  const std::string& factory = flags.what.factory;
  if (auto colon = factory.rfind(':');
      colon != std::string::npos && io::same_file(flags.out, factory.substr(0, colon)))
    throw InputError{"--out " + flags.out, "is the file that --factory reads; name another"};
  io::check_place(flags.out);
}

void describe_command(Terminal& t, DescribeCommandFlags flags) {
  check_what(flags.what);
  check_out(flags);
  if (flags.what.name.empty() && !flags.out.empty()) flags.what.name = stem(flags.out);
  calib::Description found = describe(t, flags.what);
  OutputFlags output;
  output.format = "json";
  output.out = flags.out;
  write_answer(t, output, found.workload);
  tell(t, flags.out.empty() ? "describe" : flags.out, found.says);
  if (flags.out.empty()) return;
  std::string sets;
  for (const std::string& set : sets_of(found.plan)) sets += " --set " + set;
  t.err << "ddpsim: next: ddpsim predict --workload " << printable(flags.out)
        << " --cluster hgx-h100 --ranks " << (flags.what.ranks.empty() ? "8" : flags.what.ranks)
        << printable(sets) << "\n";
}

}  // namespace

void add_describer_flags(Command& c, DescribeFlags& f) {
  c.add_option("--optimizer-name", f.optimizer_name,
               "sgd, adam or adamw: what stands for an optimizer's class that ddpsim does not know")
      ->one_of({"sgd", "adam", "adamw"});
  c.add_option("--python", f.python,
               "an interpreter that has PyTorch (1.13 or later); default: the first of python3 and "
               "/usr/bin/python3 that has it");
  c.add_option("--timeout", f.timeout,
               "with --script: how long it may run until three of its steps are seen, such as 30s "
               "or 1h; default 10min");
  c.add_flag("--allow-writes", f.allow_writes,
             "with --script: it writes its files, sends and starts processes as it always does");
}

calib::Description describe(Terminal& t, const DescribeFlags& f) {
  calib::DescribeOptions options;
  options.python = f.python;
  options.script = home_of(t).path() + "/tools/python/ddpsim_describe.py";
  if (!io::exists(options.script))
    throw InputError{options.script, "no such file; set DDPSIM_HOME to ddpsim's folder"};
  options.arguments = {"--command", fmt::format("ddpsim {}", fmt::join(t.arguments, " "))};
  for (auto [flag, value] : {std::pair{"--factory", &f.factory},
                             {"--model", &f.model},
                             {"--script", &f.script},
                             {"--ranks", &f.ranks},
                             {"--name", &f.name},
                             {"--batch", &f.batch},
                             {"--image", &f.image},
                             {"--optimizer", &f.optimizer},
                             {"--optimizer-name", &f.optimizer_name},
                             {"--precision", &f.precision}})
    if (!value->empty()) options.arguments.push_back(std::string(flag) + "=" + *value);
  if (!f.timeout.empty()) {
    const Duration most = positive_duration("--timeout", f.timeout);
    options.arguments.push_back(fmt::format("--timeout={}", static_cast<double>(most.ps) * 1e-12));
  }
  if (f.allow_writes) options.arguments.emplace_back("--allow-writes");
  options.arguments.emplace_back("--");
  options.arguments.insert(options.arguments.end(), t.of_script.begin(), t.of_script.end());
  return timed(t, [&] { return calib::describe_model(options); });
}

void tell(Terminal& t, const std::string& what, const std::vector<std::string>& says) {
  for (const std::string& each : says)
    t.err << "ddpsim: " << printable(what) << ": " << printable(each) << "\n";
}

void add_describe(Command& app, Terminal& t) {
  auto flags = std::make_shared<DescribeCommandFlags>();
  Command* c = app.add_subcommand(
      "describe",
      "Describe a PyTorch model, or what a training script trains, as a workload: without a GPU "
      "and without the model's memory");
  c->add_option("--factory", flags->what.factory,
                "FILE.py:FUNCTION or MODULE:FUNCTION, which returns (model, inputs, loss_fn, "
                "optimizer), of which the last two may be left out");
  c->add_option("--model", flags->what.model, "a classification model of torchvision");
  c->add_option("--script", flags->what.script,
                "a training script, unmodified: it runs until three of its steps were seen, as "
                "rank 0, computes nothing, and sends nothing; what it writes goes to a folder that "
                "vanishes; its arguments follow after --");
  c->add_option("--ranks", flags->what.ranks,
                "with --script: ranks of the job that it sees (WORLD_SIZE); default 8");
  c->add_option("-o,--out", flags->out, "file to write, such as mine.json; default: stdout");
  c->add_option("--name", flags->what.name,
                "name of the workload; default: by the file that is written, or described");
  c->add_option("--batch", flags->what.batch,
                "samples per rank and step; default: read from the inputs (--model: 32)");
  c->add_option("--image", flags->what.image, "with --model: size of an image; default 224");
  c->add_option("--optimizer", flags->what.optimizer,
                "sgd (with momentum), adam or adamw, where the factory gives none; default sgd")
      ->one_of({"sgd", "adam", "adamw"});
  add_describer_flags(*c, flags->what);
  c->add_option("--precision", flags->what.precision,
                "fp32, tf32, bf16 or fp16 (autocast, unless the parameters are halves); default: "
                "the parameters'")
      ->one_of({"fp32", "tf32", "bf16", "fp16"});
  c->callback([&t, flags] { describe_command(t, *flags); });
}

}  // namespace ddpsim::cli
