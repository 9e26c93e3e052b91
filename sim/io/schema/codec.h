// Codec says how a value of a type stands in a file: how it is read, written and listed. A struct
// that has fields() stands as an object of them (fields.h).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "sim/io/codecs.h"
#include "sim/io/schema/record.h"
#include "sim/units/by.h"

namespace ddpsim::io {

// How a member of type T stands in a file. Specialised below.
template <class T>
struct Codec;

// A T for wrappers that refer to one, where fields are only listed.
template <class T>
T& nothing() {
  static T none{};
  return none;
}

// ---- spellings

struct AsPs {
  Duration& value;
};
struct AsOptionalPs {
  std::optional<Duration>& value;
};
struct AsBytes {
  Bytes& value;
};
// Whole picoseconds, 0 to a second: a latency or an overhead.
inline AsPs as_ps(Duration& d) {
  return {d};
}
inline AsOptionalPs as_ps(std::optional<Duration>& d) {
  return {d};
}
// A whole number of bytes.
inline AsBytes as_bytes(Bytes& b) {
  return {b};
}
// Whole picoseconds of a step or of a part of one.
struct AsTime {
  Duration& value;
};
inline AsTime as_time(Duration& d) {
  return {d};
}
struct AsOptionalTime {
  std::optional<Duration>& value;
};
struct AsTimes {
  std::vector<Duration>& value;
};
inline AsTimes as_times(std::vector<Duration>& d) {
  return {d};
}
// Text that is one of some words: kWords, an array of them.
template <const auto& kWords>
struct AsWord {
  std::string& value;
};

// ---- types

template <>
struct Codec<std::string> {
  static void read(const Reader& r, std::string& into) { into = r.text(); }
  static OrderedJson write(const std::string& v) { return v; }
  static void list(FieldRecord& f) { f.kind = FieldKind::Text; }
};
template <>
struct Codec<bool> {
  static void read(const Reader& r, bool& into) { into = r.boolean(); }
  static OrderedJson write(bool v) { return v; }
  static void list(FieldRecord& f) { f.kind = FieldKind::Truth; }
};
template <>
struct Codec<std::int64_t> {
  static void read(const Reader& r, std::int64_t& into) { into = r.integer(); }
  static OrderedJson write(std::int64_t v) { return v; }
  static void list(FieldRecord& f) { f.kind = FieldKind::Whole; }
};
template <>
struct Codec<int> {
  static void read(const Reader& r, int& into) { into = r.small(INT32_MIN, INT32_MAX); }
  static OrderedJson write(int v) { return v; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Whole;
    f.least = INT32_MIN;
    f.most = INT32_MAX;
  }
};
template <>
struct Codec<double> {
  static void read(const Reader& r, double& into) { into = r.number(); }
  static OrderedJson write(double v) { return v; }
  static void list(FieldRecord& f) { f.kind = FieldKind::Number; }
};
template <>
struct Codec<Duration> {
  static void read(const Reader& r, Duration& into) { into = r.duration(); }
  static OrderedJson write(Duration v) { return to_string(v); }
  static void list(FieldRecord& f) { f.kind = FieldKind::Time; }
};
template <>
struct Codec<Bytes> {
  static void read(const Reader& r, Bytes& into) { into = r.bytes(); }
  static OrderedJson write(Bytes v) { return to_string(v); }
  static void list(FieldRecord& f) { f.kind = FieldKind::Size; }
};
template <>
struct Codec<Bandwidth> {
  static void read(const Reader& r, Bandwidth& into) { into = r.bandwidth(); }
  static OrderedJson write(Bandwidth v) { return to_string(v); }
  static void list(FieldRecord& f) { f.kind = FieldKind::Rate; }
};
template <>
struct Codec<AsPs> {
  static void read(const Reader& r, AsPs into) { into.value = read_whole_ps(r); }
  static OrderedJson write(AsPs v) { return v.value.ps; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Whole;
    f.unit = "ps";
    f.least = 0;
    f.most = static_cast<double>(kSecond.ps);
  }
  static Duration read_whole_ps(const Reader& r);  // fields.cc
};
template <>
struct Codec<AsOptionalPs> {
  static void read(const Reader& r, AsOptionalPs into) {
    into.value = Codec<AsPs>::read_whole_ps(r);
  }
  static OrderedJson write(AsOptionalPs v) {
    return v.value ? OrderedJson(v.value->ps) : OrderedJson();
  }
  static void list(FieldRecord& f) { Codec<AsPs>::list(f); }
};
template <>
struct Codec<AsBytes> {
  static void read(const Reader& r, AsBytes into) { into.value = {r.integer()}; }
  static OrderedJson write(AsBytes v) { return v.value.count; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Whole;
    f.unit = "bytes";
  }
};
template <>
struct Codec<AsTime> {
  static void read(const Reader& r, AsTime into) { into.value = {r.integer()}; }
  static OrderedJson write(AsTime v) { return v.value.ps; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Whole;
    f.unit = "ps";
    f.least = 0;
  }
};
template <>
struct Codec<AsOptionalTime> {
  static void read(const Reader& r, AsOptionalTime into) { into.value = Duration{r.integer()}; }
  static OrderedJson write(AsOptionalTime v) {
    return v.value ? OrderedJson(v.value->ps) : OrderedJson();
  }
  static void list(FieldRecord& f) { Codec<AsTime>::list(f); }
};
template <>
struct Codec<AsTimes> {
  static void read(const Reader& r, AsTimes into) {
    into.value.clear();
    for (const Reader& item : r.items()) into.value.push_back({item.integer()});
  }
  static OrderedJson write(AsTimes v) {
    OrderedJson j = OrderedJson::array();
    for (Duration d : v.value) j.push_back(d.ps);
    return j;
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::List;
    Codec<AsTime>::list(f.fields.emplace_back());
  }
};
template <const auto& kWords>
struct Codec<AsWord<kWords>> {
  static void read(const Reader& r, AsWord<kWords> into) {
    const std::vector<const char*> words{std::begin(kWords), std::end(kWords)};
    into.value = words[r.choice(words)];
  }
  static OrderedJson write(AsWord<kWords> v) { return v.value; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Choice;
    f.choices.assign(std::begin(kWords), std::end(kWords));
  }
};
template <>
struct Codec<DType> {
  static void read(const Reader& r, DType& into);  // read_workload.cc
  static OrderedJson write(DType t) { return name_of(t); }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Choice;
    f.choices.assign(kDTypeNames.begin(), kDTypeNames.end());
  }
};
// An enumeration with names_of(E): a By of its words in files.
template <class E>
requires std::is_enum_v<E>
struct Codec<E> {
  static std::vector<const char*> words() {
    const auto& names = names_of(E{});
    return {names.begin(), names.end()};
  }
  static void read(const Reader& r, E& into) { into = static_cast<E>(r.choice(words())); }
  static OrderedJson write(E v) { return names_of(v)[v]; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Choice;
    for (const char* word : words()) f.choices.push_back(word);
  }
};

}  // namespace ddpsim::io
