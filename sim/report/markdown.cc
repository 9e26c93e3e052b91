// A prediction as GitHub-flavoured Markdown: the page of text, in tables.
#include <fmt/format.h>

#include "sim/report/text.h"
#include "sim/units/text.h"

namespace ddpsim::report {

std::string markdown_cell(const std::string& s) {
  std::string out;
  for (char c : printable(s)) {
    if (c == '|' || c == '<') out += '\\';  // would end the cell, or begin HTML
    out += c;
  }
  return out;
}

std::string prediction_markdown(const Heading& h, const predict::Prediction& p,
                                const std::vector<predict::Lever>& levers) {
  const analysis::Summary& s = p.summary;
  std::string out = fmt::format("## {} on {}\n\n{}. Profile {}: {}.\n\n", markdown_cell(h.workload),
                                markdown_cell(h.cluster), markdown_cell(h.plan),
                                markdown_cell(h.profile), basis_sentence(h, p));
  out += fmt::format("**Step {}** ({} to {}; {}); {}scaling efficiency {}; limited by {}.\n\n",
                     to_string(s.step), to_string(p.step_low), to_string(p.step_high), h.interval,
                     p.samples_per_s > 0 ? count_text(p.samples_per_s) + " samples/s; " : "",
                     efficiency_text(p.scaling_efficiency, p.efficiency_low, p.efficiency_high),
                     limit_sentence(h, p));
  for (const std::string& known : h.known_errors) out += "Known error: " + known + ".\n\n";
  if (p.beside) out += "The step is the " + beside_sentence(p) + ".\n\n";
  out += "| part of the step | time | share |\n|---|--:|--:|\n";
  for (auto [name, time] : {std::pair{"forward", s.forward},
                            {"backward", s.backward},
                            {"averaging on the device", s.ddp},
                            {"exposed communication", s.exposed_communication},
                            {"optimizer", s.optimizer},
                            {"waiting for input", s.input.value_or(Duration{})},
                            {"device waits for its host", s.idle}})
    if (time.ps != 0)
      out += fmt::format("| {} | {} | {:.1f} % |\n", name, to_string(time),
                         100 * fraction(time, s.step));
  if (p.clock < 1) out += "\n" + power_sentence(p.clock) + ".\n";
  if (p.paces) out += "\n" + paces_sentence(*p.paces) + ".\n";
  if (p.stragglers) out += "\nOf computation, " + stragglers_sentence(*p.stragglers) + ".\n";
  if (!s.buckets.empty())
    out +=
        "\n| all-reduce | bytes | tensors | ready | begin | end | algorithm "
        "|\n|---|--:|--:|--:|--:|--:|---|\n";
  for (const analysis::BucketTimes& b : s.buckets)
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", markdown_cell(b.name),
                       to_string(Bytes{b.bytes}), b.tensors.size(), to_string(b.ready),
                       to_string(b.begin), to_string(b.end), b.algorithm);
  if (!levers.empty()) out += "\n| what to try next | step | gain | how |\n|---|--:|--:|---|\n";
  for (const predict::Lever& l : levers)
    out += fmt::format("| {} | {} | {} | `{}` |\n", markdown_cell(l.change), to_string(l.step),
                       to_string(s.step - l.step), l.command);
  for (const std::string& note : p.extrapolated) out += "\nBeyond the model: " + note + "\n";
  return out;
}

}  // namespace ddpsim::report
