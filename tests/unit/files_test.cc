// What is read has an end, what is written is whole, and nothing that is not ddpsim's is touched.
#include "sim/io/files.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/io/json_reader.h"
#include "sim/io/lines.h"
#include "sim/io/xml_reader.h"
#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;

class Writer : public InFolder {
 protected:
  static mode_t mode(const std::string& path) {
    struct stat s {};
    return ::stat(path.c_str(), &s) == 0 ? s.st_mode & 07777 : 0;
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  // "": it is not refused.
  static std::string refusal(const std::function<void()>& work) {
    try {
      work();
    } catch (const InputError& e) {
      return e.what;
    }
    return {};
  }
  static pid_t child_that_is_gone() {
    pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
    return child;
  }
};

TEST_F(Writer, KeepsTheModeOfWhatItReplaces) {
  put(at("secret.json"), "old");
  ASSERT_EQ(::chmod(at("secret.json").c_str(), 0600), 0);
  io::write_file(at("secret.json"), "new");
  EXPECT_EQ(raw(at("secret.json")), "new");
  EXPECT_EQ(mode(at("secret.json")), 0600u);
  mode_t mask = ::umask(027);
  io::write_file(at("fresh.json"), "new");
  ::umask(mask);
  EXPECT_EQ(mode(at("fresh.json")), 0640u);
}

// A name that one could guess (the number of a process) may be taken, or be a link to elsewhere.
TEST_F(Writer, FollowsNoLinkThatWaitsForIt) {
  put(at("victim"), "precious");
  std::string guess = at("answer.json.tmp" + std::to_string(::getpid()));
  fs::create_symlink(at("victim"), guess);
  io::write_file(at("answer.json"), "answer");
  EXPECT_EQ(raw(at("victim")), "precious");
  EXPECT_EQ(raw(at("answer.json")), "answer");
  EXPECT_TRUE(fs::is_symlink(guess));
  EXPECT_EQ(entries(), 3u);
}

TEST_F(Writer, TakesANameOfAnyLength) {
  std::string name(250, 'n');
  io::write_file(at(name), "answer");
  EXPECT_EQ(raw(at(name)), "answer");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Writer, LeavesNothingBehindASignal) {
  const std::string target = at("page.html");
  auto temporaries = [&] {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().filename().string().starts_with("page.html.ddpsim-"))
        out.push_back(entry.path().filename().string());
    return out;
  };
  for (bool clean : {true, false}) {
    pid_t child = ::fork();
    if (child == 0) {
      if (clean)
        std::signal(SIGTERM, [](int) {
          io::abandon_temporaries();
          ::_exit(0);
        });
      const std::string text(32 << 20, 'x');
      for (;;) io::write_file(target, text);
    }
    while (temporaries().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(child, clean ? SIGTERM : SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_TRUE(!clean || temporaries().empty()) << "a temporary is left";
  }
  // A kill may have come between two writes: what another machine's, another's and no process's
  // temporary would look like is told by a name of ours.
  std::vector<std::string> left = temporaries();
  if (left.empty()) return;
  std::string name = left.front();
  auto dash = name.rfind('-');
  auto pid_from = name.rfind('-', dash - 1) + 1;
  std::string alive = name.substr(0, pid_from) + std::to_string(::getpid()) + name.substr(dash);
  std::string elsewhere = name;
  char& digit = elsewhere[std::string("page.html.ddpsim-").size()];
  digit = digit == '0' ? '1' : '0';
  std::vector<std::string> others{
      alive,          elsewhere,
      name + "x",     "thesis.tmp2024",
      "x.tmp4194305", "run.json.tmp" + std::to_string(child_that_is_gone())};
  for (const std::string& f : others) put(at(f), "x");
  io::remove_stale_temporaries(folder_.string());
  EXPECT_FALSE(fs::exists(at(name)));
  for (const std::string& f : others) EXPECT_TRUE(fs::exists(at(f))) << f;
  io::remove_stale_temporaries(at("nowhere"));
}

TEST_F(Writer, KnowsTwoNamesOfOneFile) {
  put(at("a"), "x");
  fs::create_symlink(at("a"), at("link"));
  fs::create_hard_link(at("a"), at("hard"));
  for (const char* name : {"a", "link", "hard", "../"}) {
    std::string path =
        name == std::string("../") ? at("../" + folder_.filename().string() + "/./a") : at(name);
    EXPECT_TRUE(io::same_file(at("a"), path)) << path;
  }
  EXPECT_FALSE(io::same_file(at("a"), at("b")));
  EXPECT_TRUE(io::same_file(at("new"), at("./new")));
  EXPECT_FALSE(io::same_file("/dev/null", "/dev/null"));
  io::forget_inputs();
  EXPECT_FALSE(io::was_read(at("a")));
  io::read_file(at("link"));
  EXPECT_TRUE(io::was_read(at("hard")));
  io::forget_inputs();
  EXPECT_FALSE(io::was_read(at("a")));
}

// Nobody writes into the pipe, and the kernel's log goes on for ever.
TEST_F(Writer, WaitsForNoInput) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  auto ignore = [](const std::string&) {};
  EXPECT_NE(refusal([&] { io::read_file(at("pipe")); }).find("not a regular file"),
            std::string::npos);
  EXPECT_NE(refusal([&] { io::each_line(at("pipe"), ignore); }).find("not a regular file"),
            std::string::npos);
  EXPECT_NE(refusal([&] { io::read_file("/dev/zero"); }).find("not a regular file"),
            std::string::npos);
  for (const char* log : {"/proc/kmsg", "/dev/kmsg"})
    if (fs::exists(log)) {
      EXPECT_NE(refusal([&] { io::read_file(log); }), "") << log;
      EXPECT_NE(refusal([&] { io::each_line(log, ignore); }), "") << log;
    }
}

TEST_F(Writer, WaitsForNoReaderOfAPipeForEver) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_NE(refusal([&] { io::write_file(at("pipe"), "x"); }).find("nobody reads"),
            std::string::npos);
}

TEST_F(Writer, LinesAreBounded) {
  put(at("one"), std::string(3 << 20, 'x'));
  EXPECT_NE(refusal([&] { io::each_line(at("one"), [](const std::string&) {}); }).find("1 MiB"),
            std::string::npos);
  put(at("lines"), "a\n\nb\nrest");
  std::vector<std::string> found;
  EXPECT_EQ(io::each_line(at("lines"), [&](const std::string& l) { found.push_back(l); }), "rest");
  EXPECT_EQ(found, (std::vector<std::string>{"a", "", "b"}));
}

TEST_F(Writer, NamesAreUtf8) {
  put(at("caf\xe9.json"), "x");
  EXPECT_NE(refusal([&] { io::list_files(folder_.string(), {".json"}); }).find("not UTF-8"),
            std::string::npos);
}

// The library's own callback looks at all of a list whenever an element of it ends.
TEST(JsonText, IsReadInATimeThatGrowsWithItsLength) {
  std::string text = "[";
  for (int i = 0; i < 400'000; ++i) text += "{\"a\":1},";
  text.back() = ']';
  const double from = cpu_seconds();
  EXPECT_EQ(io::parse_json(text, "f").size(), 400'000u);
  EXPECT_LT(cpu_seconds() - from, 10);
}

TEST(JsonText, HasAMostNumberOfValues) {
  std::string text = "[";
  for (int i = 0; i < 8'100'000; ++i) text += "0,";
  text.back() = ']';
  try {
    io::parse_json(text, "f");
    ADD_FAILURE();
  } catch (const InputError& e) {
    EXPECT_NE(e.what.find("8000000 values"), std::string::npos) << e.what;
  }
}

TEST(JsonText, HoldsNoControlCharacters) {
  for (const char* text : {R"("\u001b[31m")", R"("a\u0000b")", R"("\u007f")", R"("\r")"}) {
    io::Json j = io::parse_json(text, "f");
    EXPECT_THROW(io::Reader(j, "f").text(), InputError) << text;
  }
  io::Json fine = io::parse_json(R"("two\nlines\tand caf\u00e9")", "f");
  EXPECT_EQ(io::Reader(fine, "f").text(), "two\nlines\tand caf\xc3\xa9");
}

TEST(XmlText, IsCountedBeforeItIsParsed) {
  std::string nodes = "<system>";
  for (int i = 0; i < 400'000; ++i) nodes += "<a/>";
  std::string attributes = "<system ";
  for (int i = 0; i < 2'200'000; ++i) attributes += "a=\"\" ";
  for (const std::string& text : {nodes + "</system>", attributes + "/>"}) {
    try {
      const io::XmlFile whole(text, "f", "system");
      ADD_FAILURE();
    } catch (const InputError& e) {
      EXPECT_NE(e.what.find("more than"), std::string::npos) << e.what;
    }
  }
}

}  // namespace
}  // namespace ddpsim::test
