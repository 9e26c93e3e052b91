// ddpsim explain SCENARIO: a step (explain_step.cc). ddpsim explain TRACES: measured ones
// (explain_traces.cc). ddpsim explain --op OPERATION --bytes SIZE
// --cluster C: what NCCL would run, and what each way would take.
#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "sim/report/text.h"
#include "tools/cmd/explain_op.h"
#include "tools/cmd/explain_step.h"
#include "tools/cmd/explain_traces.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/given_program.h"

namespace ddpsim::cli {
namespace {

struct Flags {
  NcclFlags nccl;                   // its question also has what explains a step
  std::vector<std::string> traces;  // after what may be a scenario, or the first of them
  std::string op;
  std::string bytes;
  OutputFlags output;
};

// One way to run the operation.
struct Row {
  nccl::Candidate candidate;
  nccl::Choice choice;
  nccl::Price price;
};

Operation operation_of(const std::string& text) {
  auto op = parse_operation(text);
  if (op) return *op;
  std::string known;
  for (int i = 0; i < kOperations; ++i)
    known += std::string(i ? ", " : "") + ddpsim::name_of(static_cast<Operation>(i));
  throw InputError{"--op " + text, "expected one of " + known};
}

std::string name_of(const nccl::Candidate& c) {
  return fmt::format("{}/{}", nccl::name_of(c.algorithm), nccl::name_of(c.protocol));
}

void explain_command(Terminal& t, Flags& flags) {
  const QuestionFlags& question = flags.nccl.question;
  if (!question.scenario.empty() || !question.workload.empty() || !question.program.empty()) {
    for (auto [flag, value] :
         {std::pair{"--op", &flags.op}, std::pair{"--bytes", &flags.bytes},
          std::pair{"--nccl", &flags.nccl.version}, std::pair{"--graph", &flags.nccl.graph}})
      if (!value->empty())
        throw InputError{
            std::string(flag) + " " + *value,
            "is about one collective, and a scenario, workload or program is about a step; "
            "give one of the two"};
    std::vector<std::string> traces = flags.traces;
    if (!question.scenario.empty()) traces.insert(traces.begin(), question.scenario);
    if (!flags.traces.empty() || is_trace(question.scenario))
      return explain_traces(t, traces, question, flags.output);
    return explain_step(t, question, flags.output);
  }
  for (auto [flag, value] :
       {std::pair{"--plan", &question.plan}, std::pair{"--layers", &question.layers},
        std::pair{"--fidelity", &question.fidelity},
        std::pair{"--measured-step", &question.measured_step},
        std::pair{"--samples-per-s", &question.samples_per_s}})
    if (!value->empty())
      throw InputError{std::string(flag) + " " + *value,
                       "is about a step; name a scenario or a --workload, too"};
  if (flags.output.format == "md")
    throw InputError{"--format md", "is of a step; one collective has table and json"};
  if (flags.op.empty()) flags.op = "all_reduce";
  if (flags.bytes.empty()) flags.bytes = "25MiB";
  Operation op = operation_of(flags.op);
  Parsed<Bytes> bytes = parse_bytes(flags.bytes);
  if (!bytes.value || bytes.value->count <= 0)
    throw InputError{"--bytes " + flags.bytes,
                     bytes.value ? "an operation has at least one byte" : bytes.error};
  NcclQuestion q;
  load_nccl_question(t, flags.nccl, q);
  if (op == Operation::AllToAll || op == Operation::SendRecv)
    return explain_p2p(t, q, op, *bytes.value, flags.nccl.graph, flags.output);
  const Hardware& h = q.hardware;
  const nccl::Group& group = *q.group;
  int ranks = q.ranks;
  auto chosen = nccl::choose(group, op, bytes.value->count);
  if (!chosen)
    throw InputError{"--set NCCL_ALGO, NCCL_PROTO",
                     "leave nothing that could run this operation here (NCCL 2.24 and later stop "
                     "with an error, too)"};
  std::vector<Row> rows;
  for (const nccl::Candidate& c : nccl::candidates(group, op, bytes.value->count)) {
    Row row{c, {}, {}};
    if (c.estimate_us) {
      row.choice = nccl::complete(group, op, c.algorithm, c.protocol, bytes.value->count);
      row.price = nccl::price_of(group, h.profile, Level::Mid, op, row.choice, *bytes.value);
      rows.push_back(std::move(row));
    }
  }
  auto is_chosen = [&](const Row& r) {
    return r.candidate.algorithm == chosen->algorithm && r.candidate.protocol == chosen->protocol;
  };
  if (std::none_of(rows.begin(), rows.end(), is_chosen)) {
    // NCCL before 2.24 takes a ring where its settings leave nothing.
    Row row{{chosen->algorithm, chosen->protocol, chosen->estimate_us, {}},
            *chosen,
            nccl::price_of(group, h.profile, Level::Mid, op, *chosen, *bytes.value)};
    rows.insert(rows.begin(), std::move(row));
  }
  auto best = std::min_element(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.price.total < b.price.total;
  });
  std::vector<nccl::Composed> composed;
  if (op == Operation::AllReduce) composed = composed_of(q, *bytes.value);
  if (flags.output.format == "json") {
    io::OrderedJson list = io::OrderedJson::array();
    for (const Row& r : rows)
      list.push_back({{"algorithm", nccl::name_of(r.candidate.algorithm)},
                      {"protocol", nccl::name_of(r.candidate.protocol)},
                      {"channels", r.choice.channels},
                      {"threads", r.choice.threads},
                      {"chunk_bytes", r.choice.chunk},
                      {"nccl_ps", static_cast<std::int64_t>(*r.candidate.estimate_us * 1e6)},
                      {"price_ps", r.price.total.ps},
                      {"base_ps", r.price.base.ps},
                      {"steps_ps", r.price.steps.ps},
                      {"fill_ps", r.price.fill.ps},
                      {"transfer_ps", r.price.transfer.ps},
                      {"bus_bytes_per_s", r.price.bus_bytes_per_s},
                      {"limited_by", r.price.limited_by},
                      {"chosen", is_chosen(r)}});
    io::OrderedJson j = {{"operation", flags.op},
                         {"bytes", bytes.value->count},
                         {"cluster", h.cluster.name},
                         {"profile", h.profile.name},
                         {"ranks", ranks},
                         {"candidates", list}};
    j["changes"] = switches_json(switches_of(group, h.profile, op));
    j["rendezvous"] = rendezvous_json(rendezvous_of(group, h.profile, op));
    if (!composed.empty()) j["made_of_calls"] = composed_json(composed, flags.nccl.graph);
    return write_answer(t, flags.output, j.dump(1) + "\n");
  }
  std::string out = heading(q, op, *bytes.value, flags.nccl.graph);
  out += fmt::format("  {:<16} {:>8} {:>11} {:>11} {:>10}  {}\n", "", "channels", "NCCL says",
                     "ddpsim", "bus GB/s", "limited by");
  for (const Row& r : rows)
    out +=
        fmt::format("{} {:<16} {:>8} {:>11} {:>11} {:>10.1f}  {}\n", is_chosen(r) ? "*" : " ",
                    name_of(r.candidate), r.choice.channels,
                    to_string(Duration{static_cast<std::int64_t>(*r.candidate.estimate_us * 1e6)}),
                    to_string(r.price.total), r.price.bus_bytes_per_s / 1e9, r.price.limited_by);
  const Row& mine = *std::find_if(rows.begin(), rows.end(), is_chosen);
  out += fmt::format(
      "\nNCCL takes {} (*), the least of its estimates. ddpsim's price: {} at once, {} for the "
      "latencies of its steps, {} to fill the pipeline, {} to move the bytes.\n",
      name_of(mine.candidate), to_string(mine.price.base), to_string(mine.price.steps),
      to_string(mine.price.fill), to_string(mine.price.transfer));
  if (best->price.total < mine.price.total)
    out += fmt::format(
        "By ddpsim's price {} would take {:.0f} % less. To try it: NCCL_ALGO={} NCCL_PROTO={}, or "
        "ddpsim export nccl-tuner.\n",
        name_of(best->candidate),
        100 * (1 - static_cast<double>(best->price.total.ps) /
                       static_cast<double>(mine.price.total.ps)),
        nccl::name_of(best->candidate.algorithm), nccl::name_of(best->candidate.protocol));
  std::vector<Switch> changes = switches_of(group, h.profile, op);
  if (!changes.empty()) {
    out += "NCCL's choice by size:";
    std::string at = changes.front().before;
    for (const Switch& s : changes) {
      out += fmt::format(" {} below {},", at, to_string(Bytes{s.bytes}));
      at = s.after;
    }
    out += fmt::format(" {} above.\n", at);
    for (const Switch& s : changes)
      if (s.faster)
        out += fmt::format(
            "At {} the time falls although the size grows: NCCL changes from {} to {}.\n",
            to_string(Bytes{s.bytes}), s.before, s.after);
  }
  out += rendezvous_text(rendezvous_of(group, h.profile, op));
  write_answer(t, flags.output,
               report::wrapped(out + composed_text(composed, mine.price.total, flags.nccl.graph)));
}

}  // namespace

void add_explain(Command& app, Terminal& t) {
  auto flags = std::make_shared<Flags>();
  Command* c =
      app.add_subcommand("explain",
                         "Why a step takes as long as it does: of a scenario, or measured, "
                         "of traces of PyTorch's profiler, one of each rank; or (--op) "
                         "what NCCL would run for one collective, and what each way would "
                         "take");
  c->add_option("--op", flags->op,
                "of one collective: all_reduce (default), all_gather, reduce_scatter, broadcast, "
                "reduce, all_to_all, send_recv");
  c->add_option("--bytes", flags->bytes,
                "of one collective: size as nccl-tests states it (default 25MiB)");
  add_question_flags(*c, flags->nccl.question);
  c->get_option("scenario")
      ->description("scenario file (flags override it), or a trace of PyTorch's profiler");
  c->add_option("traces", flags->traces, "traces of the other ranks");
  add_measured_flags(*c, flags->nccl.question);
  add_program_flags(*c, flags->nccl.question);
  c->get_option("--set")->description(
      fmt::format("PATH=VALUE, repeatable: cluster.hosts=16, profile.host.launch_ps=5000000; one "
                  "of NCCL's variables: {} (0, 1 or 2); of a step also what ddpsim predict takes: "
                  "bucket_cap_mb=50, workload.batch=64",
                  known_nccl_variables()));
  for (const char* of_a_step :
       {"--workload", "--plan", "--layers", "--fidelity", "--measured-step", "--samples-per-s"}) {
    Option* option = c->get_option(of_a_step);
    option->description("of a step: " + option->get_description());
  }
  c->add_option("--nccl", flags->nccl.version,
                "of one collective: NCCL's version, 2.19 to 2.30 (default 2.28)");
  c->add_option("--graph", flags->nccl.graph,
                "of one collective: channels as NCCL found them (NCCL_GRAPH_DUMP_FILE), instead of "
                "ddpsim's own search");
  add_output_flags(*c, flags->output, {"table", "json", "md"},
                   "table (default) or json; of a step also md");
  c->callback([&t, flags] { explain_command(t, *flags); });
}

}  // namespace ddpsim::cli
