// Gloo's two workers: a FIFO that never starts more than `threads` collectives at once.
#include "sim/systems/base/worker_pool.h"

#include <vector>

#include <gtest/gtest.h>

namespace ddpsim::systems {
namespace {

TEST(WorkerPool, StartsAtOnceWhileAWorkerIsFree) {
  WorkerPool p;
  EXPECT_EQ(enqueue(p, 7), 7u);
  EXPECT_EQ(enqueue(p, 8), 8u);
  EXPECT_EQ(p.busy, 2);
}

TEST(WorkerPool, QueuesBehindBusyWorkers) {
  WorkerPool p;
  enqueue(p, 0);
  enqueue(p, 1);
  EXPECT_EQ(enqueue(p, 2), std::nullopt);
  EXPECT_EQ(p.busy, 2);
}

TEST(WorkerPool, PicksUpInTheOrderOfEnqueueing) {
  WorkerPool p;
  std::vector<std::uint32_t> started;
  for (std::uint32_t op = 10; op < 15; ++op)
    if (auto s = enqueue(p, op)) started.push_back(*s);
  while (p.busy > 0)
    if (auto s = finished(p)) started.push_back(*s);
  EXPECT_EQ(started, (std::vector<std::uint32_t>{10, 11, 12, 13, 14}));
  EXPECT_TRUE(p.queue.empty());
}

TEST(WorkerPool, StaysBusyWhileSomethingWaits) {
  WorkerPool p;
  for (std::uint32_t op = 0; op < 3; ++op) enqueue(p, op);
  EXPECT_EQ(finished(p), 2u);
  EXPECT_EQ(p.busy, 2);
  EXPECT_EQ(finished(p), std::nullopt);
  EXPECT_EQ(p.busy, 1);
}

TEST(WorkerPool, WithOneThreadRunsOneAfterTheOther) {
  WorkerPool p{.threads = 1, .busy = 0, .queue = {}};
  EXPECT_EQ(enqueue(p, 0), 0u);
  EXPECT_EQ(enqueue(p, 1), std::nullopt);
  EXPECT_EQ(finished(p), 1u);
  EXPECT_EQ(finished(p), std::nullopt);
  EXPECT_EQ(enqueue(p, 2), 2u);
}

}  // namespace
}  // namespace ddpsim::systems
