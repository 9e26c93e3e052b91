// Shipped scenarios, clusters, profiles and workloads, and programs, damaged at random, are asked
// for a prediction: each gets an answer or a refusal in one sentence, in bounded time and memory.
//
//   DDPSIM_FUZZ_N=100000     how many (default 400)
//   DDPSIM_FUZZ_SEED=7       which ones
//   DDPSIM_FUZZ_NOUN=program  of programs alone
//   DDPSIM_FUZZ_ONLY=1234    this one alone, in this process: its file is printed
//   DDPSIM_FUZZ_KEEP=FOLDER  where the files of failures are put
//
// They run in child processes, so that a crash is one failure and the others are still asked.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <new>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "sim/model/error.h"
#include "sim/units/number.h"
#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using io::Json;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlower = 8;
#else
constexpr double kSlower = 1;
#endif
constexpr double kMostSeconds = 5;
constexpr double kMostMemory = 1e9;  // bytes

std::int64_t from_environment(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? parse_integer(text).value_or(otherwise) : otherwise;
}

enum class Noun { Scenario, Cluster, Profile, Workload, Program };

struct Original {
  std::string path;
  Noun noun;
  Json document;
  bool gpu = false;
};

// Paths in a scenario are relative to its file, which moves.
void make_absolute(Json& scenario, const std::string& folder) {
  for (const char* key : {"workload", "cluster", "profile"})
    if (scenario.contains(key) && scenario[key].is_string())
      if (std::string name = scenario[key]; name.find('/') != std::string::npos && name[0] != '/')
        scenario[key] = (fs::path(folder) / name).lexically_normal().string();
}

std::vector<Original> originals() {
  std::vector<Original> out;
  auto folder = [&](const std::string& name, Noun noun, std::uintmax_t most) {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(source_path(name)))
      if (entry.path().extension() == ".json" && entry.file_size() < most)
        paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const fs::path& p : paths) {
      Original o{name + "/" + p.filename().string(), noun, {}};
      o.document = read_json(o.path);
      if (noun == Noun::Scenario) make_absolute(o.document, p.parent_path().string());
      o.gpu = o.document.dump().find("\"gpu\"") != std::string::npos;
      out.push_back(std::move(o));
    }
  };
  folder("tests/golden/scenarios", Noun::Scenario, 20'000);
  folder("topologies", Noun::Cluster, 20'000);
  folder("tests/golden/clusters", Noun::Cluster, 20'000);
  folder("calib/profiles", Noun::Profile, 60'000);
  folder("workloads", Noun::Workload, 60'000);
  // Programs are not shipped: what ddpsim shows of a few questions.
  for (const std::vector<std::string>& question :
       {std::vector<std::string>{"mlp784-50-10-cpu", "ethernet-10g"},
        {"mlp-cpu", "testbed-star", "--set", "backend=tcp"},
        {"cnn-cpu", "ethernet-10g", "--set", "comm_hook=fp16_compress"},
        {"mlp784-50-10", "hgx-h100"},
        {"mlp784-50-10", "hgx-h100", "--plan", "averaging"},
        {"mlp784-50-10", "hgx-h100", "--plan", "fsdp"},
        {"mlp784-50-10", "hgx-h100", "--plan", "zero3"}}) {
    std::vector<std::string> show{"show",      "program",   "--workload", question[0],
                                  "--cluster", question[1], "--format",   "json"};
    show.insert(show.end(), question.begin() + 2, question.end());
    Outcome o = ddpsim(show);
    if (o.code != 0) throw std::runtime_error(o.err);
    Json program = io::parse_json(o.out, "program");
    bool gpu = program["device"] == "gpu";
    out.push_back({"program of " + question[0], Noun::Program, std::move(program), gpu});
  }
  return out;
}

// Near what it was: that gets past the readers.
void nudge(Json& j, Random& random) {
  static const std::vector<double> factors{0, -1, 1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.999, 1.001,
                                           2, 3,  7,    10,   64,   1e3, 1e6, 1e9};
  double factor = random.pick(factors);
  if (j.is_boolean())
    j = !j.get<bool>();
  else if (j.is_number_integer()) {
    double v = static_cast<double>(j.get<std::int64_t>()) * factor;
    j = std::abs(v) < 9e18 ? static_cast<std::int64_t>(v) : INT64_MAX;
    if (random.below(3) == 0)
      j = j.get<std::int64_t>() / 2 + static_cast<std::int64_t>(random.below(9)) - 4;
  } else if (j.is_number()) {
    j = j.get<double>() * factor;
  } else if (j.is_string()) {
    auto text = j.get<std::string>();
    if (auto n = leading_number(text))
      j = std::to_string(static_cast<std::int64_t>(std::min(n->value * std::abs(factor), 9e18))) +
          text.substr(n->length);
    else if (!text.empty())
      text[random.below(text.size())] = static_cast<char>('a' + random.below(26)), j = text;
  }
}

void damage(Json& j, Random& random) {
  static const std::vector<Json> values{nullptr,
                                        Json::array(),
                                        Json::object(),
                                        -1,
                                        0,
                                        1,
                                        2,
                                        1e308,
                                        -1e308,
                                        1e-308,
                                        4.9e-324,
                                        "x",
                                        "",
                                        true,
                                        false,
                                        INT64_MAX,
                                        INT64_MIN,
                                        UINT64_MAX,
                                        "0B",
                                        "1ps",
                                        "1B",
                                        "1b/s",
                                        "9999999999999999Gb/s",
                                        "106751min",
                                        0.5,
                                        1 << 20,
                                        "1000:1",
                                        "\n",
                                        "bf16",
                                        "graph",
                                        "described",
                                        "fat_tree",
                                        "torus",
                                        "gloo",
                                        "nccl",
                                        "tcp"};
  Json& place = somewhere(j, random);
  switch (random.below(8)) {
    case 0: {
      Json& parent = somewhere(j, random);
      if (!parent.is_structured() || parent.empty()) break;
      auto victim = parent.begin();
      std::advance(victim, static_cast<std::ptrdiff_t>(random.below(parent.size())));
      parent.erase(victim);
      break;
    }
    case 1: {
      Json other = somewhere(j, random);
      place = std::move(other);
      break;
    }
    case 2:
      if (place.is_array() && !place.empty() && place.size() < 1000)
        place.push_back(place[random.below(place.size())]);
      break;
    case 3:
      place = random.pick(values);
      break;
    default:
      nudge(place, random);
      break;
  }
}

struct Case {
  const Original* original = nullptr;
  Json document;
  bool show = false;  // a cluster: what it is made of is asked, and not for a prediction
};

Case make_case(const std::vector<Original>& all, std::uint64_t seed, std::int64_t number) {
  Random random(seed * 1'000'003 + static_cast<std::uint64_t>(number));
  Case c;
  c.original = &all[random.below(all.size())];
  c.document = c.original->document;
  for (std::size_t n = 1 + random.below(4u); n > 0; --n) damage(c.document, random);
  c.show = c.original->noun == Noun::Cluster && number % 2 == 1;
  return c;
}

std::vector<std::string> question(const Case& c, const std::string& file) {
  if (c.show) return {"topology", "show", file, "--format", "json"};
  const std::string workload = c.original->gpu ? "mlp784-50-10" : "mlp784-50-10-cpu";
  const std::string cluster = c.original->gpu ? "hgx-h100" : "ethernet-10g";
  std::vector<std::string> out{"predict", "--format", "json"};
  auto add = [&](std::initializer_list<std::string> more) { out.insert(out.end(), more); };
  if (c.original->noun == Noun::Scenario) add({file});
  if (c.original->noun == Noun::Cluster) add({"--workload", workload, "--cluster", file});
  if (c.original->noun == Noun::Profile)
    add({"--workload", workload, "--cluster", cluster, "--profile", file});
  if (c.original->noun == Noun::Program)
    add({"--program", file, "--cluster", c.original->gpu ? cluster : "ethernet-10g"});
  if (c.original->noun == Noun::Workload)
    add({"--workload", file, "--cluster", cluster, "--ranks", "2"});
  return out;
}

double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

double peak_memory() {
  rusage r{};
  ::getrusage(RUSAGE_SELF, &r);
  return static_cast<double>(r.ru_maxrss) * 1024;
}

// What a child tells the process that watches it.
struct Shared {
  std::atomic<std::int64_t> at{0};  // the case that is asked
  std::atomic<std::int64_t> answered{0};
  std::atomic<std::int64_t> slowest{-1};
  std::atomic<std::int64_t> most_us{0};
  std::atomic<std::int64_t> most_bytes{0};
};

// "" = it behaves. The file of the case lies at `file`.
std::string problem_of(const Case& c, const std::string& file, Shared& shared) {
  io::write_file(file, c.document.dump());
  double before = cpu_seconds();
  double memory = peak_memory();
  Outcome o = ddpsim(question(c, file));
  double took = cpu_seconds() - before;
  const auto us = static_cast<std::int64_t>(took * 1e6);
  if (us > shared.most_us) shared.most_us = us, shared.slowest = shared.at.load();
  shared.most_bytes =
      std::max<std::int64_t>(shared.most_bytes, static_cast<std::int64_t>(peak_memory()));
  if (o.code != 0 && o.code != 2) return "exit code " + std::to_string(o.code) + ": " + o.err;
  if (took > kMostSeconds * kSlower) return "took " + std::to_string(took) + " s";
  if (peak_memory() > memory && peak_memory() > kMostMemory * kSlower)
    return "took " + std::to_string(peak_memory()) + " bytes";
  if (o.code == 2) {
    if (!o.err.starts_with("ddpsim: ") || o.err.find('\n') != o.err.size() - 1)
      return "refused in no sentence: " + o.err;
    if (o.out.empty()) return "";
    // The same as JSON, where the answer would have been.
    const Json said = Json::parse(o.out, nullptr, false);
    const bool same = said.is_object() && said.value("schema", "") == "ddpsim.error/1" &&
                      has(o.err, said.value("message", "?"));
    return same ? "" : "refused in other words: " + o.out;
  }
  ++shared.answered;
  Json answer = io::parse_json(o.out, "stdout");
  if (c.show) return answer.empty() ? "an empty answer" : "";
  const Json& summary = answer["summary"];
  auto step = summary["step_ps"].get<std::int64_t>();
  if (step <= 0) return "the step takes " + std::to_string(step) + " ps";
  if (summary["step_low_ps"] > step || summary["step_high_ps"] < step)
    return "the interval does not hold the step";
  return {};
}

struct Failure {
  std::int64_t number = 0;
  std::string why;
};

TEST(Mutations, GetAnAnswerOrARefusal) {
  const auto n = from_environment("DDPSIM_FUZZ_N", 400);
  const auto seed = static_cast<std::uint64_t>(from_environment("DDPSIM_FUZZ_SEED", 20261122));
  const auto only = from_environment("DDPSIM_FUZZ_ONLY", -1);
  const char* keep = std::getenv("DDPSIM_FUZZ_KEEP");
  std::vector<Original> all = originals();
  ASSERT_GT(all.size(), 50u);
  if (const char* noun = std::getenv("DDPSIM_FUZZ_NOUN"); noun && noun == std::string("program"))
    std::erase_if(all, [](const Original& o) { return o.noun != Noun::Program; });
  fs::path folder =
      fs::path(testing::TempDir()) / ("ddpsim_mutations_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const std::string file = (folder / "case.json").string();
  if (only >= 0) {
    Case c = make_case(all, seed, only);
    std::cerr << c.original->path << "\n" << c.document.dump() << std::endl;
    Shared alone;
    alone.at = only;
    EXPECT_EQ(problem_of(c, file, alone), "");
    std::cerr << static_cast<double>(alone.most_us) / 1e6 << " s of CPU, "
              << static_cast<double>(alone.most_bytes) / 1e6 << " MB" << std::endl;
    fs::remove_all(folder);
    return;
  }
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& shared = *new (memory) Shared;
  std::vector<Failure> failures;
  constexpr std::int64_t kOfAChild = 2000;  // what one leaves behind in memory does not add up
  constexpr std::size_t kMostFailures = 200;
  for (std::int64_t next = 0; next < n && failures.size() < kMostFailures;) {
    const std::int64_t last = std::min(n, next + kOfAChild);
    shared.at = next;
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      // Messages of sanitizers stay on stderr.
      for (std::int64_t k = next; k < last; ++k) {
        shared.at = k;
        // A case that never ends is ended by SIGPROF.
        const itimerval longest{{}, {static_cast<time_t>(6 * kMostSeconds * kSlower), 0}};
        ::setitimer(ITIMER_PROF, &longest, nullptr);
        std::string why;
        try {
          why = problem_of(make_case(all, seed, k), file, shared);
        } catch (const InputError& e) {
          why = "its answer: " + e.where + ": " + e.what;
        } catch (const std::exception& e) {
          why = std::string("its answer: ") + e.what();
        }
        if (why.empty()) continue;
        io::write_file(file + ".why", why);
        ::_exit(9);
      }
      ::_exit(0);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0) ASSERT_EQ(errno, EINTR);
    bool fine = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    next = fine ? last : shared.at + 1;
    if (fine) continue;
    Failure f{shared.at, WIFSIGNALED(status) ? "ended by signal " + std::to_string(WTERMSIG(status))
                                             : "ended with " + std::to_string(WEXITSTATUS(status))};
    if (WIFEXITED(status) && WEXITSTATUS(status) == 9) f.why = io::read_file(file + ".why");
    if (keep)
      io::write_file(
          std::string(keep) + "/" + std::to_string(seed) + "-" + std::to_string(f.number) + ".json",
          make_case(all, seed, f.number).document.dump(1));
    std::cerr << "mutation " << f.number << " of " << make_case(all, seed, f.number).original->path
              << ": " << f.why << std::endl;
    failures.push_back(std::move(f));
  }
  std::cerr << n << " mutations of seed " << seed << ": " << shared.answered << " answered, "
            << failures.size() << " failed, the others refused; slowest "
            << static_cast<double>(shared.most_us) / 1e6 << " s of CPU (" << shared.slowest
            << "), most memory of a process " << static_cast<double>(shared.most_bytes) / 1e6
            << " MB" << std::endl;
  EXPECT_GT(shared.answered, n / 10)
      << "the readers refuse nearly all: nothing behind them is asked";
  for (const Failure& f : failures)
    ADD_FAILURE() << "DDPSIM_FUZZ_SEED=" << seed << " DDPSIM_FUZZ_ONLY=" << f.number << ": "
                  << f.why;
  ::munmap(memory, sizeof(Shared));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace ddpsim::test
