// ddpsim topology show, check, draw; and what is refused in a cluster's `inside`, patterns and
// faults.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using io::Json;

Json answer(const Args& args) {
  Outcome o = ddpsim(args);
  EXPECT_EQ(o.code, 0) << o.err;
  return o.code == 0 ? io::parse_json(o.out, "stdout") : Json();
}

class TopologyFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("ddpsim_topology_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  // A cluster of one pattern: `keys` replace and add to a good one; a null takes away.
  std::string cluster(const std::string& keys) const {
    Json j = io::parse_json(
        R"({"schema": "ddpsim.cluster/1", "name": "c", "pattern": "star", "hosts": 4,
          "devices_per_host": 4, "nics_per_host": 2,
      "device": {"kind": "gpu", "profile": "h100-sxm.datasheet"}, "link": {"bandwidth": "100Gb/s",
        "latency": "1us", "transport": "ib"},
      "inside": {"pattern": "nvswitch", "link": {"bandwidth": "450GB/s"}}})",
        "base");
    j.merge_patch(io::parse_json(keys, keys));
    std::string path = (folder_ / "c.json").string();
    std::ofstream(path) << j.dump();
    return path;
  }
  fs::path folder_;
};

TEST(Topology, ShowsEveryShippedCluster) {
  io::Home home(DDPSIM_SOURCE_DIR, "", "");
  for (const std::string& name : home.list("topologies")) {
    SCOPED_TRACE(name);
    Outcome table = ddpsim({"topology", "show", name});
    EXPECT_EQ(table.code, 0) << table.err;
    EXPECT_TRUE(has(table.out, "diameter"));
    Json j = answer({"topology", "show", name, "--format", "json"});
    Cluster c = test::cluster(name);
    EXPECT_EQ(j["devices"], c.devices());
    EXPECT_EQ(j["path_types"].size(), static_cast<std::size_t>(c.devices_per_host));
    EXPECT_GT(j["links"][0]["bits_per_s"], 0);
  }
}

TEST(Topology, EveryShippedClusterIsUsable) {
  io::Home home(DDPSIM_SOURCE_DIR, "", "");
  for (const std::string& name : home.list("topologies")) {
    Outcome o = ddpsim({"topology", "check", name, "--set", "cluster.hosts=4"});
    EXPECT_EQ(o.code, 0) << name << ": " << o.out << o.err;
    EXPECT_EQ(o.err, "");
  }
}

// A machine alone, and two of it: NCCL finds a ring, and a step is predicted.
TEST(Topology, EveryShippedClusterPredicts) {
  io::Home home(DDPSIM_SOURCE_DIR, "", "");
  int gpu_machines = 0;
  for (const std::string& name : home.list("topologies")) {
    Cluster c = test::cluster(name);
    for (int hosts : {1, 2}) {
      if (c.pattern == Pattern::Racks && hosts < c.racks) continue;
      SCOPED_TRACE(name + " x" + std::to_string(hosts));
      std::string size = "cluster.hosts=" + std::to_string(hosts);
      Json step = answer({"predict", "--workload", "resnet50", "--cluster", name, "--set", size,
                          "--format", "json"});
      ASSERT_TRUE(step.contains("summary"));
      EXPECT_GT(step["summary"]["step_ps"].get<std::int64_t>(), 0);
      if (c.device != DeviceKind::Gpu || hosts * c.devices_per_host < 2) continue;
      Outcome o = ddpsim({"explain", "--op", "all_reduce", "--cluster", name, "--set", size});
      EXPECT_EQ(o.code, 0) << o.err;
      EXPECT_TRUE(has(o.out, "ring/simple")) << o.out;
      ++gpu_machines;
    }
  }
  EXPECT_GE(gpu_machines, 70);
}

TEST(Topology, ShowsWhatADgx1Is) {
  Json j = answer({"topology", "show", "dgx1-v100", "--format", "json"});
  EXPECT_EQ(j["inside"], "hybrid_cube_mesh");
  EXPECT_EQ(j["path_types"][0], (Json{"LOC", "NVL", "NVL", "NVL", "NVL", "NVB", "NVB", "NVB"}));
  EXPECT_EQ(j["nic_of"], (Json{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(j["nic_path_types"][0][0], "PIX");
  EXPECT_EQ(j["bisection"]["inside_host_bits_per_s"].get<std::int64_t>(),
            6 * 25 * 8'000'000'000 + 48'000'000'000);
  Outcome table = ddpsim({"topology", "show", "dgx1-v100", "--set", "cluster.hosts=16"});
  EXPECT_TRUE(has(table.out, "hosts 16, devices 128")) << table.out;
  EXPECT_TRUE(has(table.out, "  GPU0  X     NVL   NVL   NVL   NVL   NVB   NVB   NVB   PIX*  PXN"))
      << table.out;
}

TEST(Topology, CheckSaysWhatIsWeak) {
  Outcome o = ddpsim({"topology", "check", "fat-tree-a100-2to1"});
  EXPECT_EQ(o.code, 0);
  EXPECT_TRUE(has(o.out, "usable")) << o.out;
  EXPECT_TRUE(has(o.out, "warning  oversubscribed 2:1")) << o.out;
  EXPECT_TRUE(has(o.out, "single point of failure: each of 4 leaf switches")) << o.out;
  Outcome slow = ddpsim({"topology", "check", "dgx1-v100", "--set", "cluster.hosts=2", "--set",
                         "cluster.link.bandwidth=200Gb/s"});
  EXPECT_TRUE(
      has(slow.out, "the way from GPU 0 to its NIC carries 126 Gb/s, less than the NIC's 200 Gb/s"))
      << slow.out;
}

TEST_F(TopologyFiles, CheckFailsForWhatCannotBeUsed) {
  std::string parted = cluster(R"({"failed_links": ["host1.nic0", "host1.nic1"]})");
  for (const char* format : {"table", "json"}) {
    Outcome o = ddpsim({"topology", "check", parted, "--format", format});
    EXPECT_EQ(o.code, 1);
    EXPECT_TRUE(has(o.err, "no path from host 0 to host 1: every way crosses a failed link"))
        << o.err;
    EXPECT_TRUE(has(o.out, format == std::string("json") ? "\"usable\": false" : "NOT usable"))
        << o.out;
  }
  Outcome predict = ddpsim({"predict", "--workload", "mlp784-50-10", "--cluster", parted});
  EXPECT_EQ(predict.code, 2);
  EXPECT_TRUE(has(predict.err, "c.json#/failed_links: no path from host 0 to host 1"))
      << predict.err;
  Outcome transport =
      ddpsim({"topology", "check", cluster(R"({"link": {"transport": "quantum"}})")});
  EXPECT_EQ(transport.code, 1);
  EXPECT_TRUE(has(transport.err, "has no transport \"quantum\"")) << transport.err;
}

TEST_F(TopologyFiles, EveryPatternPredicts) {
  for (const char* keys :
       {R"({"pattern": "ring"})",
        R"({"pattern": "torus", "hosts": null, "extents": [2, 2], "trunk": {"bandwidth": "50Gb/s",
         "transport": "ib"}})",
        R"({"pattern": "dragonfly", "hosts": null, "groups": 3, "routers_per_group": 2,
         "hosts_per_router": 2, "trunk": {"bandwidth": "200Gb/s", "transport": "ib"}})",
        R"({"pattern": "rail_optimised", "hosts_per_group": 2, "spines": 2, "ecmp": "hash"})",
        R"({"pattern": "nvl72", "hosts_per_rack": 2})",
        R"({"pattern": "fat_tree", "k": 8, "oversubscription": "3:1", "ecmp": "hash"})",
        R"({"inside": {"pattern": "all_to_all"}})",
        R"({"inside": {"pattern": "pairs", "pcie": {"bandwidth": "16GB/s"},
         "switches_per_socket": 2}})",
        R"({"failed_links": ["host0.nic1 up"], "degraded_links": [{"link": "host2.nic0",
         "fraction": 0.5}]})",
        R"({"devices_per_host": null, "nics_per_host": null, "inside": {"pattern": null,
         "link": null, "vertices": [{"name": "a", "kind": "gpu"}, {"name": "n", "kind": "nic"},
           {"name": "b", "kind": "gpu"}, {"name": "c", "kind": "cpu"}],
               "links": [{"from": "a", "to": "b", "bandwidth": "50GB/s", "transport": "nvlink"},
                 {"from": "a", "to": "c", "bandwidth": "16GB/s", "transport": "pcie"},
                         {"from": "b", "to": "c", "bandwidth": "16GB/s", "transport": "pcie"},
                           {"from": "n", "to": "c", "bandwidth": "16GB/s", "latency": "150ns",
                             "transport": "pcie"}]}})"}) {
    SCOPED_TRACE(keys);
    std::string file = cluster(keys);
    for (const char* fidelity : {"collective", "message"}) {
      Outcome o = ddpsim(
          {"predict", "--workload", "mlp784-50-10", "--cluster", file, "--fidelity", fidelity});
      EXPECT_EQ(o.code, 0) << o.err;
    }
    EXPECT_EQ(ddpsim({"topology", "check", file}).code, 0);
  }
}

TEST_F(TopologyFiles, KMakesLeavesOfThatManyPorts) {
  Cluster c = io::read_cluster(
      io::parse_json(
          io::read_file(cluster(R"({"pattern": "fat_tree", "k": 32, "oversubscription": "3:1"})")),
          "c"),
      "c");
  EXPECT_EQ(c.spines, 8);
  EXPECT_EQ(c.hosts_per_leaf, 12);  // 24 ports down, 2 NICs a host
}

TEST_F(TopologyFiles, DrawsSmallAndLargeOnes) {
  for (const char* hosts : {"1", "4", "64", "1000"}) {
    Outcome o = ddpsim(
        {"topology", "draw", "fat-tree-h100", "--set", std::string("cluster.hosts=") + hosts});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(o.out.starts_with("graph \"fat-tree-h100\" {\n"));
    EXPECT_TRUE(o.out.ends_with("}\n"));
    EXPECT_LT(o.out.size(), 60'000u);
    EXPECT_EQ(o.out, ddpsim({"topology", "draw", "fat-tree-h100", "--set",
                             std::string("cluster.hosts=") + hosts})
                         .out);
  }
  Outcome large = ddpsim({"topology", "draw", "fat-tree-h100", "--set", "cluster.hosts=1000"});
  EXPECT_TRUE(has(large.out, "host\\n× 1,000")) << large.out;
  EXPECT_TRUE(has(large.out, "leaf switch\\n× 125"));
  Outcome failed = ddpsim({"topology", "draw", cluster(R"({"failed_links": ["host0.nic1"]})")});
  EXPECT_TRUE(has(failed.out, "style=dashed, color=\"#cc0000\", label=\" failed \"")) << failed.out;
}

// A PATH of its own, given back.
class Path {
 public:
  explicit Path(const std::string& value) {
    if (const char* old = std::getenv("PATH")) old_ = old;
    ::setenv("PATH", value.c_str(), 1);
  }
  ~Path() {
    if (old_) ::setenv("PATH", old_->c_str(), 1);
  }

 private:
  std::optional<std::string> old_;
};

TEST_F(TopologyFiles, DrawsSvgWithGraphviz) {
  {
    Path none((folder_ / "nothing").string());
    Outcome o = ddpsim({"topology", "draw", "dgx1-v100", "--format", "svg"});
    EXPECT_EQ(o.code, 2);
    EXPECT_TRUE(has(o.err, "install the package graphviz")) << o.err;
    EXPECT_EQ(o.out, "");
  }
  std::ofstream(folder_ / "dot") << "#!/bin/sh\necho \"<svg $1>\"\ncat\n";
  fs::permissions(folder_ / "dot", fs::perms::owner_all);
  {
    Path fake(folder_.string() + ":/usr/bin:/bin");
    Outcome o = ddpsim({"topology", "draw", "dgx1-v100", "--format", "svg"});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(o.out.starts_with("<svg -Tsvg>\ngraph \"dgx1-v100\" {\n")) << o.out.substr(0, 80);
    std::ofstream(folder_ / "dot") << "#!/bin/sh\necho 'no layout' >&2\nexit 3\n";
    Outcome broken = ddpsim({"topology", "draw", "dgx1-v100", "--format", "svg"});
    EXPECT_EQ(broken.code, 2);
    EXPECT_TRUE(has(broken.err, "Graphviz's \"dot\" failed: no layout")) << broken.err;
  }
}

TEST_F(TopologyFiles, RefusesBadInputInASentence) {
  struct Row {
    const char* keys;
    const char* says;
  };
  const Row rows[] = {
      {R"({"inside": {"pattern": "nvswich"}})", "#/inside/pattern: "},
      {R"({"inside": {"pattern": "nvswich"}})", "did you mean \"nvswitch\"?"},
      {R"({"inside": {"pattern": null}})", "#/inside: give a \"pattern\", or draw the host"},
      {R"({"inside": {"lnk": 1}})", "#/inside/lnk: unknown key (did you mean \"link\"?)"},
      {R"({"inside": {"link": {"transport": "pcie"}}})",
       "#/inside/link/transport: this link is \"nvlink\""},
      {R"({"inside": {"link": {"burst": "1MiB"}}})", "#/inside/link/burst: unknown key"},
      {R"({"inside": {"pattern": "pcie_tree"}})",
       "#/inside/link: is NVLink, which a \"pcie_tree\" has none of"},
      {R"({"inside": {"pattern": "pcie_tree", "link": null}})",
       "#/inside/pcie: this pattern needs \"pcie\""},
      {R"({"inside": {"pattern": "hybrid_cube_mesh"}})",
       "#/devices_per_host: a hybrid cube mesh has 8 GPUs"},
      {R"({"inside": {"nic_link": {"bandwidth": "16GB/s"}}})", "#/inside/nic_link: needs \"pcie\""},
      {R"({"inside": {"pcie": {"bandwidth": "16GB/s"}, "sockets": 2}})",
       "#/inside/cpu_link: more than one socket needs \"cpu_link\""},
      {R"({"inside": {"pcie": {"bandwidth": "16GB/s"}, "switches_per_socket": 3}})",
       "#/inside/sockets: 4 GPUs cannot be spread evenly over 3 PCIe switches"},
      {R"({"inside": {"pcie": {"bandwidth": "16GB/s"}, "switches_per_socket": 2,
        "gpus_per_switch": 4}})",
       "#/inside/gpus_per_switch: 1 sockets of 2 make 8 GPUs, but \"devices_per_host\" is 4"},
      {R"({"intra": {"bandwidth": "1GB/s"}})", "#/inside: beside \"intra\": keep one"},
      {R"({"inside": {"pattern": null, "link": null, "vertices": [{"name": "a", "kind": "gpuu"}],
        "links": []}})",
       "#/inside/vertices/0/kind: "},
      {R"({"inside": {"pattern": null, "link": null, "vertices": [{"name": "a", "kind": "gpu"}],
        "links": [{"from": "a", "to": "b", "bandwidth": "1GB/s", "transport": "pcie"}]},
          "devices_per_host": null})",
       "#/inside/links/0/to: no vertex is named \"b\""},
      {R"({"inside": {"pattern": null, "link": null, "vertices": [{"name": "a", "kind": "gpu"}],
        "links": []}})",
       "#/devices_per_host: the drawing has 1 vertices of kind \"gpu\""},
      {R"({"pattern": "torus"})", "#: \"extents\" is missing"},
      {R"({"pattern": "torus", "extents": [4, 4]})",
       "#/hosts: the extents make 16 hosts; leave \"hosts\" out"},
      {R"({"extents": [4]})", "#/extents: belongs to pattern \"torus\", not \"star\""},
      {R"({"ecmp": "hash"})",
       "#/ecmp: belongs to pattern \"fat_tree\" or \"rail_optimised\" or \"graph\", not \"star\""},
      {R"({"pattern": "fat_tree", "k": 4, "spines": 2})", "#/spines: follows from \"k\""},
      {R"({"pattern": "fat_tree", "k": 2, "nics_per_host": 2})",
       "#/k: a leaf of 2 ports has 1 for hosts, fewer than the 2 NICs of one"},
      {R"({"pattern": "dragonfly", "groups": 2, "routers_per_group": 1, "hosts_per_router": 1,
        "trunk": {"bandwidth": "1Gb/s", "transport": "ib"}})",
       "#/hosts: groups x routers_per_group x hosts_per_router make room for 2 hosts"},
      {R"({"pattern": "nvl72", "inside": {"pattern": "all_to_all"}})",
       "#/inside: an NVLink rack needs"},
      {R"({"failed_links": ["host0.nik1"]})",
       "#/failed_links/0: no link is named \"host0.nik1\" (did you mean \"host0.nic1\"?)"},
      {R"({"degraded_links": [{"link": "host0.nic1"}]})",
       "#/degraded_links/0: give \"bandwidth\" (what is left) or \"fraction\""},
      {R"({"degraded_links": [{"link": "host0.nic1", "fraction": 1.5}]})",
       "#/degraded_links/0/fraction: "},
      {R"({"degraded_links": [{"link": "host0.nic1", "bandwidth": "400Gb/s"}]})",
       "#/degraded_links/0/bandwidth: more than the link has when it is whole (100 Gb/s)"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.keys);
    std::string file = cluster(row.keys);
    for (const char* what : {"show", "check", "draw"}) {
      Outcome o = ddpsim({"topology", what, file});
      EXPECT_EQ(o.code, 2);
      EXPECT_EQ(o.out, "");
      EXPECT_TRUE(has(o.err, row.says)) << o.err;
      EXPECT_EQ(o.err.find('\n'), o.err.size() - 1);
    }
  }
}

TEST(Topology, RefusesBadFlags) {
  struct Row {
    Args args;
    const char* says;
  };
  for (const Row& row :
       {Row{{"topology", "shwo", "dgx-a100"}, "topology shwo: unknown (did you mean \"show\"?)"},
        Row{{"topology", "show"}, "topology show: name a cluster"},
        Row{{"topology", "show", "dgx-a10"}, "did you mean \"dgx-a100\"?"},
        Row{{"topology", "draw", "dgx-a100", "--format", "json"},
            "--format json: a picture is dot or svg"},
        Row{{"topology", "check", "dgx-a100", "--format", "dot"},
            "--format dot: topology check answers as table or json"},
        Row{{"topology", "show", "dgx-a100", "--set", "bucket_cap_mb=1"},
            "write cluster.PATH=VALUE"},
        Row{{"topology", "show", "dgx-a100", "--set", "cluster.inside={\"pattern\":\"pairs\"}"},
            "--set cluster.inside="},
        Row{{"topology", "show", "dgx-a100", "--cluster", "hgx-h100"}, "keep one"}}) {
    Outcome o = ddpsim(row.args);
    EXPECT_EQ(o.code, 2);
    EXPECT_TRUE(has(o.err, row.says)) << o.err;
  }
}

}  // namespace
}  // namespace ddpsim::test
