#include "sim/io/known_errors.h"

#include <algorithm>

#include "sim/io/schema/known_fields.h"
#include "sim/io/schema/profile_fields.h"

namespace ddpsim::io {

KnownErrors read_known_errors(const Json& profile, const std::string& file) {
  Reader r(profile, file);
  KnownErrors out;
  if (Reader compute = r.at("compute"); compute.has("described_error")) {
    KnownErrors::Described described;
    read_fields(compute.at("described_error"), described);
    out.described = described;
  }
  for (const auto& [name, t] : r.at("transports").members()) {
    if (!t.has("table_residual")) continue;
    double residual = t.at("table_residual").number();
    if (!(residual >= 0 && residual < 100)) t.at("table_residual").fail("a fraction, 0 or more");
    out.table_residual = std::max(out.table_residual, residual);
  }
  return out;
}

std::vector<KnownFamily> read_known_families(const Json& j, const std::string& file) {
  KnownErrorsFile f;
  read_file_fields(Reader(j, file), f, kKnownErrorsSchema);
  return std::move(f.families);
}

}  // namespace ddpsim::io
