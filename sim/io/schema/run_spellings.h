// How members of a Run stand in its file.
#pragma once

#include <algorithm>

#include "sim/io/schema/fields.h"
#include "sim/model/run.h"

namespace ddpsim::io {

// Eleven days: sums and differences of a few of them are in range.
inline constexpr std::int64_t kMostOfRun = 1'000'000'000'000'000'000;

// A whole number from 0 to kMostOfRun, or a list of them; refusals call it kWhat.
template <const char* kWhat, class T>
struct Counted {
  T& value;
};
inline constexpr char kADuration[] = "a duration";
inline constexpr char kABucketsBytes[] = "a bucket's bytes";
inline constexpr char kANumberOfBytes[] = "a number of bytes";
inline constexpr char kANumberOfSegments[] = "a number of segments";
inline std::int64_t read_count(const Reader& r, const char* what) {
  const std::int64_t n = r.integer();
  if (n < 0) r.fail(std::string(what) + " is not negative");
  if (n > kMostOfRun) r.fail(std::string(what) + " is at most 10^18");
  return n;
}
template <const char* kWhat, class T>
struct Codec<Counted<kWhat, T>> {
  static std::int64_t& number(std::int64_t& n) { return n; }
  static std::int64_t& number(Duration& d) { return d.ps; }
  static void read(const Reader& r, Counted<kWhat, T> into) {
    number(into.value) = read_count(r, kWhat);
  }
  static OrderedJson write(Counted<kWhat, T> v) { return number(v.value); }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Whole;
    f.least = 0;
    if (std::is_same_v<T, Duration>) f.unit = "ps";
  }
};
template <const char* kWhat, class T>
struct Codec<Counted<kWhat, std::vector<T>>> {
  using One = Counted<kWhat, T>;
  static void read(const Reader& r, Counted<kWhat, std::vector<T>> into) {
    into.value.clear();
    for (const Reader& item : r.items()) Codec<One>::read(item, One{into.value.emplace_back()});
  }
  static OrderedJson write(Counted<kWhat, std::vector<T>> v) {
    OrderedJson j = OrderedJson::array();
    for (T& one : v.value) j.push_back(Codec<One>::write(One{one}));
    return j;
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::List;
    Codec<One>::list(f.fields.emplace_back());
  }
};
template <class T>
Counted<kADuration, T> lasting(T& durations) {
  return {durations};
}

// Picoseconds from the start of the span's own step; they may be negative.
struct AsMoment {
  TimePoint& value;
  TimePoint& from;
};
template <>
struct Codec<AsMoment> {
  static void read(const Reader& r, AsMoment into) {
    const std::int64_t ps = r.integer();
    if (ps < -kMostOfRun || ps > kMostOfRun) r.fail("is more than eleven days away");
    into.value = {ps};
  }
  static OrderedJson write(AsMoment v) { return (v.value - v.from).ps; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Whole;
    f.unit = "ps";
  }
};

struct AsHash {
  std::string& value;
};
template <>
struct Codec<AsHash> {
  static void read(const Reader& r, AsHash into) {
    into.value = r.text();
    if (into.value.size() != 16 ||
        into.value.find_first_not_of("0123456789abcdef") != std::string::npos)
      r.fail("a content hash is 16 hexadecimal digits, found \"" + into.value.substr(0, 40) + "\"");
  }
  static OrderedJson write(AsHash v) { return v.value; }
  static void list(FieldRecord& f) { f.kind = FieldKind::Text; }
};

// One of kWords, or "".
template <const auto& kWords>
struct AsWordIfAny {
  std::string& value;
};
template <const auto& kWords>
struct Codec<AsWordIfAny<kWords>> {
  static void read(const Reader& r, AsWordIfAny<kWords> into) {
    const std::string t = into.value = r.text();
    const std::vector<std::string> known(std::begin(kWords), std::end(kWords));
    if (t.empty() || std::find(known.begin(), known.end(), t) != known.end()) return;
    std::string list;
    for (const std::string& w : known) list += (list.empty() ? "" : ", ") + w;
    const std::string hint = nearest(t, known);
    r.fail("\"" + t.substr(0, 40) + "\" is none of " + list +
           (hint.empty() ? "" : " (did you mean \"" + hint + "\"?)"));
  }
  static OrderedJson write(AsWordIfAny<kWords> v) { return v.value; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Choice;
    f.choices.assign(std::begin(kWords), std::end(kWords));
    f.choices.insert(f.choices.begin(), "");
  }
};

struct AsTensorIndices {
  std::vector<TensorIndex>& value;
};
template <>
struct Codec<AsTensorIndices> {
  static void read(const Reader& r, AsTensorIndices into) {
    into.value.clear();
    for (const Reader& t : r.items())
      into.value.push_back(static_cast<TensorIndex>(t.small(0, INT32_MAX)));
  }
  static OrderedJson write(AsTensorIndices v) { return v.value; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::List;
    FieldRecord& one = f.fields.emplace_back();
    one.kind = FieldKind::Whole;
    one.least = 0;
    one.most = INT32_MAX;
  }
};

// A lane, or a stream of the Run's own.
struct AsLane {
  Lane& value;
  const std::vector<std::string>& streams;
};
template <>
struct Codec<AsLane> {
  static void read(const Reader& r, AsLane into) {
    const auto own = std::find(into.streams.begin(), into.streams.end(), r.text());
    into.value =
        own != into.streams.end()
            ? stream(static_cast<std::size_t>(own - into.streams.begin()))
            : static_cast<Lane>(r.choice({"host", "compute", "comm", "worker", "callback"}));
  }
  static OrderedJson write(AsLane v) { return name_of(v.value, v.streams); }
  static void list(FieldRecord& f) { f.kind = FieldKind::Text; }
};

// Reads what keys of a T do not say by themselves.
template <class T>
void finish(const Reader&, const Run&, T&) {}
void finish(const Reader& r, const Run& run, Span& s);  // read_run.cc

// A T of the Run, which has other keys in a measured Run than in a predicted one.
template <class T, RunKind kKind>
struct OfKind {
  Run& run = nothing<Run>();
  T& value = nothing<T>();
};
template <class T>
struct ByKind {
  Run& run;
  T& value;
};
template <class T>
struct Codec<ByKind<T>> {
  template <class Act>
  static auto with(ByKind<T> v, Act act) {
    OfKind<T, RunKind::Measured> measured{v.run, v.value};
    OfKind<T, RunKind::Predicted> predicted{v.run, v.value};
    return v.run.kind == RunKind::Measured ? act(measured) : act(predicted);
  }
  static void read(const Reader& r, ByKind<T> into) {
    with(into, [&](auto& v) { read_fields(r, v); });
    finish(r, into.run, into.value);
  }
  static OrderedJson write(ByKind<T> v) {
    return with(v, [](auto& of) { return write_fields(of); });
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::OneOf;
    f.fields.resize(2);
    Codec<OfKind<T, RunKind::Measured>>::list(f.fields[0]);
    Codec<OfKind<T, RunKind::Predicted>>::list(f.fields[1]);
  }
};
template <class T>
struct AllByKind {
  Run& run;
  std::vector<T>& values;
};
template <class T>
struct Codec<AllByKind<T>> {
  static void read(const Reader& r, AllByKind<T> into) {
    into.values.clear();
    for (const Reader& item : r.items())
      Codec<ByKind<T>>::read(item, {into.run, into.values.emplace_back()});
  }
  static OrderedJson write(AllByKind<T> v) {
    OrderedJson j = OrderedJson::array();
    for (T& one : v.values) j.push_back(Codec<ByKind<T>>::write({v.run, one}));
    return j;
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::List;
    Codec<ByKind<T>>::list(f.fields.emplace_back());
  }
};

}  // namespace ddpsim::io
