// Activation checkpointing: what a block keeps, what its backward brings back, and how long that
// takes.
#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/io/codecs.h"
#include "sim/model/blocks.h"
#include "sim/systems/base/model_memory.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

Layer layer(const char* name, const char* kind, double saves, double makes) {
  Layer l;
  l.name = name;
  l.op.kind = kind;
  l.memory = LayerMemory{{saves, saves, saves}, {}, {makes, makes, makes}};
  return l;
}

// Two blocks of a product and an activation between an embedding and a head.
Workload two_blocks(Checkpointing checkpointing) {
  Workload w;
  w.basis = Basis::Described;
  w.checkpointing = checkpointing;
  w.layers = {layer("embedding", "embedding", 8, 4), layer("h.0.linear", "linear", 10, 20),
              layer("h.0.relu", "relu", 30, 6),      layer("h.1.linear", "linear", 10, 20),
              layer("h.1.relu", "relu", 30, 6),      layer("head", "linear", 5, 7)};
  return w;
}

TEST(Checkpointing, BlocksAreNamesUpToTheirFirstNumber) {
  EXPECT_EQ(block_of("transformer.h.12.attn.c_attn"), "transformer.h.12");
  EXPECT_EQ(block_of("lm_head"), "");
  std::vector<Block> blocks = blocks_of(two_blocks(Checkpointing::None));
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_EQ(blocks[1].from, 3U);
  EXPECT_EQ(blocks[1].to, 5U);
}

TEST(Checkpointing, ABlockKeepsWhatItReadAndComesBackInItsBackward) {
  const systems::ModelMemory none(two_blocks(Checkpointing::None));
  EXPECT_EQ(none.forward(0, 6).change, 8 + 40 + 40 + 5);
  const systems::ModelMemory full(two_blocks(Checkpointing::Full));
  EXPECT_EQ(full.forward(0, 6).change, 8 + 4 + 6 + 5);
  // The last block's 40 are there again, the head's 5 no longer; gradients of what its activation
  // made and read.
  EXPECT_EQ(full.backward(0, 6).most, 40 - 5 + 6 + 20);
  EXPECT_EQ(full.backward(0, 6).change, -23);
  // In pieces it is the same.
  EXPECT_EQ(full.backward(4, 6).change + full.backward(1, 4).change + full.backward(0, 1).change,
            -23);
}

TEST(Checkpointing, SelectiveKeepsEverySecondProductToo) {
  const systems::ModelMemory some(two_blocks(Checkpointing::Selective));
  EXPECT_EQ(some.forward(0, 6).change, 8 + (4 + 20) + (6 + 20) + 5);
  // Of the 40 that come back the activation's input is there.
  EXPECT_EQ(some.backward(4, 6).most, 20 - 5 + 6 + 20);
  EXPECT_EQ(some.backward(0, 6).change, -63);
}

TEST(Checkpointing, AutocastsCopiesOfWeightsAreThereUntilForwardEnds) {
  Workload w = two_blocks(Checkpointing::Full);
  w.precision = Precision::Bf16;
  for (std::size_t l : {1, 3}) w.layers[l].op.inputs = 10, w.layers[l].op.outputs = 3;
  const systems::ModelMemory full(w);
  EXPECT_EQ(full.forward(0, 6).change, 23);
  // At the last product.
  EXPECT_EQ(full.forward(0, 6).most, 8 + 4 + 6 + 2 * 2 * 30 + 20);
  EXPECT_EQ(full.backward(0, 6).change, -23);
}

TEST(Checkpointing, BlocksRunForwardAgain) {
  io::Json j = read_json("workloads/llama-3.2-1b.json");
  Profile p = profile("h100-sxm.datasheet");
  auto times = [&](const char* how) {
    j["checkpointing"] = how;
    return predict::step_times(io::read_workload(j, "w"), p, Level::Mid);
  };
  StepTimes none = times("none");
  StepTimes full = times("full");
  StepTimes some = times("selective");
  const Workload w = io::read_workload(j, "w");
  Duration again;
  for (const Block& b : blocks_of(w))
    for (std::size_t l = b.from; l < b.to; ++l) again += none.layers[l].forward;
  EXPECT_EQ(full.forward, none.forward);
  EXPECT_EQ(full.backward, none.backward + again);
  EXPECT_EQ(full.ready.back() - none.ready.back(), again);
  EXPECT_LT(some.backward, full.backward);
  EXPECT_GT(some.backward, none.backward);
}

TEST(Checkpointing, NeedsBlocks) {
  io::Json j = read_json("workloads/mlp784-50-10.json");
  j["checkpointing"] = "full";
  EXPECT_THROW(io::read_workload(j, "w"), InputError);
  j = read_json("workloads/resnet50-cpu.json");
  j["checkpointing"] = "none";
  EXPECT_THROW(io::read_workload(j, "w"), InputError) << "captured";
}

}  // namespace
}  // namespace ddpsim::test
