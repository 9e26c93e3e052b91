// What a command that takes longer says of how far it is, on stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>

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

}  // namespace ddpsim::cli
