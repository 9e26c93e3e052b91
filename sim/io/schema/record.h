// FieldRecord says what a key of a file is, for JSON Schema, `ddpsim show fields` and references.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddpsim::io {

enum class FieldKind : std::uint8_t {
  Text,
  Truth,  // true or false
  Whole,  // a whole number
  Number,
  Count,     // a number, or coefficients of 1, the sequence length and its square
  Length,    // a whole number, or "sequence"
  Time,      // "5us"
  Size,      // "25MiB"
  Rate,      // "10Gb/s"
  Ratio,     // "2:1", or 2
  Release,   // "2.7": of other software, as text
  Choice,    // one of `choices`
  Section,   // an object with `fields`
  List,      // of what `fields` has one of
  Named,     // an object of such values, by names that the file makes up
  Repeated,  // a list of them, or of {"repeat": 95, "from": 1, "of": [them]}
  OneOf,     // as one of `fields` stands
  Any        // for people: nothing reads it
};

// The value of another key of the section decides: `key` is one of `words`, or (`none`) it is not.
struct Condition {
  std::string key;
  std::vector<std::string> words;
  bool none = false;
  bool absent = false;  // it holds where the key is not given, too
};

struct FieldRecord {
  std::string key;
  FieldKind kind = FieldKind::Text;
  std::string unit;  // of a number: "ps", "bytes/s"; "" = none
  bool required = false;
  std::optional<double> least;  // of a number
  std::optional<double> most;
  bool above = false;  // `least` is not one of them
  std::vector<std::string> choices;
  bool loose = false;                 // spelt otherwise, too, or with a number: "hybrid_shard:8"
  std::string initially;              // its default as JSON; "" = none
  std::string since = "0.1";          // release of ddpsim
  std::string help;                   // one line
  std::optional<Condition> only;      // elsewhere it is refused
  std::optional<Condition> needed;    // elsewhere it may be left out
  std::vector<std::string> together;  // keys that must be given where it is
  std::vector<FieldRecord> fields;
};

}  // namespace ddpsim::io
