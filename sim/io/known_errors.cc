#include "sim/io/known_errors.h"

#include <algorithm>

namespace ddpsim::io {

KnownErrors read_known_errors(const Json& profile, const std::string& file) {
  Reader r(profile, file);
  KnownErrors out;
  if (Reader compute = r.at("compute"); compute.has("described_error")) {
    Reader e = compute.at("described_error");
    e.only({"captures", "median", "source"});
    out.described = {e.at("captures").small(1, 1'000'000), e.at("median").number(),
                     e.at("source").text()};
    if (!(out.described->median > -1 && out.described->median < 10))
      e.at("median").fail("a share of the measured time: above -1, below 10");
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
  Reader r(j, file);
  r.only({"schema", "families"});
  std::vector<KnownFamily> out;
  for (const Reader& f : r.at("families").items()) {
    f.only({"system", "hosts", "profile", "precision", "rows", "sources", "median", "report"});
    out.push_back({f.at("system").text(), f.at("hosts").text(), f.at("profile").text(),
                   f.at("precision").text(), f.at("rows").small(1, 1'000'000),
                   f.at("sources").small(1, 1'000'000), f.at("median").number(),
                   f.at("report").text()});
  }
  return out;
}

}  // namespace ddpsim::io
