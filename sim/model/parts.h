// Parts keeps the knobs of each data-parallel system in a plan, by their type: the system's folder
// alone declares and names them.
#pragma once

#include <any>
#include <map>
#include <typeindex>

namespace ddpsim {

class Parts {
 public:
  // As it was set; else as it is by default.
  template <class Part>
  const Part& get() const {
    static const Part initial{};
    const auto at = parts_.find(typeid(Part));
    return at == parts_.end() ? initial : *std::any_cast<Part>(&at->second);
  }
  template <class Part>
  Part& edit() {
    std::any& part = parts_[typeid(Part)];
    if (!part.has_value()) part = Part{};
    return *std::any_cast<Part>(&part);
  }

 private:
  std::map<std::type_index, std::any> parts_;
};

}  // namespace ddpsim
