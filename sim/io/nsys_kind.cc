// What of nsys.h needs no SQLite.
#include "sim/io/byte_stream.h"
#include "sim/io/nsys.h"
#include "sim/model/error.h"

namespace ddpsim::io {

bool is_sqlite(const std::string& path) {
  constexpr std::string_view kMagic{"SQLite format 3\0", 16};
  try {
    ByteStream stream(path);
    for (char c : kMagic) {
      if (stream.at_end() || stream.current() != c) return false;
      stream.next();
    }
    return true;
  } catch (const InputError&) {
    return false;
  }
}

std::string nsys_remedy() {
  return "record with autograd's ranges and shapes: nsys profile --trace=cuda,nvtx "
         "--pytorch=autograd-shapes-nvtx python train.py (or, in the script, with "
         "torch.autograd.profiler.emit_nvtx(record_shapes=True):), then nsys export --type sqlite "
         "FILE.nsys-rep";
}

}  // namespace ddpsim::io
