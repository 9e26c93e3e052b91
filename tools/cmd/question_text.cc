// A question in words, for headings.
#include <algorithm>

#include <fmt/format.h>

#include "sim/cost/roofline.h"
#include "sim/units/text.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {

std::string batch_text(const Workload& w) {
  std::string sequence = w.sequence > 0 ? fmt::format(", sequence {}", w.sequence) : "";
  return fmt::format("batch {} per rank{}{}", w.batch, sequence, frozen_text(w));
}

std::string precision_text(const Workload& w, const Plan& plan) {
  const Precision computed = predict::computed_in(w, predict::gathered_in(plan));
  std::string name = name_of(computed);
  if (computed != w.precision) return name + " (param_dtype)";
  if (!is_half(computed) || w.basis != Basis::Described) return name;
  return name + (w.casting == Casting::Autocast        ? " (autocast)"
                 : w.casting == Casting::MasterWeights ? " (master weights)"
                                                       : " (weights, too)");
}

std::string frozen_text(const Workload& w) {
  if (w.frozen.empty()) return {};
  const auto n = static_cast<double>(w.frozen_elements());
  const std::string count = n >= 1e9   ? fmt::format("{:.3g} billion", n / 1e9)
                            : n >= 1e6 ? fmt::format("{:.3g} million", n / 1e6)
                                       : fmt::format("{:.0f}", n);
  return fmt::format(", {} of {} frozen parameters", to_string(w.frozen_bytes()), count);
}

std::string loop_text(const Workload& w) {
  std::string out;
  if (loop_work(w).unscale > 0) out += ", GradScaler";
  if (w.loop.clip_grad_norm) out += ", clipped";
  if (w.loop.loss_item) out += ", loss read each step";
  if (w.loop.forward_item) out += ", values read before backward";
  if (!w.loop.collectives.empty()) out += ", with its own collectives";
  if (w.loop.traffic > 0) out += ", with an update of its own";
  if (w.compile != Compile::None) out += ", torch.compile";
  if (w.compile == Compile::Regional) out += " of blocks";
  if (w.compile == Compile::Whole) out += " (one graph)";
  if (w.cuda_graphs) out += ", CUDA graph";
  return out;
}

std::string nccl_text(const Plan& plan, const std::vector<std::string>& without) {
  auto left_out = [&](const std::string& name) {
    return std::find(without.begin(), without.end(), name) != without.end();
  };
  std::string out = plan.nccl.empty() || left_out("nccl") ? "" : "NCCL " + plan.nccl;
  for (const auto& [name, value] : plan.environment)
    if (!left_out(name)) out += (out.empty() ? "" : ", ") + name + "=" + value;
  return out;
}

std::string jitter_note(const Scenario& s) {
  return s.jitter ? fmt::format(
                        "the scenario's jitter (cv {:g}) is left out: these are steps without it; "
                        "ddpsim predict plays it",
                        s.jitter->cv)
                  : "";
}

}  // namespace ddpsim::cli
