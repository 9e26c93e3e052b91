// The fake inside the binary: the virtual clock in place of calib/clock.cc, libraries that are
// opened beside the binary only, and barriers that bring the ranks' clocks together.
#include <cstdint>
#include <string>

#include <dlfcn.h>
#include <unistd.h>

#include "calib/clock.h"
#include "tests/gpu/fake/fake.h"

namespace ddpsim::calib {

struct Rendezvous;

std::int64_t now_ns() {
  return fake::now_ps() / 1000;
}

void sleep_until_ns(std::int64_t deadline) {
  fake::host_until(deadline * 1000);
}

}  // namespace ddpsim::calib

namespace {

std::string here() {
  char path[4096];
  ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  std::string text(path, n > 0 ? static_cast<std::size_t>(n) : 0);
  return text.substr(0, text.rfind('/') + 1);
}

}  // namespace

extern "C" {

void* __real_dlopen(const char* name, int flags);
void* __wrap_dlopen(const char* name, int flags) {
  std::string missing = ddpsim::fake::planted().missing;
  std::string file = name ? name : "";
  if (file.find('/') != std::string::npos) return nullptr;  // never a real one
  if (!missing.empty() && file.find(missing) != std::string::npos) return nullptr;
  return __real_dlopen((here() + "fake_gpu/" + file).c_str(), flags);
}

// double ddpsim::calib::machine_load(): what else this machine does changes no virtual clock.
double __wrap__ZN6ddpsim5calib12machine_loadEv() {
  return 0;
}

// void Rendezvous::meet(int barrier, int count)
void __real__ZN6ddpsim5calib10Rendezvous4meetEii(ddpsim::calib::Rendezvous*, int, int);
void __wrap__ZN6ddpsim5calib10Rendezvous4meetEii(ddpsim::calib::Rendezvous* self, int barrier,
                                                 int count) {
  ddpsim::fake::come_to_barrier(barrier);
  __real__ZN6ddpsim5calib10Rendezvous4meetEii(self, barrier, count);
  ddpsim::fake::leave_barrier(barrier);
}

}  // extern "C"
