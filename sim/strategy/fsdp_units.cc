// Which parameters FSDP gathers together: an auto_wrap_policy by the names of layers.
#include <algorithm>
#include <map>

#include "sim/strategy/fsdp.h"

namespace ddpsim::strategy {
namespace {

// "transformer.h.0.attn.c_attn" -> "transformer.h.0": up to the first component that is a number.
std::string block_of(const std::string& layer) {
  std::size_t at = 0;
  while (at < layer.size()) {
    std::size_t end = std::min(layer.find('.', at), layer.size());
    if (end > at && std::all_of(layer.begin() + static_cast<std::ptrdiff_t>(at),
                                layer.begin() + static_cast<std::ptrdiff_t>(end),
                                [](char c) { return c >= '0' && c <= '9'; }))
      return layer.substr(0, end);
    at = end + 1;
  }
  return {};
}

// "transformer.h.0" -> "h.0", as long as names differ.
void shorten(std::vector<Unit>& units) {
  std::map<std::string, int> seen;
  auto brief = [](const std::string& name) {
    std::size_t number = name.rfind('.');
    std::size_t list = number == std::string::npos || number == 0 ? std::string::npos
                                                                  : name.rfind('.', number - 1);
    return list == std::string::npos ? name : name.substr(list + 1);
  };
  for (const Unit& u : units) ++seen[brief(u.name)];
  for (const auto& [name, times] : seen)
    if (times > 1) return;
  for (Unit& u : units) u.name = brief(u.name);
}

}  // namespace

std::vector<Unit> fsdp_units(const Workload& w, const Plan& plan) {
  std::vector<Unit> units{{"root", {}, {}, 0}};
  std::map<std::string, std::size_t> known;
  std::vector<bool> taken(w.tensors.size());
  auto add = [&](std::size_t u, std::size_t l) {
    units[u].layers.push_back(l);
    for (TensorIndex t : w.layers[l].tensors)
      if (!taken[t]) {
        taken[t] = true;
        units[u].tensors.push_back(t);
        units[u].elements += w.tensors[t].elements();
      }
  };
  for (std::size_t l = 0; l < w.layers.size(); ++l) {
    std::string block = plan.fsdp.auto_wrap_policy == "block" ? block_of(w.layers[l].name) : "";
    if (block.empty()) {
      add(0, l);
      continue;
    }
    auto [at, fresh] = known.emplace(block, units.size());
    if (fresh) units.push_back({block, {}, {}, 0});
    add(at->second, l);
  }
  shorten(units);
  // As they are registered, in each unit.
  for (Unit& u : units) std::sort(u.tensors.begin(), u.tensors.end());
  return units;
}

}  // namespace ddpsim::strategy
