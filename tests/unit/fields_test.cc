// A field is declared once: what reads it, writes it and lists it agree (sim/io/schema).
#include <gtest/gtest.h>

#include "sim/io/schema/profile_fields.h"
#include "sim/io/schema/schemas.h"
#include "tests/support/support.h"

namespace ddpsim::test {

struct MadeUp {
  int count = 3;
  double rate = 0;
  Duration wait;
  std::vector<Range> ranges;
};
template <class V>
void fields(V& v, MadeUp& m) {
  v.required("count", m.count, "how many").range(1, 9);
  v.field("rate", m.rate, "how fast").unit("bytes/s").positive("a positive rate");
  v.field("wait_ps", io::as_ps(m.wait), "how long");
  v.field("ranges", m.ranges, "how far");
}

// A section with one key more than MadeUp.
struct MadeUpLonger {
  MadeUp before;
  Bytes size{7};
};
template <class V>
void fields(V& v, MadeUpLonger& m) {
  fields(v, m.before);
  v.field("size", m.size, "how large").since("0.2");
}

struct Conditional {
  std::string kind;
  std::int64_t size = 0;
  bool flag = false;
};
template <class V>
void fields(V& v, Conditional& c) {
  v.required("kind", c.kind, "which");
  v.required("size", c.size, "of a box", io::where("kind", "box", "crate"));
  v.field("flag", c.flag, "of others", io::unless("kind", "box").say("a box has no flag"));
}

namespace {

MadeUp read(const char* text) {
  MadeUp out;
  const io::Json j = io::Json::parse(text);
  io::read_fields(io::Reader(j, "made_up.json"), out);
  return out;
}
std::string refusal(const char* text) {
  try {
    read(text);
  } catch (const InputError& e) {
    return e.where + ": " + e.what;
  }
  return "it is read";
}

TEST(Fields, AreReadWrittenAndListedAsTheyAreDeclared) {
  const MadeUp m =
      read(R"({"count": 4, "wait_ps": 7, "ranges": [{"low": 1, "mid": 2, "high": 3}]})");
  EXPECT_EQ(m.count, 4);
  EXPECT_EQ(m.wait.ps, 7);
  ASSERT_EQ(m.ranges.size(), 1u);
  EXPECT_EQ(m.ranges[0].high, 3);
  EXPECT_EQ(io::write_fields(m).dump(),
            R"({"count":4,"wait_ps":7,"ranges":[{"low":1.0,"mid":2.0,"high":3.0}]})");
  EXPECT_EQ(io::write_fields(MadeUp{}).dump(), R"({"count":3})") << "only what must be there";
  const auto& all = io::fields_of<MadeUp>();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_TRUE(all[0].required);
  EXPECT_EQ(all[0].least, 1);
  EXPECT_EQ(all[0].most, 9);
  EXPECT_EQ(all[1].unit, "bytes/s");
  EXPECT_TRUE(all[1].above);
  EXPECT_EQ(all[2].unit, "ps");
  EXPECT_EQ(all[2].initially, "0");
  ASSERT_EQ(all[3].fields.size(), 1u);
  EXPECT_EQ(all[3].fields[0].fields.size(), 3u);
}

TEST(Fields, AreReadStrictly) {
  EXPECT_EQ(refusal("{}"), "made_up.json#: \"count\" is missing");
  EXPECT_EQ(refusal(R"({"count": 0})"), "made_up.json#/count: 0 is not within 1 and 9");
  EXPECT_EQ(refusal(R"({"count": 1, "rat": 1})"),
            "made_up.json#/rat: unknown key (did you mean \"rate\"?)");
  EXPECT_EQ(refusal(R"({"count": 1, "rate": 0})"), "made_up.json#/rate: a positive rate");
  EXPECT_EQ(refusal(R"({"count": 1, "wait_ps": -1})"),
            "made_up.json#/wait_ps: a time is not negative");
  EXPECT_EQ(refusal(R"({"count": 1, "ranges": [{"low": 1, "mid": 2}]})"),
            "made_up.json#/ranges/0: \"high\" is missing");
}

TEST(Fields, OneLineIsAFieldEverywhere) {
  const io::FileKind before{"made_up", "ddpsim.made_up/1", "", io::fields_of<MadeUp>};
  const io::FileKind after{"made_up", "ddpsim.made_up/1", "", io::fields_of<MadeUpLonger>};
  EXPECT_FALSE(io::json_schema(before)["properties"].contains("size"));
  const io::OrderedJson schema = io::json_schema(after)["properties"]["size"];
  EXPECT_EQ(schema["description"], "how large");
  EXPECT_EQ(schema["default"], "7 B");
  MadeUpLonger m;
  const io::Json j = io::Json::parse(R"({"count": 4, "size": "3KiB"})");
  io::read_fields(io::Reader(j, "made_up.json"), m);
  EXPECT_EQ(m.size.count, 3072);
  EXPECT_EQ(io::write_fields(m).dump(), R"({"count":4,"size":"3 KiB"})");
  const io::FieldRecord& f = io::fields_of<MadeUpLonger>().back();
  EXPECT_EQ(f.key, "size");
  EXPECT_EQ(f.since, "0.2");
  EXPECT_EQ(io::in_words(f), "size (\"25MiB\")");
  EXPECT_EQ(io::field_at(io::fields_of<MadeUpLonger>(), {"size"})->help, "how large");
}

TEST(Fields, BelongWhereTheyAreSaidTo) {
  auto refused = [](const char* text) -> std::string {
    try {
      Conditional c;
      const io::Json j = io::Json::parse(text);
      io::read_fields(io::Reader(j, "c.json"), c);
    } catch (const InputError& e) {
      return e.where + ": " + e.what;
    }
    return "it is read";
  };
  EXPECT_EQ(refused(R"({"kind": "box", "size": 1})"), "it is read");
  EXPECT_EQ(refused(R"({"kind": "bag", "flag": true})"), "it is read");
  EXPECT_EQ(refused(R"({"kind": "box"})"), "c.json#: \"size\" is missing");
  EXPECT_EQ(refused(R"({"kind": "bag", "size": 1})"),
            "c.json#/size: belongs to kind \"box\" or \"crate\", not \"bag\"");
  EXPECT_EQ(refused(R"({"kind": "box", "size": 1, "flag": true})"),
            "c.json#/flag: a box has no flag");
  const io::OrderedJson rules =
      io::json_schema({"c", "ddpsim.c/1", "", io::fields_of<Conditional>})["allOf"];
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_EQ(rules[0]["then"]["required"], io::OrderedJson::array({"size"}));
  EXPECT_TRUE(rules[0]["else"]["properties"].contains("size"));
  EXPECT_TRUE(rules[1]["if"]["properties"]["kind"].contains("not"));
}

// Every key that a section declares has a line of help, and is written once.
void expect_told(const std::vector<io::FieldRecord>& all, const std::string& of) {
  std::set<std::string> keys;
  for (const io::FieldRecord& f : all) {
    EXPECT_TRUE(f.key.empty() || keys.insert(f.key).second) << of << "/" << f.key;
    EXPECT_TRUE(f.key.empty() || !f.help.empty()) << of << "/" << f.key;
    expect_told(f.fields, of + "/" + f.key);
  }
}
TEST(Fields, OfEachFileAreTold) {
  for (const io::FileKind& kind : io::file_kinds()) {
    expect_told(kind.fields(), kind.name);
    EXPECT_STRNE(kind.title, "");
    EXPECT_EQ(io::file_kind(kind.schema), &kind);
    const io::OrderedJson schema = io::json_schema(kind);
    EXPECT_EQ(schema["title"], kind.schema);
    const io::OrderedJson& whole = kind.extends ? schema["$defs"]["whole"] : schema;
    for (const io::FieldRecord& f : kind.fields()) {
      EXPECT_TRUE(whole["properties"].contains(f.key)) << kind.name << "/" << f.key;
      EXPECT_EQ(io::field_at(kind.fields(), {f.key}), &f);
    }
  }
  EXPECT_EQ(io::file_kind("no_such_file"), nullptr);
}
TEST(Fields, HavePathsAsSettingsSayThem) {
  std::set<std::string> paths;
  for (const io::FieldPath& p : io::field_paths()) {
    paths.insert(p.path);
    EXPECT_NE(io::file_kind(p.file), nullptr) << p.path;
  }
  for (const char* path :
       {"ranks", "plan.bucket_cap_mb", "plan.stage3_prefetch_bucket_size", "slow_ranks",
        "other_jobs[].rank_order", "cluster.hosts", "cluster.inside.pcie.latency",
        "workload.layers[].forward.kernels", "profile.transports.*.latency_ps"})
    EXPECT_TRUE(paths.count(path)) << path;
  EXPECT_FALSE(paths.count("plan.no_such_knob"));
  const auto& plan = io::file_kind("scenario")->fields();
  EXPECT_EQ(io::field_at(plan, {"plan", "pytorch"})->kind, io::FieldKind::Release);
  EXPECT_EQ(io::field_at(plan, {"other_jobs", "0", "plan", "pytorch"})->kind,
            io::FieldKind::Release);
  EXPECT_EQ(io::field_at(plan, {"slow_ranks", "3"})->kind, io::FieldKind::Number);
  EXPECT_EQ(io::field_at(plan, {"plan", "no_such_knob"}), nullptr);
}
TEST(Fields, AreSaidInWords) {
  const auto words = [](const char* kind, const std::vector<std::string>& path) {
    return io::in_words(*io::field_at(io::file_kind(kind)->fields(), path));
  };
  EXPECT_EQ(words("workload", {"batch"}), "whole number, 1 to 1,000,000");
  EXPECT_EQ(words("workload", {"tensors"}), "list of sections");
  EXPECT_EQ(words("workload", {"arrival"}), "list of whole numbers, 0 or more");
  EXPECT_EQ(words("cluster", {"hosts"}), "whole number");
  EXPECT_EQ(words("cluster", {"link", "latency"}), "time (\"5us\")");
  EXPECT_EQ(words("scenario", {"slow_ranks"}), "numbers by name");
  EXPECT_EQ(words("run", {"spans"}), "list of sections");
  EXPECT_EQ(words("profile", {"compute", "clock_hz"}),
            "number of Hz, 100,000,000 to 10,000,000,000");
}

}  // namespace
}  // namespace ddpsim::test
