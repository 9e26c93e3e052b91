#include "calib/clock.h"

#include <cerrno>
#include <ctime>

namespace ddpsim::calib {

std::int64_t now_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000ll + t.tv_nsec;
}

void sleep_until_ns(std::int64_t deadline) {
  timespec t{};
  t.tv_sec = deadline / 1'000'000'000ll;
  t.tv_nsec = deadline % 1'000'000'000ll;
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {
  }
}

}  // namespace ddpsim::calib
