#include "tools/cmd/crash.h"

#include <array>
#include <cstddef>
#include <vector>

#include <signal.h>
#include <unistd.h>

namespace ddpsim::cli {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kReports = false;
#else
constexpr bool kReports = true;
#endif

constexpr std::array<int, 5> kCrashes{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

thread_local volatile std::int64_t current = -1;

// A thread whose stack is full has none left to say so on.
class SignalStack {
 public:
  SignalStack() : memory_(1 << 16) {
    stack_t mine{};
    mine.ss_sp = memory_.data();
    mine.ss_size = memory_.size();
    ::sigaltstack(&mine, &before_);
  }
  ~SignalStack() { ::sigaltstack(&before_, nullptr); }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::vector<std::byte> memory_;
  stack_t before_{};
};

void say(const char* text, std::size_t length) {
  [[maybe_unused]] ssize_t n = ::write(STDERR_FILENO, text, length);
}

// Calls only what a handler may call. SA_RESETHAND: on return the signal comes again, and ends the
// process.
extern "C" void crashed(int signal) {
  std::int64_t point = current;
  if (point >= 0) {
    char digits[20];
    std::size_t from = sizeof digits;
    do digits[--from] = static_cast<char>('0' + point % 10);
    while ((point /= 10) > 0);
    auto number = [&] { say(digits + from, sizeof digits - from); };
    constexpr char kFirst[] = "\nddpsim: crashed at point ";
    constexpr char kThen[] = " of the sweep, please report it; --resume --skip ";
    constexpr char kLast[] = " makes the others\n";
    say(kFirst, sizeof kFirst - 1);
    number();
    say(kThen, sizeof kThen - 1);
    number();
    say(kLast, sizeof kLast - 1);
  }
  ::raise(signal);
}

}  // namespace

struct CrashReport::Before {
  std::array<struct sigaction, kCrashes.size()> actions{};
};

CrashReport::CrashReport() : before_(std::make_unique<Before>()) {
  if (!kReports) return;
  struct sigaction ours {};
  ours.sa_handler = crashed;
  ours.sa_flags = SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  for (std::size_t i = 0; i < kCrashes.size(); ++i)
    ::sigaction(kCrashes[i], &ours, &before_->actions[i]);
}

CrashReport::~CrashReport() {
  if (!kReports) return;
  for (std::size_t i = 0; i < kCrashes.size(); ++i)
    ::sigaction(kCrashes[i], &before_->actions[i], nullptr);
}

void at_point(std::int64_t point) {
  if (kReports) {
    static thread_local SignalStack stack;
    (void)stack;
  }
  current = point;
}

}  // namespace ddpsim::cli
