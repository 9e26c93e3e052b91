// Strict reading of XML: each mistake is an InputError that names file and line. The only header
// that shows pugixml.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <pugixml.hpp>

#include "sim/model/error.h"
#include "sim/units/text.h"

namespace ddpsim::io {

class XmlFile {
 public:
  // Throws InputError if it is no XML, has no root of this name, or is nested deeper than 64
  // levels.
  XmlFile(const std::string& text, const std::string& file, const char* root);
  pugi::xml_node root() const { return root_; }

  [[noreturn]] void fail(pugi::xml_node at, const std::string& message) const;
  // Nothing if the attribute is absent or empty; otherwise it is a whole number, decimal or 0x...,
  // within low and high.
  std::optional<std::int64_t> integer(pugi::xml_node at, const char* name, std::int64_t low,
                                      std::int64_t high, int base = 0) const;
  std::optional<double> number(pugi::xml_node at, const char* name, double low, double high) const;
  std::string text(pugi::xml_node at, const char* name) const {
    return printable(at.attribute(name).as_string());
  }
  int line(pugi::xml_node at) const;

 private:
  std::string text_;
  std::string file_;
  pugi::xml_document document_;
  pugi::xml_node root_;
};

}  // namespace ddpsim::io
