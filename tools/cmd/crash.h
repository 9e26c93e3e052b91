// A sweep that a crash ends says at which point: so that the others can be made without it.
#pragma once

#include <csignal>
#include <cstdint>
#include <memory>

namespace ddpsim::cli {

// While one lives, a crash (a signal such as SIGSEGV) writes to stderr which point its thread was
// at, and then does what it would have done. One at a time. With a sanitizer it does nothing:
// that one reports crashes itself.
class CrashReport {
 public:
  CrashReport();
  ~CrashReport();
  CrashReport(const CrashReport&) = delete;
  CrashReport& operator=(const CrashReport&) = delete;

 private:
  struct Before;
  std::unique_ptr<Before> before_;
};

// What the calling thread is at from now on; -1 = at none. The first call gives the thread a stack
// on which its overflow can be reported.
void at_point(std::int64_t point);

}  // namespace ddpsim::cli
