#include "sim/io/read_budget.h"

#include <algorithm>

#include "sim/io/schema/steps_fields.h"

namespace ddpsim::io {

std::vector<validation::Limit> read_budget(const Json& j, const std::string& file,
                                           const std::vector<std::string>& known) {
  const Reader r(j, file);
  BudgetFile f;
  read_file_fields(r, f, kBudgetSchema);
  const std::vector<Reader> items = r.at("limits").items();
  for (std::size_t k = 0; k < items.size(); ++k) {
    const Reader& item = items[k];
    const validation::Limit& l = f.limits[k];
    if (!known.empty() && std::find(known.begin(), known.end(), l.what) == known.end()) {
      std::string hint = nearest(l.what, known);
      item.at("what").fail(
          "\"" + l.what.substr(0, 80) + "\" is not a value of a validation" +
          (hint.empty() ? "; see docs/formats.md, budget" : " (did you mean \"" + hint + "\"?)"));
    }
    if (!l.min && !l.max) item.fail("a limit has a \"min\" or a \"max\", or both");
    if (l.min && l.max && *l.min > *l.max)
      item.fail("\"min\" is larger than \"max\": nothing can keep that limit");
  }
  return std::move(f.limits);
}

}  // namespace ddpsim::io
