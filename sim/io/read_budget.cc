#include "sim/io/read_budget.h"

#include <algorithm>

#include "sim/io/json_reader.h"

namespace ddpsim::io {

std::vector<validation::Limit> read_budget(const Json& j, const std::string& file,
                                           const std::vector<std::string>& known) {
  Reader r(j, file);
  r.schema("ddpsim.budget/1");
  r.only({"schema", "description", "limits"});
  std::vector<validation::Limit> out;
  for (const Reader& item : r.at("limits").items()) {
    item.only({"what", "min", "max"});
    validation::Limit l;
    l.what = item.at("what").text();
    if (!known.empty() && std::find(known.begin(), known.end(), l.what) == known.end()) {
      std::string hint = nearest(l.what, known);
      item.at("what").fail(
          "\"" + l.what.substr(0, 80) + "\" is not a value of a validation" +
          (hint.empty() ? "; see docs/formats.md, budget" : " (did you mean \"" + hint + "\"?)"));
    }
    if (item.has("min")) l.min = item.at("min").number();
    if (item.has("max")) l.max = item.at("max").number();
    if (!l.min && !l.max) item.fail("a limit has a \"min\" or a \"max\", or both");
    if (l.min && l.max && *l.min > *l.max)
      item.fail("\"min\" is larger than \"max\": nothing can keep that limit");
    out.push_back(std::move(l));
  }
  return out;
}

}  // namespace ddpsim::io
