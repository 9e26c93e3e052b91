#include "tools/cmd/kernels.h"

#include <map>

#include <fmt/format.h>

#include "sim/door/documents.h"
#include "sim/io/files.h"
#include "sim/io/read_budget.h"
#include "sim/io/read_kernels.h"
#include "sim/validation/validation.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

using namespace validation;

std::vector<KernelResult> predict_all(Terminal& t, const std::string& folder) {
  const io::Home home = home_of(t);
  std::map<std::string, Profile> profiles;
  auto profile_of = [&](const std::string& name) -> const Profile& {
    auto [it, fresh] = profiles.try_emplace(name);
    if (fresh) {
      const std::string path = home.find("calib/profiles", name, "profile");
      it->second = io::open_profile(home, path, path);
    }
    return it->second;
  };
  std::vector<KernelResult> out;
  for (const std::string& path : io::list_files(folder, {".json"}))
    for (const PublishedKernel& k :
         io::read_kernels(io::parse_json(io::read_file(path), path), path)) {
      const Profile& p = profile_of(k.profile);
      if (!p.costs || !find_product(*p.costs, "gemm", k.precision))
        throw InputError{path, "profile \"" + k.profile + "\" has no kernels of products in " +
                                   name_of(k.precision)};
      out.push_back(predict_kernel(k, p));
    }
  if (out.empty()) throw InputError{folder, "no published kernel"};
  return out;
}

io::OrderedJson to_json(const KernelsReport& r) {
  io::OrderedJson out;
  for (const KernelLine& l : r.lines)
    out["lines"].push_back({{"what", l.what},
                            {"rows", l.rows},
                            {"sources", l.sources},
                            {"measured_flops_per_s", l.rate},
                            {"bias", l.bias},
                            {"median", l.median},
                            {"p95", l.p95}});
  return out;
}

constexpr const char* kHead = "what";

std::string table(const KernelsReport& r) {
  std::string out = fmt::format("{:<34} {:>5} {:>8} {:>8} {:>8} {:>8} {:>9}\n", kHead, "rows",
                                "sources", "TFLOP/s", "bias %", "median %", "p95 %");
  for (const KernelLine& l : r.lines)
    out += fmt::format("{:<34} {:>5} {:>8} {:>8.0f} {:>+8.1f} {:>8.1f} {:>9.1f}\n", l.what, l.rows,
                       l.sources, l.rate / 1e12, 100 * l.bias, 100 * l.median, 100 * l.p95);
  return out;
}

std::string markdown(const KernelsReport& r) {
  std::string out =
      "# Published kernels beside predictions\n\n"
      "Made by `tools/reports` (`ddpsim validate --kernels --format md`); do not edit. Rows:\n"
      "`calib/published/kernels`, facts of public repositories; nothing of them was measured by\n"
      "ddpsim. A row is the product of a linear layer, forward, alone; predicted is what the\n"
      "shipped profile of that GPU says of it, before launches. Error: predicted / measured - "
      "1.\n\n"
      "| | rows | sources | measured, TFLOP/s | bias, % | median \\|error\\|, % | p95, % |\n"
      "|---|---:|---:|---:|---:|---:|---:|\n";
  for (const KernelLine& l : r.lines)
    out += fmt::format("| {} | {} | {} | {:.0f} | {:+.1f} | {:.1f} | {:.1f} |\n", l.what, l.rows,
                       l.sources, l.rate / 1e12, 100 * l.bias, 100 * l.median, 100 * l.p95);
  return out;
}

}  // namespace

void validate_kernels(Terminal& t, const OutputFlags& output, const std::string& folder,
                      const std::string& budget) {
  const std::vector<KernelResult> results = predict_all(t, folder);
  const KernelsReport report = judge_kernels(results);
  std::vector<LimitResult> limits;
  if (!budget.empty())
    limits =
        apply_limits(values(results),
                     io::read_budget(io::parse_json(io::read_file(budget), budget), budget, {}));
  write_answer(t, output,
               output.format == "json" ? to_json(report).dump(1) + "\n"
               : output.format == "md" ? markdown(report)
                                       : table(report));
  bool broken = false;
  for (const LimitResult& l : limits) {
    if (l.broken) t.err << "ddpsim: budget: " << l.sentence << "\n";
    broken |= l.broken;
  }
  if (broken) throw GateFailed{};
}

}  // namespace ddpsim::cli
