// The same bytes with any number of threads: predictions share nothing.
#include <barrier>
#include <thread>

#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace ddpsim::test {
namespace {

// GPUs and CPUs, every pattern of cluster, both systems, both fidelities, a seed.
const std::vector<std::string> kScenarios = {"mlp-gpu",
                                             "mlp-cpu.message",
                                             "averaging-flat-cpu",
                                             "averaging-async-gpu",
                                             "token-bucket",
                                             "racks-interleaved",
                                             "jitter",
                                             "resnet18-cpu-10g"};

TEST(Threads, EightAtOncePredictTheSameBytesAsOne) {
  std::vector<std::string> alone;
  for (const std::string& name : kScenarios) alone.push_back(prediction_of(name));

  const std::size_t n = kScenarios.size();
  std::vector<std::vector<std::string>> together(n, std::vector<std::string>(n));
  std::barrier begin(static_cast<std::ptrdiff_t>(n));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < n; ++t) {
    threads.emplace_back([&, t] {
      begin.arrive_and_wait();
      // Each thread has an order of its own, so that all eight are in flight at any time.
      for (std::size_t i = 0; i < n; ++i) {
        std::size_t scenario = (t + i) % n;
        try {
          together[t][scenario] = prediction_of(kScenarios[scenario]);
        } catch (const std::exception& e) {
          together[t][scenario] = e.what();
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();

  for (std::size_t t = 0; t < n; ++t)
    for (std::size_t i = 0; i < n; ++i)
      // Not EXPECT_EQ: a difference of two long texts is worth one line.
      EXPECT_TRUE(together[t][i] == alone[i])
          << kScenarios[i] << " on thread " << t << ": "
          << first_difference(io::OrderedJson::parse(alone[i]),
                              io::OrderedJson::parse(together[t][i], nullptr, false));
}

}  // namespace
}  // namespace ddpsim::test
