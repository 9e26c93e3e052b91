#include "sim/io/schema/run_fields.h"

namespace ddpsim::io {

OrderedJson write_run(const Run& run) {
  return write_fields(run);
}

}  // namespace ddpsim::io
