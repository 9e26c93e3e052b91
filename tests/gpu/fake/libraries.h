// What the fakes of cuBLASLt and cuDNN share: descriptors that the caller holds as pointers to
// types without a definition, and a product on operands of the device.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "tests/gpu/fake/fake.h"

namespace ddpsim::fake {

// A descriptor's own type, behind the library's.
template <class T, class Opaque>
T& plain(Opaque* o) {
  return *reinterpret_cast<T*>(const_cast<std::remove_const_t<Opaque>*>(o));
}
template <class T, class Opaque>
void make(Opaque** o, T value) {
  *o = reinterpret_cast<Opaque*>(new T(value));
}
template <class T, class Opaque>
void drop(Opaque* o) {
  delete &plain<T>(o);
}

struct Operand {
  const void* at;
  std::int64_t bytes;
};
// Puts a product of `us` on the stream. False: an operand, or the workspace, is not on the device.
inline bool product(cudaStream_t s, double us, std::initializer_list<Operand> operands,
                    Operand workspace) {
  for (const Operand& o : operands)
    if (!on_device(o.at, o.bytes)) return false;
  if (workspace.bytes > 0 && !on_device(workspace.at, workspace.bytes)) return false;
  work(s, Kind::Product, us);
  return true;
}

}  // namespace ddpsim::fake
