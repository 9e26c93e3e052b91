#include "calib/interrupt.h"

#include <csignal>

#include <fmt/format.h>

namespace ddpsim::calib {
namespace {

volatile std::sig_atomic_t noted = 0;
void (*once_more)(int) = SIG_DFL;

extern "C" void note(int) {
  noted = 1;
  std::signal(SIGINT, once_more);
}

}  // namespace

Interruptible::Interruptible() : before_(SIG_DFL) {
  noted = 0;
  before_ = std::signal(SIGINT, note);
  if (before_ == SIG_IGN) std::signal(SIGINT, SIG_IGN);  // as a job in the background
  once_more = before_;
}
Interruptible::~Interruptible() {
  std::signal(SIGINT, before_);
}

bool interrupted() {
  return noted != 0;
}

void note_interrupted(Run& run, std::size_t done, std::size_t all) {
  if (done == 0) throw NothingMeasured();
  run.skipped.push_back({fmt::format("{} of {} points", all - done, all),
                         fmt::format("interrupted after {} of them", done)});
}

std::string last_document(const std::string& lines) {
  const std::size_t end = lines.rfind('\n');
  if (end == std::string::npos || end == 0) throw NothingMeasured();
  const std::size_t before = lines.rfind('\n', end - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return lines.substr(begin, end - begin);
}

}  // namespace ddpsim::calib
