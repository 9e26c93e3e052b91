// What a command that takes longer says of how far it is, on stderr.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <ostream>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "tools/cmd/command.h"

namespace ddpsim::cli {

// How far, how fast, how long yet: a bar on a terminal, else a line now and then.
class Progress {
 public:
  // Of so many `things`, some of which are done. `lines`: also where stderr is no terminal.
  Progress(Terminal& t, const char* things, std::int64_t done, std::int64_t of, bool lines = true)
      : t_(t),
        things_(things),
        from_(done),
        of_(of),
        lines_(lines),
        begin_(Clock::now()),
        said_(begin_) {}
  void show(std::int64_t done, bool last = false) {
    auto now = Clock::now();
    double since = std::chrono::duration<double>(now - said_).count();
    if (!t_.err_is_terminal && !lines_) return;
    if (!last && since < (t_.err_is_terminal ? shown_ ? 0.2 : 1.0 : 5.0)) return;
    if (last && !shown_) return;
    said_ = now;
    shown_ = true;
    double seconds = std::chrono::duration<double>(now - begin_).count();
    double rate = seconds > 0 ? static_cast<double>(done - from_) / seconds : 0;
    std::string left =
        rate > 0 ? fmt::format("{:.0f} s left", static_cast<double>(of_ - done) / rate) : "";
    if (last) left = fmt::format("{:.1f} s", seconds);
    std::string text = fmt::format("{} of {} {}, {:.0f}/s, {}", done, of_, things_, rate, left);
    if (!t_.err_is_terminal) {
      t_.err << "ddpsim: " << text << "\n" << std::flush;
      return;
    }
    constexpr int kWidth = 30;
    auto full = static_cast<std::size_t>(of_ > 0 ? done * kWidth / of_ : kWidth);
    t_.err << "\r[" << std::string(full, '#') << std::string(kWidth - full, '.') << "] " << text
           << "  " << (last ? "\n" : "") << std::flush;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Terminal& t_;
  const char* things_;
  std::int64_t from_;
  std::int64_t of_;
  bool lines_;
  Clock::time_point begin_;
  Clock::time_point said_;
  bool shown_ = false;
};

// How long one piece of work lasts by now, on a terminal, from `after` on; gone when it has ended.
class Elapsed {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Elapsed(Terminal& t, Clock::duration after = std::chrono::seconds(1)) : t_(t) {
    if (t.err_is_terminal) thread_ = std::thread([this, after] { show(after); });
  }
  ~Elapsed() {
    {
      std::lock_guard guard(lock_);
      ended_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  Elapsed(const Elapsed&) = delete;
  Elapsed& operator=(const Elapsed&) = delete;

 private:
  void show(Clock::duration after) {
    const Clock::time_point begin = Clock::now();
    std::unique_lock guard(lock_);
    auto ended = [this] { return ended_; };
    if (changed_.wait_for(guard, after, ended)) return;
    do {
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      t_.err << fmt::format("\rddpsim: {:.0f} s ", seconds) << std::flush;
    } while (!changed_.wait_for(guard, std::chrono::milliseconds(500), ended));
    t_.err << "\r\033[K" << std::flush;
  }

  Terminal& t_;
  std::mutex lock_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

template <class Work>
auto timed(Terminal& t, Work work) {
  const Elapsed elapsed(t);
  return work();
}

}  // namespace ddpsim::cli
