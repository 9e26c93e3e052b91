// ddpsim explain SCENARIO: a step (explain_step.cc). ddpsim explain TRACES: measured ones
// (explain_traces.cc). ddpsim explain --op OPERATION --bytes SIZE --cluster C: what NCCL would run,
// and what each way would take; over other backends (explain_backend.cc) which algorithm.
#include <algorithm>
#include <cmath>
#include <ostream>

#include <fmt/format.h>

#include "sim/door/given_program.h"
#include "sim/nccl/fabric/spread.h"
#include "sim/report/text.h"
#include "tools/cmd/explain_backend.h"
#include "tools/cmd/explain_op.h"
#include "tools/cmd/explain_step.h"
#include "tools/cmd/explain_traces.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

struct ExplainFlags {
  NcclFlags nccl;                   // its question also has what explains a step
  std::vector<std::string> traces;  // after what may be a scenario, or the first of them
  std::string op;
  std::string bytes;
  BackendFlags backend;
  OutputFlags output;
};

// One way to run the operation.
struct Row {
  nccl::Candidate candidate;
  nccl::Choice choice;
  nccl::OperationTime price;
};

Operation operation_of(const std::string& text) {
  auto op = parse_operation(text);
  if (op) return *op;
  std::string known;
  for (int i = 0; i < kOperations; ++i)
    known += std::string(i ? ", " : "") + ddpsim::name_of(static_cast<Operation>(i));
  throw InputError{"--op " + text, "expected one of " + known};
}

using ddpsim::name_of;
std::string name_of(const nccl::Candidate& c) {
  return fmt::format("{}/{}", nccl::name_of(c.algorithm), nccl::name_of(c.protocol));
}

// What NCCL would run, and what each way would take.
struct NcclAnswer {
  Operation op;
  Bytes bytes;
  std::vector<Row> rows;
  nccl::Choice chosen;
  std::vector<nccl::Composed> composed;
  bool is_chosen(const Row& r) const {
    return r.candidate.algorithm == chosen.algorithm && r.candidate.protocol == chosen.protocol;
  }
};

NcclAnswer ask_nccl(const NcclQuestion& q, Operation op, Bytes bytes) {
  const nccl::Group& group = *q.group;
  const Profile& profile = q.hardware.profile;
  auto chosen = nccl::choose(group, op, bytes.count);
  if (!chosen)
    throw InputError{"--set NCCL_ALGO, NCCL_PROTO",
                     "leave nothing that could run this operation here (NCCL 2.24 and later stop "
                     "with an error, too)"};
  NcclAnswer out{op, bytes, {}, *chosen, {}};
  for (const nccl::Candidate& c : nccl::candidates(group, op, bytes.count)) {
    if (!c.estimate) continue;
    Row row{c, nccl::complete(group, op, c.algorithm, c.protocol, bytes.count), {}};
    row.price = nccl::time_of(group, profile, Level::Mid, op, row.choice, bytes);
    out.rows.push_back(std::move(row));
  }
  if (std::none_of(out.rows.begin(), out.rows.end(),
                   [&](const Row& r) { return out.is_chosen(r); })) {
    // NCCL before 2.24 takes a ring where its settings leave nothing.
    Row row{{chosen->algorithm, chosen->protocol, chosen->estimate, {}},
            *chosen,
            nccl::time_of(group, profile, Level::Mid, op, *chosen, bytes)};
    out.rows.insert(out.rows.begin(), std::move(row));
  }
  if (op == Operation::AllReduce) out.composed = composed_of(q, bytes);
  return out;
}

std::string nccl_csv(const NcclQuestion& q, const NcclAnswer& a) {
  std::string out = kNcclCsvHeader;
  for (const Row& r : a.rows)
    out += fmt::format("{},{},{},{},{},nccl,{},{},{},{},{},{:.0f},{},{},{},{},{},{:.0f},{},{}\n",
                       name_of(a.op), a.bytes.count, report::csv_field(q.hardware.cluster.name),
                       report::csv_field(q.hardware.profile.name), q.ranks,
                       nccl::name_of(r.candidate.algorithm), nccl::name_of(r.candidate.protocol),
                       a.is_chosen(r) ? "yes" : "no", r.choice.channels, r.choice.chunk,
                       picoseconds(*r.candidate.estimate), r.price.total.ps, r.price.base.ps,
                       r.price.steps.ps, r.price.fill.ps, r.price.transfer.ps,
                       r.price.bus_bytes_per_s, report::csv_field(r.price.limited_by),
                       report::csv_field(fmt::format("{}", fmt::join(notes_of(q), "; "))));
  return out;
}

// Of one process for all GPUs of a host.
struct Launches {
  int gpus = 1;
  Duration time;
};
Launches launches_of(const NcclQuestion& q, const nccl::Choice& choice) {
  int gpus = nccl::most_of_a_host(*q.group);
  return {gpus, nccl::launches(*q.group, q.hardware.profile, choice, gpus)};
}

io::OrderedJson nccl_json(const NcclQuestion& q, const NcclAnswer& a, const std::string& graph) {
  const Hardware& h = q.hardware;
  io::OrderedJson list = io::OrderedJson::array();
  for (const Row& r : a.rows)
    list.push_back({{"algorithm", nccl::name_of(r.candidate.algorithm)},
                    {"protocol", nccl::name_of(r.candidate.protocol)},
                    {"channels", r.choice.channels},
                    {"threads", r.choice.threads},
                    {"chunk_bytes", r.choice.chunk},
                    {"nccl_ps", static_cast<std::int64_t>(picoseconds(*r.candidate.estimate))},
                    {"price_ps", r.price.total.ps},
                    {"low_ps", nccl::range_of(r.price.total, a.bytes).low.ps},
                    {"high_ps", nccl::range_of(r.price.total, a.bytes).high.ps},
                    {"base_ps", r.price.base.ps},
                    {"steps_ps", r.price.steps.ps},
                    {"fill_ps", r.price.fill.ps},
                    {"transfer_ps", r.price.transfer.ps},
                    {"bus_bytes_per_s", r.price.bus_bytes_per_s},
                    {"limited_by", r.price.limited_by},
                    {"chosen", a.is_chosen(r)}});
  io::OrderedJson j = {{"operation", name_of(a.op)}, {"bytes", a.bytes.count},
                       {"cluster", h.cluster.name},  {"profile", h.profile.name},
                       {"ranks", q.ranks},           {"candidates", list}};
  const Row& mine =
      *std::find_if(a.rows.begin(), a.rows.end(), [&](const Row& r) { return a.is_chosen(r); });
  const Launches own = launches_of(q, mine.choice);
  if (auto kernel = nccl::symmetric_kernel(*q.group, a.op, a.bytes))
    j["symmetric"] = {{"kernel", kernel->name},
                      {"blocks", kernel->blocks},
                      {"nccl_ps", std::llround(picoseconds(kernel->estimate))}};
  j["launches"] = {{"gpus_per_process", own.gpus}, {"ps", own.time.ps}};
  j["changes"] = switches_json(switches_of(*q.group, h.profile, a.op));
  j["rendezvous"] = rendezvous_json(rendezvous_of(*q.group, h.profile, a.op));
  if (!a.composed.empty()) j["made_of_calls"] = composed_json(a.composed, graph);
  j["notes"] = notes_of(q);
  return j;
}

std::string changes_text(const NcclQuestion& q, Operation op) {
  std::vector<Switch> changes = switches_of(*q.group, q.hardware.profile, op);
  if (changes.empty()) return "";
  std::string out = "NCCL's choice by size:";
  std::string at = changes.front().before;
  for (const Switch& s : changes) {
    out += fmt::format(" {} below {},", at, to_string(Bytes{s.bytes}));
    at = s.after;
  }
  out += fmt::format(" {} above.\n", at);
  for (const Switch& s : changes)
    if (s.faster)
      out +=
          fmt::format("At {} the time falls although the size grows: NCCL changes from {} to {}.\n",
                      to_string(Bytes{s.bytes}), s.before, s.after);
  return out;
}

std::string nccl_text(const NcclQuestion& q, const NcclAnswer& a, const std::string& graph) {
  std::string out = heading(q, a.op, a.bytes, graph);
  out += fmt::format("  {:<16} {:>8} {:>11} {:>11} {:>10}  {}\n", "", "channels", "NCCL says",
                     "ddpsim", "bus GB/s", "limited by");
  for (const Row& r : a.rows)
    out += fmt::format(
        "{} {:<16} {:>8} {:>11} {:>11} {:>10.1f}  {}\n", a.is_chosen(r) ? "*" : " ",
        name_of(r.candidate), r.choice.channels,
        to_string(Duration{static_cast<std::int64_t>(picoseconds(*r.candidate.estimate))}),
        to_string(r.price.total), r.price.bus_bytes_per_s / 1e9, r.price.limited_by);
  const Row& mine =
      *std::find_if(a.rows.begin(), a.rows.end(), [&](const Row& r) { return a.is_chosen(r); });
  const Row& best = *std::min_element(a.rows.begin(), a.rows.end(), [](const Row& x, const Row& y) {
    return x.price.total < y.price.total;
  });
  out += fmt::format(
      "\nNCCL takes {} (*), the least of its estimates. ddpsim's price: {} at once, {} for the "
      "latencies of its steps, {} to fill the pipeline, {} to move the bytes.\n",
      name_of(mine.candidate), to_string(mine.price.base), to_string(mine.price.steps),
      to_string(mine.price.fill), to_string(mine.price.transfer));
  const nccl::PriceRange likely = nccl::range_of(mine.price.total, a.bytes);
  out += fmt::format(
      "Likely: {} to {}, as 80 % of the published rows of such sizes took beside their price "
      "(ddpsim validate --collectives).\n",
      to_string(likely.low), to_string(likely.high));
  const Launches own = launches_of(q, mine.choice);
  if (own.gpus > 1 && own.time > mine.price.total)
    out += fmt::format(
        "One process that launches it on all {} GPUs of a host (nccl-tests -g {}) takes {} for "
        "that: so much nccl-tests would show.\n",
        own.gpus, own.gpus, to_string(own.time));
  if (auto kernel = nccl::symmetric_kernel(*q.group, a.op, a.bytes))
    out += fmt::format(
        "With both buffers in symmetric windows (ncclCommWindowRegister), of floating-point sums, "
        "NCCL takes its kernel {} on {} thread {} instead. It says {}; nothing here has measured "
        "one.\n",
        kernel->name, kernel->blocks, kernel->blocks == 1 ? "block" : "blocks",
        to_string(Duration{std::llround(picoseconds(kernel->estimate))}));
  if (best.price.total < mine.price.total)
    out += fmt::format(
        "By ddpsim's price {} would take {:.0f} % less. To try it: NCCL_ALGO={} NCCL_PROTO={}, or "
        "ddpsim export nccl-tuner.\n",
        name_of(best.candidate), 100 * (1 - best.price.total / mine.price.total),
        nccl::name_of(best.candidate.algorithm), nccl::name_of(best.candidate.protocol));
  out += changes_text(q, a.op);
  out += rendezvous_text(rendezvous_of(*q.group, q.hardware.profile, a.op));
  return out + composed_text(a.composed, mine.price.total, graph) + notes_text(q);
}

void explain_nccl(Terminal& t, const ExplainFlags& flags, Operation op, Bytes bytes) {
  NcclQuestion q;
  load_nccl_question(t, flags.nccl, q);
  const std::string& graph = flags.nccl.graph;
  if (op == Operation::AllToAll || op == Operation::SendRecv)
    return explain_p2p(t, q, op, bytes, graph, flags.output);
  const NcclAnswer a = ask_nccl(q, op, bytes);
  const std::string& format = flags.output.format;
  write_answer(t, flags.output,
               format == "json"  ? nccl_json(q, a, graph).dump(1) + "\n"
               : format == "csv" ? nccl_csv(q, a)
                                 : nccl_text(q, a, graph));
}

// Without the lines that only say which backend.
std::vector<std::string> without_backend(const std::vector<std::string>& sets) {
  std::vector<std::string> out;
  for (const std::string& s : sets)
    if (!s.starts_with("backend=") && !s.starts_with("plan.backend=")) out.push_back(s);
  return out;
}

void explain_collective(Terminal& t, ExplainFlags& flags) {
  if (flags.op.empty()) flags.op = "all_reduce";
  if (flags.bytes.empty()) flags.bytes = "25MiB";
  const Operation op = operation_of(flags.op);
  Parsed<Bytes> bytes = parse_bytes(flags.bytes);
  if (!bytes.value || bytes.value->count <= 0)
    throw InputError{"--bytes " + flags.bytes,
                     bytes.value ? "an operation has at least one byte" : bytes.error};
  const Backend backend = backend_asked(t, flags.backend, flags.nccl.question);
  if (backend == Backend::Nccl) {
    if (!flags.backend.algorithm.empty())
      throw InputError{"--algorithm " + flags.backend.algorithm,
                       "NCCL chooses by its estimates; to allow it only some: --set "
                       "NCCL_ALGO=ring"};
    flags.nccl.question.sets = without_backend(flags.nccl.question.sets);
    return explain_nccl(t, flags, op, *bytes.value);
  }
  for (auto [flag, value] :
       {std::pair{"--nccl", &flags.nccl.version}, std::pair{"--graph", &flags.nccl.graph}})
    if (!value->empty())
      throw InputError{std::string(flag) + " " + *value,
                       std::string("is of NCCL, and the backend is ") + name_of(backend)};
  const BackendAnswer a =
      ask_backend(t, backend, flags.backend, flags.nccl.question, op, *bytes.value);
  const std::string& format = flags.output.format;
  write_answer(t, flags.output,
               format == "json"  ? backend_json(a).dump(1) + "\n"
               : format == "csv" ? backend_csv(a)
                                 : backend_table(a));
}

void explain_command(Terminal& t, ExplainFlags& flags) {
  const QuestionFlags& question = flags.nccl.question;
  if (!question.scenario.empty() || !question.workload.empty() || !question.program.empty()) {
    for (auto [flag, value] :
         {std::pair{"--op", &flags.op}, std::pair{"--bytes", &flags.bytes},
          std::pair{"--backend", &flags.backend.backend},
          std::pair{"--algorithm", &flags.backend.algorithm},
          std::pair{"--nccl", &flags.nccl.version}, std::pair{"--graph", &flags.nccl.graph}})
      if (!value->empty())
        throw InputError{
            std::string(flag) + " " + *value,
            "is about one collective, and a scenario, workload or program is about a step; "
            "give one of the two"};
    if (flags.output.format == "csv")
      throw InputError{"--format csv", "is of one collective; a step has table, json and md"};
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
    throw InputError{"--format md", "is of a step; one collective has table, csv and json"};
  explain_collective(t, flags);
}

}  // namespace

void add_explain(Command& app, Terminal& t) {
  auto flags = std::make_shared<ExplainFlags>();
  Command* c =
      app.add_subcommand("explain",
                         "Why a step takes as long as it does: of a scenario, or measured, "
                         "of traces of PyTorch's profiler, one of each rank; or (--op) "
                         "what a backend runs for one collective, and what each way would "
                         "take");
  c->add_option("--op", flags->op,
                "of one collective: all_reduce (default), all_gather, reduce_scatter, broadcast, "
                "reduce, all_to_all, send_recv");
  c->add_option("--bytes,--size", flags->bytes,
                "of one collective: size as nccl-tests states it (default 25MiB)");
  c->add_option("--backend", flags->backend.backend,
                "of one collective: nccl (default on GPUs), gloo (default on CPUs), tcp or mpi");
  c->add_option("--algorithm", flags->backend.algorithm,
                "of one all-reduce over tcp, gloo or mpi: its algorithm, instead of what the "
                "backend takes by itself");
  add_question_flags(*c, flags->nccl.question);
  c->get_option("scenario")
      ->description("scenario file (flags override it), or a trace of PyTorch's profiler");
  c->add_option("traces", flags->traces, "traces of the other ranks");
  add_measured_flags(*c, flags->nccl.question);
  add_program_flags(*c, flags->nccl.question);
  c->get_option("--set")->description(fmt::format(
      "PATH=VALUE, repeatable: cluster.hosts=16, profile.host.launch_ps=5000000; one "
      "of NCCL's variables: {} (0, 1 or 2); over Open MPI open_mpi=5.0 and OMPI_MCA_...; "
      "of a step also what ddpsim predict takes: bucket_cap_mb=50, workload.batch=64",
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
  add_output_flags(*c, flags->output, {"table", "json", "md", "csv"},
                   "table (default) or json; of a step also md, of one collective csv");
  c->callback([&t, flags] { explain_command(t, *flags); });
}

}  // namespace ddpsim::cli
