// The repeated blocks of a described model, by the names of its layers; and what activation
// checkpointing keeps of them.
#pragma once

#include <string>
#include <vector>

#include "sim/model/workload.h"

namespace ddpsim {

// "transformer.h.0.attn.c_attn" -> "transformer.h.0": up to the first component that is a number;
// empty: of no block.
std::string block_of(const std::string& layer);

// Layers [from, to) of one block that run one after another.
struct Block {
  std::size_t from = 0;
  std::size_t to = 0;
};
std::vector<Block> blocks_of(const Workload& w);
// Of each layer, whether selective checkpointing keeps what it makes, so that it does not run
// again: every second matrix product of a block, beginning with the first, and a fused attention.
// Source: torchtitan, parallelize_llama.py, selective_ac_option "op".
std::vector<bool> kept_outputs(const Workload& w);

}  // namespace ddpsim
