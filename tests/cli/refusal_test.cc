// A refusal is data where the answer would be (ddpsim.error/1), and one sentence for people always.
#include <gtest/gtest.h>

#include "sim/io/files.h"
#include "sim/io/schema/error_fields.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

const Args kAsk{"predict", "--workload", "resnet50", "--cluster", "hgx-h100", "--ranks", "8"};

io::Json refused(const Args& args) {
  const Outcome o = ddpsim(args + Args{"--format", "json"});
  EXPECT_NE(o.code, 0);
  expect_no_answer(o, args + Args{"--format", "json"});
  return io::Json::parse(o.out);
}

TEST(Refusal, IsJsonWhereTheAnswerWouldBe) {
  const io::Json name = refused({"predict", "--workload", "resnet5", "--cluster", "hgx-h100"});
  EXPECT_EQ(name["code"], "no_such_file");
  EXPECT_EQ(name["place"], "--workload");
  EXPECT_EQ(name["remedy"], "resnet50");
  EXPECT_EQ(name["exit_code"], 2);
  const io::Json key = refused(kAsk + Args{"--set", "cluster.hostz=2"});
  EXPECT_EQ(key["code"], "unknown_key");
  EXPECT_EQ(key["remedy"], "hosts");
  EXPECT_TRUE(has(key["place"], "--set cluster.hostz=2")) << key;
  EXPECT_EQ(refused(kAsk + Args{"--set", "plan.backend=nccll"})["code"], "unknown_word");
  EXPECT_EQ(refused(kAsk + Args{"--set", "cluster.hosts=many"})["code"], "wrong_type");
  EXPECT_EQ(refused(kAsk + Args{"--set", "ranks=2000000"})["code"], "out_of_range");
  EXPECT_EQ(refused({"show", "run", "no_such.json"})["code"], "no_such_file");
  const io::Json flag = refused({"predict", "--rankz", "8"});
  EXPECT_EQ(flag["code"], "usage");
  EXPECT_EQ(flag["place"], "");
}

TEST(Refusal, IsASentenceAloneOtherwise) {
  for (const Args& more : {Args{}, Args{"--format", "table"}}) {
    const Outcome o = ddpsim(kAsk + Args{"--set", "cluster.hostz=2"} + more);
    EXPECT_EQ(o.code, 2);
    EXPECT_EQ(o.out, "");
    EXPECT_EQ(o.err.find('\n'), o.err.size() - 1) << o.err;
  }
}

TEST(Help, GroupsCommandsByQuestionAndSaysExitCodes) {
  const std::string help = ddpsim({"--help"}).out;
  EXPECT_FALSE(has(help, "Subcommands:")) << "a command of no question";
  std::size_t at = 0;
  for (const char* group :
       {"How long, and why:", "Which settings, which system:", "Days of training:",
        "Your model and your cluster:", "Is it true:", "For other programs:", "Exit codes:"}) {
    const std::size_t found = help.find(group);
    ASSERT_NE(found, std::string::npos) << group;
    EXPECT_GT(found, at) << group;
    at = found;
  }
  const std::string formats = io::read_file(source_path("docs/formats.md"));
  for (const io::ExitCode& e : io::kExitCodes) {
    EXPECT_TRUE(has(help, e.means));
    EXPECT_NE(help.find("\n  " + std::to_string(e.code) + " ", at), std::string::npos);
    const std::string row = "\n| " + std::to_string(e.code) + " | " + e.means + " |\n";
    EXPECT_TRUE(has(formats, row)) << row;
  }
  for (const char* code : kErrorCodes)
    EXPECT_TRUE(has(formats, "`" + std::string(code) + "`")) << code;
}

TEST(Schema, OfEachKindIsPrinted) {
  const io::Json cluster = io::Json::parse(ddpsim({"schema", "cluster"}).out);
  EXPECT_EQ(cluster["title"], "ddpsim.cluster/1");
  EXPECT_TRUE(cluster["properties"].contains("devices_per_host"));
  EXPECT_TRUE(has(ddpsim({"schema", "clustr"}).err, "did you mean \"cluster\"?"));
  EXPECT_EQ(ddpsim({"schema"}).code, 2);
  EXPECT_TRUE(has(ddpsim({"show", "fields", "bucket_cap"}).out, "plan.bucket_cap_mb\n"));
  EXPECT_TRUE(has(ddpsim({"show", "fields", "cluster.hots"}).err, "cluster.hosts"));
}

}  // namespace
}  // namespace ddpsim::test
