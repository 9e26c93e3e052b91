// Many independent pieces of work on all cores, their results in order: what comes out does not
// depend on the number of threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace ddpsim::cli {

// make(i) for i in [first, last) on `jobs` threads; take(i, result) in order, on the calling
// thread; tick() on it now and then. At most `ahead` results wait to be taken. An exception of make
// or take ends it and is thrown here.
template <class Result, class Make, class Take, class Tick>
void in_order(std::int64_t first, std::int64_t last, int jobs, std::int64_t ahead, Make make,
              Take take, Tick tick) {
  std::mutex lock;
  std::condition_variable changed;
  std::map<std::int64_t, Result> ready;
  std::int64_t next = first;  // to be made
  std::int64_t taken = first;
  std::exception_ptr failed;
  bool stop = false;
  auto work = [&] {
    for (;;) {
      std::int64_t mine = 0;
      {
        std::unique_lock guard(lock);
        changed.wait(guard, [&] { return stop || next >= last || next < taken + ahead; });
        if (stop || next >= last) return;
        mine = next++;
      }
      try {
        Result r = make(mine);
        std::lock_guard guard(lock);
        ready.emplace(mine, std::move(r));
      } catch (...) {
        std::lock_guard guard(lock);
        if (!failed) failed = std::current_exception();
        stop = true;
      }
      changed.notify_all();
    }
  };
  std::vector<std::thread> threads;
  for (int k = 0; k < jobs; ++k) threads.emplace_back(work);
  try {
    while (taken < last) {
      std::map<std::int64_t, Result> mine;
      {
        std::unique_lock guard(lock);
        changed.wait_for(guard, std::chrono::milliseconds(200), [&] {
          return failed || (!ready.empty() && ready.begin()->first == taken);
        });
        if (failed) break;
        for (std::int64_t k = taken; !ready.empty() && ready.begin()->first == k; ++k)
          mine.insert(ready.extract(ready.begin()));
      }
      for (auto& [k, result] : mine) take(k, std::move(result));
      if (!mine.empty()) {
        std::lock_guard guard(lock);
        taken += static_cast<std::int64_t>(mine.size());
      }
      changed.notify_all();
      tick();
    }
  } catch (...) {
    std::lock_guard guard(lock);
    failed = std::current_exception();
  }
  {
    std::lock_guard guard(lock);
    stop = true;
  }
  changed.notify_all();
  for (std::thread& t : threads) t.join();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace ddpsim::cli
