#include "sim/io/sequence.h"

#include "sim/io/codecs.h"
#include "sim/io/unroll.h"

namespace ddpsim::io {

std::int64_t at_length(const std::vector<std::int64_t>& c, std::int64_t tokens) {
  std::int64_t n = 0;
  for (std::size_t i = c.size(); i-- > 0;) n = n * tokens + c[i];
  return n;
}

Json at_its_length(Json document) {
  if (repeats(document)) document = unrolled(document, {});
  if (!document.is_object() || !document.value("sequence", Json()).is_number()) return document;
  std::int64_t tokens = document["sequence"].get<std::int64_t>();
  for (Json& layer : document["layers"]) {
    for (const char* direction : {"forward", "backward"})
      for (Json& value : layer[direction])
        if (value.is_array()) value = at_length(value.get<std::vector<std::int64_t>>(), tokens);
    for (const char* key : {"saves", "saves_fused", "makes"})
      if (layer.contains(key))
        for (Json& value : layer[key])
          if (value.is_array()) value = at_length(value.get<std::vector<std::int64_t>>(), tokens);
    if (!layer.contains("op")) continue;
    for (const char* key : {"rows", "inputs", "outputs"})
      if (layer["op"].contains(key) && layer["op"][key].is_string()) layer["op"][key] = tokens;
  }
  for (const char* key : {"sequence", "positions"}) document.erase(key);
  return document;
}

}  // namespace ddpsim::io
