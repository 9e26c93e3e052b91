#include "sim/io/schema/profile_fields.h"

namespace ddpsim::io {

OrderedJson write_profile(const Profile& p, const std::vector<OrderedJson>& residuals) {
  OrderedJson j = write_fields(p);
  if (p.costs && !p.costs->carried_from.empty())
    j["host"].erase("calls");  // they come with the kernels
  OrderedJson fit;
  for (auto& [key, value] : j["fit"].items()) {
    fit[key] = std::move(value);
    if (key == "step_residual") fit["residuals"] = residuals;
  }
  j["fit"] = std::move(fit);
  return j;
}

}  // namespace ddpsim::io
