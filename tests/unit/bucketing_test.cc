// DDP's bucket assignment against recorded and published bucket lists.
#include "sim/systems/ddp/bucketing.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/systems/ddp/plan.h"
#include "tests/support/support.h"

namespace ddpsim::systems {
namespace {

using Buckets = std::vector<std::vector<TensorIndex>>;
using Row = std::vector<std::pair<std::int64_t, std::int64_t>>;  // (tensors, bytes), launch order

Row rows(const Workload& w, const Buckets& buckets) {
  Row out;
  for (const auto& b : buckets) {
    std::int64_t bytes = 0;
    for (TensorIndex t : b) bytes += w.tensors[t].bytes().count;
    out.emplace_back(static_cast<std::int64_t>(b.size()), bytes);
  }
  return out;
}
std::vector<std::int64_t> sizes(const Workload& w, const Buckets& buckets) {
  std::vector<std::int64_t> out;
  for (const auto& [tensors, bytes] : rows(w, buckets)) out.push_back(bytes);
  return out;
}

struct Shape {
  std::string name;
  std::vector<std::int64_t> shape;
};
Workload model(const std::vector<Shape>& tensors, const std::vector<std::string>& arrival) {
  Workload w;
  std::map<std::string, TensorIndex> index;
  for (const Shape& t : tensors) {
    index[t.name] = static_cast<TensorIndex>(w.tensors.size());
    w.tensors.push_back({t.name, t.shape, DType::Float32});
  }
  for (const std::string& name : arrival) w.arrival.push_back(index.at(name));
  return w;
}
Workload model(const io::Json& j) {
  std::vector<Shape> tensors;
  for (const auto& t : j["tensors"])
    tensors.push_back({t[0].get<std::string>(), t[1].get<std::vector<std::int64_t>>()});
  return model(tensors, j["arrival"].get<std::vector<std::string>>());
}
std::int64_t elements(const Workload& w) {
  std::int64_t n = 0;
  for (const Tensor& t : w.tensors) n += t.elements();
  return n;
}

// ---- recorded lists

const io::Json& file(const char* name) {
  static const io::Json buckets = test::read_json("tests/data/buckets.json"),
                        models = test::read_json("tests/data/models.json");
  return std::string(name) == "buckets" ? buckets : models;
}

class Recorded : public testing::TestWithParam<std::string> {
 protected:
  io::Json buckets_ = file("buckets").at(GetParam());
  io::Json source_ = file("models").at(GetParam());
  Workload w_ = model(source_);
  Row row(const char* key) const { return buckets_[key].get<Row>(); }
};

TEST_P(Recorded, TensorsAddUpToTheModel) {
  EXPECT_EQ(elements(w_), source_["params"].get<std::int64_t>());
  EXPECT_EQ(w_.arrival.size(), w_.tensors.size());
}
TEST_P(Recorded, FirstIterationHasOneBucket) {
  auto initial = initial_buckets(w_, Plan{});
  EXPECT_EQ(rows(w_, initial), row("ddp_initial_default"));
  ASSERT_EQ(initial.size(), 1u);
  EXPECT_TRUE(std::is_sorted(initial[0].begin(), initial[0].end()));
}
// #72843: before, it had those of find_unused_parameters.
TEST_P(Recorded, FirstIterationHasThemReversedBefore112) {
  Plan p;
  p.pytorch = PytorchVersion{1, 11};
  EXPECT_EQ(rows(w_, initial_buckets(w_, p)), row("ddp_initial_find_unused"));
  p.pytorch = PytorchVersion{1, 12};
  EXPECT_EQ(rows(w_, initial_buckets(w_, p)), row("ddp_initial_default"));
}
TEST_P(Recorded, FindUnusedParametersKeepsReversedRegistrationOrder) {
  Plan p;
  ddp_of(p).find_unused_parameters = true;
  auto initial = initial_buckets(w_, p);
  EXPECT_EQ(rows(w_, initial), row("ddp_initial_find_unused"));
  EXPECT_EQ(initial.back().front(), 0u);
}
TEST_P(Recorded, RebuildFollowsArrivalWithASmallFirstBucket) {
  auto rebuilt = rebuilt_buckets(w_, Plan{}, w_.arrival);
  EXPECT_EQ(rows(w_, rebuilt), row("ddp_rebuilt_default"));
  std::vector<TensorIndex> order;
  for (const auto& b : rebuilt) order.insert(order.end(), b.begin(), b.end());
  EXPECT_EQ(order, w_.arrival);
}
TEST_P(Recorded, AGivenCapIsAlsoTheFirstBuckets) {
  Plan p;
  ddp_of(p).bucket_cap_mb = 25;
  EXPECT_EQ(rows(w_, rebuilt_buckets(w_, p, w_.arrival)), row("ddp_rebuilt_cap25"));
}

// nn.DataParallel groups by the same rule: registration order, 10 MiB.
TEST_P(Recorded, DataParallelGroupsByTheSameRule) {
  std::vector<TensorIndex> order;
  for (TensorIndex i = 0; i < w_.tensors.size(); ++i) order.push_back(i);
  const std::int64_t limit = 10'485'760;
  EXPECT_EQ(rows(w_, assign_buckets(w_.tensors, order, std::span(&limit, 1), Order::Registration)),
            row("dp_groups"));
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string out;
  for (char c : info.param) out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return out;
}
INSTANTIATE_TEST_SUITE_P(Models, Recorded,
                         testing::Values("resnet18", "resnet34", "resnet50", "resnet101",
                                         "resnet152", "vgg16", "bert_base(BertModel)",
                                         "bert_base(nopool)", "bert_base(PreTraining)",
                                         "bert_large(BertModel)", "bert_large(PreTraining)",
                                         "gpt2_small", "mlp784-50-10", "deeplabv3_r101(aux)",
                                         "deeplabv3_r101(noaux)"),
                         test_name);

TEST(Recorded, CoversEveryModelOfTheFile) {
  EXPECT_EQ(file("buckets").size(), 15u);
}

// ---- published lists

void add_conv(std::vector<Shape>& t, const std::string& name, std::int64_t in, std::int64_t out) {
  t.push_back({name + ".weight", {out, in, 3, 3}});
  t.push_back({name + ".bias", {out}});
}
void add_linear(std::vector<Shape>& t, const std::string& name, std::int64_t in, std::int64_t out) {
  t.push_back({name + ".weight", {out, in}});
  t.push_back({name + ".bias", {out}});
}

Workload vgg11() {
  std::vector<Shape> t;
  std::vector<std::string> arrival;
  const std::int64_t width[] = {3, 64, 128, 256, 256, 512, 512, 512, 512};
  const char* at[] = {"0", "3", "6", "8", "11", "13", "16", "18"};
  for (int i = 0; i < 8; ++i) add_conv(t, std::string("features.") + at[i], width[i], width[i + 1]);
  add_linear(t, "classifier.0", 25088, 4096);
  add_linear(t, "classifier.3", 4096, 4096);
  add_linear(t, "classifier.6", 4096, 1000);
  for (const char* c : {"6", "3", "0"})
    for (const char* part : {".bias", ".weight"})
      arrival.push_back(std::string("classifier.") + c + part);
  for (int i = 7; i >= 0; --i)
    for (const char* part : {".weight", ".bias"})
      arrival.push_back(std::string("features.") + at[i] + part);
  return model(t, arrival);
}

Workload vit_h14(bool bias_first) {
  std::vector<Shape> t;
  std::vector<std::string> arrival;
  auto norm = [&](const std::string& name) {
    t.push_back({name + ".weight", {1280}});
    t.push_back({name + ".bias", {1280}});
  };
  t.push_back({"class_token", {1, 1, 1280}});
  t.push_back({"conv_proj.weight", {1280, 3, 14, 14}});
  t.push_back({"conv_proj.bias", {1280}});
  t.push_back({"pos_embedding", {1, 257, 1280}});
  for (int i = 0; i < 32; ++i) {
    std::string p = "layer." + std::to_string(i) + ".";
    norm(p + "ln_1");
    add_linear(t, p + "in_proj", 1280, 3840);
    add_linear(t, p + "out_proj", 1280, 1280);
    norm(p + "ln_2");
    add_linear(t, p + "mlp.0", 1280, 5120);
    add_linear(t, p + "mlp.3", 5120, 1280);
  }
  norm("ln");
  add_linear(t, "head", 1280, 1000);
  auto linear = [&](const std::string& name) {
    arrival.push_back(name + (bias_first ? ".bias" : ".weight"));
    arrival.push_back(name + (bias_first ? ".weight" : ".bias"));
  };
  auto weight_bias = [&](const std::string& name) {
    arrival.push_back(name + ".weight");
    arrival.push_back(name + ".bias");
  };
  linear("head");
  weight_bias("ln");
  for (int i = 31; i >= 0; --i) {
    std::string p = "layer." + std::to_string(i) + ".";
    linear(p + "mlp.3");
    linear(p + "mlp.0");
    weight_bias(p + "ln_2");
    linear(p + "out_proj");
    linear(p + "in_proj");
    weight_bias(p + "ln_1");
  }
  arrival.push_back("pos_embedding");
  arrival.push_back("class_token");
  weight_bias("conv_proj");
  return model(t, arrival);
}

TEST(Published, Vgg11) {
  Workload w = vgg11();
  ASSERT_EQ(w.tensors.size(), 22u);
  ASSERT_EQ(elements(w), 132'863'336);
  EXPECT_EQ(
      sizes(w, rebuilt_buckets(w, Plan{}, w.arrival)),
      (std::vector<std::int64_t>{16'388'000, 67'125'248, 411'058'176, 28'315'648, 8'566'272}));
}

TEST(Published, VitH14ClosesABucketAtExactlyTheCap) {
  Workload w = vit_h14(true);
  ASSERT_EQ(w.tensors.size(), 392u);
  ASSERT_EQ(w.arrival.size(), 392u);
  ASSERT_EQ(elements(w), 632'045'800);
  std::vector<std::int64_t> want{5'124'000};
  for (int i = 0; i < 32; ++i) want.insert(want.end(), {26'229'760, 26'234'880, 26'245'120});
  want.push_back(4'346'880);
  ASSERT_EQ(want.size(), 98u);
  EXPECT_EQ(sizes(w, rebuilt_buckets(w, Plan{}, w.arrival)), want);
  // 5120 x 1280 fp32 are 25 MiB to the byte: with the weight first the bias would fall into the
  // next bucket.
  Workload swapped = vit_h14(false);
  EXPECT_NE(sizes(swapped, rebuilt_buckets(swapped, Plan{}, swapped.arrival)), want);
}

TEST(Published, ResNet50) {
  Workload w = model(file("models")["resnet50"]);
  EXPECT_EQ(sizes(w, rebuilt_buckets(w, Plan{}, w.arrival)),
            (std::vector<std::int64_t>{8'196'000, 31'502'336, 26'255'360, 26'550'272, 9'724'160}));
}

// PyTorch issue #48880: the first bucket is 1 MiB although a cap is given, in versions before 2.4.
TEST(Published, ResNet18OfIssue48880) {
  Workload w = model(file("models")["resnet18"]);
  for (PytorchVersion v : {PytorchVersion{1, 13}, PytorchVersion{2, 0}}) {
    Plan p;
    p.pytorch = v;
    ddp_of(p).bucket_cap_mb = 25;
    EXPECT_EQ(sizes(w, rebuilt_buckets(w, p, w.arrival)),
              (std::vector<std::int64_t>{2'052'000, 28'852'224, 15'853'824}));
    ddp_of(p).bucket_cap_mb = 35;
    EXPECT_EQ(sizes(w, rebuilt_buckets(w, p, w.arrival)),
              (std::vector<std::int64_t>{2'052'000, 38'297'600, 6'408'448}));
  }
  Plan p;
  p.pytorch = PytorchVersion{2, 11};
  ddp_of(p).bucket_cap_mb = 25;
  EXPECT_EQ(sizes(w, rebuilt_buckets(w, p, w.arrival)),
            (std::vector<std::int64_t>{30'904'224, 15'853'824}));
}

// ---- the rule, in small

std::vector<Tensor> tensors_of_bytes(const std::vector<std::pair<std::int64_t, DType>>& list) {
  std::vector<Tensor> out;
  for (const auto& [bytes, type] : list)
    out.push_back({"t" + std::to_string(out.size()), {bytes / element_size(type)}, type});
  return out;
}
Buckets assign(const std::vector<Tensor>& t, std::vector<TensorIndex> order,
               const std::vector<std::int64_t>& limits, Order kind) {
  return assign_buckets(t, order, limits, kind);
}
constexpr auto F32 = DType::Float32;
constexpr auto F16 = DType::Float16;
constexpr auto I64 = DType::Int64;

TEST(AssignBuckets, ClosesAtTheLimitWithTheTensorThatReachesIt) {
  auto t = tensors_of_bytes({{40, F32}, {60, F32}, {96, F32}, {40, F32}, {4, F32}});
  EXPECT_EQ(assign(t, {0, 1, 2, 3, 4}, {100}, Order::Explicit), (Buckets{{0, 1}, {2, 3}, {4}}));
}

TEST(AssignBuckets, NeverSplitsATensor) {
  auto t = tensors_of_bytes({{4, F32}, {4000, F32}, {4, F32}});
  EXPECT_EQ(assign(t, {0, 1, 2}, {100}, Order::Explicit), (Buckets{{0, 1}, {2}}));
}

TEST(AssignBuckets, ConsumesLimitsPerDtypeAndRepeatsTheLast) {
  auto t = tensors_of_bytes(
      {{8, F32}, {8, F16}, {8, F32}, {8, F16}, {8, F32}, {8, F16}, {8, F32}, {8, F32}});
  // First bucket of each dtype closes at 8, later ones at 16.
  EXPECT_EQ(assign(t, {0, 1, 2, 3, 4, 5, 6, 7}, {8, 16}, Order::Explicit),
            (Buckets{{0}, {1}, {2, 4}, {3, 5}, {6, 7}}));
}

TEST(AssignBuckets, PutsLeftOversLastAndTheDtypeSeenLastFirst) {
  auto t = tensors_of_bytes({{4, F32}, {2, F16}, {8, I64}, {16, F32}});
  EXPECT_EQ(assign(t, {0, 1, 2, 3}, {20}, Order::Explicit), (Buckets{{0, 3}, {2}, {1}}));
  EXPECT_EQ(assign(t, {0, 1, 2, 3}, {1000}, Order::Explicit), (Buckets{{2}, {1}, {0, 3}}));
}

TEST(AssignBuckets, SortsByTheSmallestIndexInRegistrationOrder) {
  auto t = tensors_of_bytes({{4, F32}, {2, F16}, {8, I64}, {16, F32}});
  EXPECT_EQ(assign(t, {0, 1, 2, 3}, {20}, Order::Registration), (Buckets{{0, 3}, {1}, {2}}));
}

TEST(AssignBuckets, CountsBytesNotElements) {
  auto t = tensors_of_bytes({{8, DType::Float64}, {8, DType::Float64}});
  EXPECT_EQ(assign(t, {0, 1}, {16}, Order::Explicit).size(), 1u);
  EXPECT_EQ(assign(t, {0, 1}, {8}, Order::Explicit).size(), 2u);
}

TEST(InitialBuckets, AreOnePerDtypeReversed) {
  Workload w;
  w.tensors = tensors_of_bytes({{4, F32}, {2, F16}, {16, F32}});
  EXPECT_EQ(initial_buckets(w, Plan{}), (Buckets{{1}, {0, 2}}));
}

TEST(InitialBuckets, IgnoreFindUnusedParametersInAStaticGraph) {
  Workload w;
  w.tensors = tensors_of_bytes({{4 << 20, F32}, {4 << 20, F32}});
  Plan p;
  ddp_of(p).find_unused_parameters = true;
  EXPECT_EQ(initial_buckets(w, p).size(), 2u);
  ddp_of(p).static_graph = true;
  EXPECT_EQ(initial_buckets(w, p).size(), 1u);
}

TEST(Caps, FirstBucketBytesReplacesTheSmallFirstBucket) {
  Workload w;
  w.tensors = tensors_of_bytes({{1 << 20, F32}, {1 << 20, F32}, {1 << 20, F32}});
  std::vector<TensorIndex> order{0, 1, 2};
  Plan p;
  EXPECT_EQ(rebuilt_buckets(w, p, order), (Buckets{{0}, {1, 2}}));
  ddp_of(p).first_bucket_bytes = (1 << 20) + 1;
  EXPECT_EQ(rebuilt_buckets(w, p, order), (Buckets{{0, 1}, {2}}));
  ddp_of(p).bucket_cap_mb = 25;  // also the first bucket's
  EXPECT_EQ(rebuilt_buckets(w, p, order), (Buckets{{0, 1, 2}}));
}

TEST(Caps, AreMiBAndMayBeFractional) {
  Workload w;
  w.tensors = tensors_of_bytes({{1 << 19, F32}, {1 << 19, F32}, {1 << 19, F32}});
  std::vector<TensorIndex> order{0, 1, 2};
  Plan p;
  ddp_of(p).bucket_cap_mb = 0.5;
  EXPECT_EQ(rebuilt_buckets(w, p, order), (Buckets{{0}, {1}, {2}}));
  ddp_of(p).bucket_cap_mb = 0.500001;  // int(0.500001 * 2^20) = 524289
  EXPECT_EQ(rebuilt_buckets(w, p, order), (Buckets{{0, 1}, {2}}));
  ddp_of(p).bucket_cap_mb = 1;
  EXPECT_EQ(rebuilt_buckets(w, p, order), (Buckets{{0, 1}, {2}}));
}

TEST(BufferGroups, ArePerDtypeUpTo250MiB) {
  Workload w;
  w.buffers = tensors_of_bytes({{64, F32}, {64, F32}, {8, I64}, {64, F32}, {64, F32}, {8, I64}});
  EXPECT_EQ(buffer_groups(w), (Buckets{{0, 1, 3, 4}, {2, 5}}));
  w.buffers = tensors_of_bytes({{200 << 20, F32}, {60 << 20, F32}, {4, F32}});
  EXPECT_EQ(buffer_groups(w), (Buckets{{0, 1}, {2}}));
  // 250 MB are less than the limit.
  w.buffers = tensors_of_bytes({{250'000'000, F32}, {4, F32}, {12 << 20, F32}, {4, F32}});
  EXPECT_EQ(buffer_groups(w), (Buckets{{0, 1, 2}, {3}}));
}

TEST(BufferGroups, AreNoneWithoutBuffers) {
  EXPECT_TRUE(buffer_groups(Workload{}).empty());
}

}  // namespace
}  // namespace ddpsim::systems
