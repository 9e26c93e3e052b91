// Only of a portable build (DDPSIM_PORTABLE). The C++ library that is linked in refers to
// arc4random, for std::random_device, which nothing here uses; glibc has it since 2.36 (2022), and
// a binary that asks for it does not start where glibc is older.
#include <cstdint>

#include <sys/random.h>

extern "C" std::uint32_t arc4random() {
  std::uint32_t out = 0;
  while (::getrandom(&out, sizeof out, 0) != static_cast<ssize_t>(sizeof out)) {
  }
  return out;
}
