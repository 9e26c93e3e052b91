#include "sim/model/blocks.h"

#include <algorithm>

namespace ddpsim {

std::string block_of(const std::string& layer) {
  std::size_t at = 0;
  while (at < layer.size()) {
    std::size_t end = std::min(layer.find('.', at), layer.size());
    if (end > at && std::all_of(layer.begin() + at, layer.begin() + end,
                                [](char c) { return c >= '0' && c <= '9'; }))
      return layer.substr(0, end);
    at = end + 1;
  }
  return {};
}

std::vector<Block> blocks_of(const Workload& w) {
  std::vector<Block> out;
  std::string before;
  for (std::size_t l = 0; l < w.layers.size(); ++l) {
    std::string block = block_of(w.layers[l].name);
    if (!block.empty() && block == before)
      out.back().to = l + 1;
    else if (!block.empty())
      out.push_back({l, l + 1});
    before = std::move(block);
  }
  return out;
}

std::vector<bool> kept_outputs(const Workload& w) {
  std::vector<bool> out(w.layers.size());
  if (w.checkpointing != Checkpointing::Selective) return out;
  for (const Block& b : blocks_of(w)) {
    bool first = true;
    for (std::size_t l = b.from; l < b.to; ++l) {
      const LayerOp& op = w.layers[l].op;
      if (op.kind == "linear") {
        out[l] = first;
        first = !first;
      } else {
        out[l] = w.fused_attention && op.attention;
      }
    }
  }
  return out;
}

}  // namespace ddpsim
