// The symmetric kernels that NCCL picks. The rows were made by its own src/sym_kernels.cc of
// v2.28.9 (ncclSymkPickKernel and what it calls, compiled alone), of random communicators of one
// node: fp32, sums, default settings.
#include <gtest/gtest.h>

#include "sim/nccl/symmetric.h"

namespace ddpsim::nccl {
namespace {

struct Picked {
  int ranks;
  int compute_capability;
  bool multicast;
  Operation op;
  std::int64_t bytes;
  const char* name;
  int blocks;
  double us;
};
constexpr Picked kPicked[]{
    {16, 100, true, Operation::AllReduce, 32768, "AllReduce_RSxLDMC_AGxSTMC", 1, 19.8234},
    {8, 90, true, Operation::AllGather, 2147483648, "AllGather_STMC", 2, 5627.3081},
    {16, 100, true, Operation::AllGather, 4294967296, "AllGather_STMC", 2, 6262.7114},
    {8, 90, true, Operation::ReduceScatter, 67108864, "ReduceScatter_LDMC", 2, 182.4409},
    {72, 100, false, Operation::ReduceScatter, 2096640, "ReduceScatter_LD", 10, 15.6937},
    {8, 100, false, Operation::AllReduce, 32768, "AllReduce_AGxLL_R", 11, 13.9475},
    {72, 90, true, Operation::ReduceScatter, 8387712, "ReduceScatter_LDMC", 1, 30.8724},
    {8, 100, false, Operation::AllReduce, 268435456, "AllReduce_RSxLD_AGxST", 13, 755.5385},
    {8, 90, true, Operation::AllGather, 262144, "AllGather_STMC", 1, 8.5535},
    {8, 90, true, Operation::ReduceScatter, 32768, "ReduceScatter_LL", 6, 5.2365},
    {4, 100, true, Operation::AllReduce, 268435456, "AllReduce_RSxLDMC_AGxSTMC", 5, 333.6069},
    {2, 100, true, Operation::AllGather, 33554432, "AllGather_STMC", 11, 38.6910},
    {72, 100, true, Operation::ReduceScatter, 524160, "ReduceScatter_LDMC", 1, 13.5992},
    {16, 90, true, Operation::ReduceScatter, 65536, "ReduceScatter_LL", 8, 5.6814},
    {2, 100, true, Operation::AllReduce, 4294967296, "AllReduce_RSxLDMC_AGxSTMC", 10, 6068.5522},
    {8, 90, true, Operation::ReduceScatter, 8388608, "ReduceScatter_LDMC", 2, 28.7551},
    {8, 100, false, Operation::ReduceScatter, 4096, "ReduceScatter_LL", 1, 11.5228},
    {8, 90, true, Operation::AllReduce, 1024, "AllReduce_AGxLLMC_R", 2, 4.9714},
    {72, 100, true, Operation::AllReduce, 2096640, "AllReduce_RSxLDMC_AGxSTMC", 1, 20.7985},
    {16, 90, false, Operation::AllGather, 536870912, "AllGather_ST", 9, 1505.3362},
    {16, 90, true, Operation::AllGather, 8192, "AllGather_LLMC", 3, 4.9649},
    {8, 100, true, Operation::AllGather, 2147483648, "AllGather_STMC", 3, 2954.6633},
    {16, 90, true, Operation::AllReduce, 131072, "AllReduce_RSxLDMC_AGxSTMC", 1, 8.1934},
    {72, 100, true, Operation::AllReduce, 67108608, "AllReduce_RSxLDMC_AGxSTMC", 1, 81.8678},
    {8, 100, false, Operation::AllGather, 524288, "AllGather_ST", 6, 13.8522},
    {8, 90, true, Operation::ReduceScatter, 2147483648, "ReduceScatter_LDMC", 2, 5627.3081},
    {72, 100, true, Operation::AllGather, 16776576, "AllGather_STMC", 1, 37.6790},
    {8, 100, true, Operation::AllGather, 536870912, "AllGather_STMC", 3, 747.6658},
    {72, 90, true, Operation::ReduceScatter, 1073741184, "ReduceScatter_LDMC", 1, 3088.3953},
    {2, 100, true, Operation::AllGather, 16777216, "AllGather_STMC", 11, 25.3455},
    {72, 100, true, Operation::AllGather, 1152, "AllGather_LLMC", 1, 8.8588},
    {72, 100, true, Operation::AllReduce, 1152, "AllReduce_AGxLLMC_R", 8, 11.9465},
    {2, 100, false, Operation::ReduceScatter, 4096, "ReduceScatter_LL", 1, 11.5228},
    {16, 90, true, Operation::AllReduce, 2097152, "AllReduce_RSxLDMC_AGxSTMC", 1, 11.1588},
    {2, 90, true, Operation::ReduceScatter, 1073741824, "ReduceScatter_LDMC", 8, 1612.6594},
    {2, 90, true, Operation::AllGather, 32768, "AllGather_LLMC", 6, 5.1975},
    {4, 100, true, Operation::ReduceScatter, 8388608, "ReduceScatter_LDMC", 6, 21.8528},
    {8, 100, true, Operation::AllGather, 8192, "AllGather_LLMC", 2, 9.0001},
    {16, 100, true, Operation::AllReduce, 536870912, "AllReduce_RSxLDMC_AGxSTMC", 2, 549.7500},
    {8, 90, true, Operation::ReduceScatter, 262144, "ReduceScatter_LDMC", 1, 8.5535},
    {16, 100, true, Operation::ReduceScatter, 4096, "ReduceScatter_LL", 1, 11.5228},
    {2, 90, true, Operation::AllReduce, 65536, "AllReduce_AGxLLMC_R", 6, 7.1309},
    {72, 90, true, Operation::AllReduce, 1048320, "AllReduce_RSxLDMC_AGxSTMC", 1, 9.1592},
    {16, 100, false, Operation::ReduceScatter, 33554432, "ReduceScatter_LD", 12, 62.1597},
    {4, 90, true, Operation::AllReduce, 33554432, "AllReduce_RSxLDMC_AGxSTMC", 3, 88.2888},
    {4, 90, false, Operation::AllGather, 2048, "AllGather_LL", 1, 4.9342},
    {16, 90, true, Operation::AllGather, 262144, "AllGather_STMC", 1, 8.3694},
    {8, 90, true, Operation::AllGather, 536870912, "AllGather_STMC", 2, 1411.9270},
    {8, 90, true, Operation::ReduceScatter, 16777216, "ReduceScatter_LDMC", 2, 50.7102},
    {4, 90, true, Operation::ReduceScatter, 8192, "ReduceScatter_LL", 3, 4.9826},
    {8, 90, true, Operation::AllGather, 4294967296, "AllGather_STMC", 2, 11247.8164},
    {8, 100, true, Operation::AllGather, 268435456, "AllGather_STMC", 3, 379.8329},
    {8, 100, false, Operation::ReduceScatter, 1024, "ReduceScatter_LL", 1, 11.3577},
    {8, 100, true, Operation::AllReduce, 268435456, "AllReduce_RSxLDMC_AGxSTMC", 3, 299.7959},
    {72, 90, false, Operation::AllReduce, 16776576, "AllReduce_RSxLD_AGxST", 7, 105.4457},
    {2, 90, true, Operation::AllReduce, 32768, "AllReduce_AGxLLMC_R", 5, 5.7315},
    {16, 90, true, Operation::AllGather, 4294967296, "AllGather_STMC", 1, 12050.7461},
};

System one_node(int ranks, int compute_capability, bool multicast) {
  System s;
  s.version = Version(28);
  s.ranks = ranks;
  s.compute_capability = compute_capability;
  s.nvswitch = true;
  s.nvls = multicast;
  return s;
}

TEST(NcclSymmetric, KernelsAreWhatNcclPicks) {
  for (const Picked& p : kPicked) {
    auto k =
        symmetric_kernel(one_node(p.ranks, p.compute_capability, p.multicast), {}, p.op, p.bytes);
    ASSERT_TRUE(k) << p.name;
    EXPECT_EQ(k->name, p.name) << p.ranks << " ranks, " << p.bytes;
    EXPECT_EQ(k->blocks, p.blocks) << p.name << ", " << p.bytes;
    EXPECT_NEAR(k->estimate.us / p.us, 1, 1e-4) << p.name << ", " << p.bytes;
  }
}

TEST(NcclSymmetric, OnlyWhereNcclHasThem) {
  constexpr std::int64_t kMiB = 1 << 20;
  System s = one_node(8, 90, true);
  EXPECT_TRUE(symmetric_kernel(s, {}, Operation::AllReduce, kMiB));
  EXPECT_FALSE(symmetric_kernel(s, {}, Operation::Broadcast, kMiB));
  EXPECT_FALSE(symmetric_kernel(s, {}, Operation::AllReduce, std::int64_t{64} << 30));
  s.version = Version(26);
  EXPECT_FALSE(symmetric_kernel(s, {}, Operation::AllReduce, kMiB));
  s.version = Version(30);
  EXPECT_TRUE(symmetric_kernel(s, {}, Operation::AllReduce, kMiB));
  s.nodes = 2;
  s.ranks = 16;
  EXPECT_FALSE(symmetric_kernel(s, {}, Operation::AllReduce, kMiB));
}

TEST(NcclSymmetric, TakesNoMoreBlocksThanAllowed) {
  System s = one_node(8, 90, false);
  Settings few;
  few.max_channels = 4;
  constexpr std::int64_t kGiB = 1 << 30;
  EXPECT_GT(symmetric_kernel(s, {}, Operation::AllReduce, kGiB)->blocks, 4);
  EXPECT_LE(symmetric_kernel(s, few, Operation::AllReduce, kGiB)->blocks, 4);
  EXPECT_GT(symmetric_kernel(s, few, Operation::AllReduce, kGiB)->estimate,
            symmetric_kernel(s, {}, Operation::AllReduce, kGiB)->estimate);
}

}  // namespace
}  // namespace ddpsim::nccl
