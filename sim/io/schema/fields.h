// A section of a file is declared once: a function template
//
//   template <class V> void fields(V& v, LinkSpec& l) {
//     v.required("bandwidth", l.bandwidth, "of the link, in each direction");
//     v.field("latency", l.latency, "of a message, without its bytes");
//   }
//
// that visitors walk: ReadFields reads it strictly, WriteFields writes it, ListFields says what it
// is (record.h). A member's C++ type says how it stands in the file; as_ps() and others say it
// where that is not the usual way. Keys are written in the order in which they are declared.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/io/schema/codec.h"

namespace ddpsim::io {

// ---- conditions

// `where("pattern", "fat_tree", "ring")`: the key belongs to files in which "pattern" is one of
// these; `unless(...)`: to all others. say() has the refusal in other words.
struct Where {
  const char* key = nullptr;
  std::array<const char*, 8> words{};
  bool none = false;
  const char* sentence = nullptr;
  Where say(const char* text) const {
    Where out = *this;
    out.sentence = text;
    return out;
  }
  bool holds(const Reader& r) const;
  [[noreturn]] void refuse(const Reader& r, const char* own) const;
  std::optional<Condition> record() const;
};
template <class... Word>
Where where(const char* key, Word... words) {
  return {key, {words...}, false};
}
template <class... Word>
Where unless(const char* key, Word... words) {
  return {key, {words...}, true};
}

// ---- visitors

class ListFields {
 public:
  class Handle {
   public:
    explicit Handle(FieldRecord& f) : f_(f) {}
    Handle& unit(const char* u) { return f_.unit = u, *this; }
    Handle& since(const char* release) { return f_.since = release, *this; }
    Handle& range(double least, double most, const char* = nullptr) {
      return f_.least = least, f_.most = most, *this;
    }
    Handle& at_least(double least, const char* = nullptr) { return f_.least = least, *this; }
    Handle& positive(const char* = "") { return f_.least = 0, f_.above = true, *this; }
    Handle& must(bool, const char*) { return *this; }
    Handle& needed(const Where& w) { return f_.needed = w.record(), *this; }
    Handle& with(const char* other) { return f_.together.push_back(other), *this; }
    Handle& always() { return *this; }
    Handle& required() { return f_.required = true, *this; }  // of what something else reads

   private:
    FieldRecord& f_;
  };
  template <class T>
  Handle required(const char* key, T&&, const char* help, const Where& only = {}) {
    FieldRecord& f = add<T>(key, help, only);
    f.required = !only.key;
    if (only.key) f.needed = f.only;
    return Handle(f);
  }
  template <class T>
  Handle field(const char* key, T&& member, const char* help, const Where& only = {}) {
    FieldRecord& f = add<T>(key, help, only);
    if (const OrderedJson j = Codec<std::remove_cvref_t<T>>::write(member); !j.is_null())
      f.initially = j.dump();
    return Handle(f);
  }
  // A section of the same struct: `body` walks it. `present`: it is written.
  template <class Body>
  Handle section(const char* key, bool required, const char* help, Body body, bool = true,
                 const Where& only = {}) {
    FieldRecord& f = named(key, help, only);
    f.kind = FieldKind::Section;
    f.required = required && !only.key;
    if (required) f.needed = f.only;
    ListFields inner;
    body(inner);
    f.fields = std::move(inner.found);
    return Handle(f);
  }
  // A key that something else reads, or nobody.
  Handle other(const char* key, FieldKind kind, const char* help, const Where& only = {}) {
    FieldRecord& f = named(key, help, only);
    f.kind = kind;
    return Handle(f);
  }
  // A key that something else reads, as a T.
  template <class T>
  Handle elsewhere(const char* key, const char* help, const Where& only = {}) {
    return Handle(add<T>(key, help, only));
  }
  // The same, written as what make() returns, an optional.
  template <class Make>
  Handle elsewhere(const char* key, Make make, const char* help) {
    return elsewhere<typename decltype(make())::value_type>(key, help);
  }
  void schema(const char* name);
  std::vector<FieldRecord> found;

 private:
  FieldRecord& named(const char* key, const char* help, const Where& only) {
    FieldRecord& f = found.emplace_back();
    f.key = key;
    f.help = help;
    f.only = only.record();
    return f;
  }
  template <class T>
  FieldRecord& add(const char* key, const char* help, const Where& only) {
    FieldRecord& f = named(key, help, only);
    Codec<std::remove_cvref_t<T>>::list(f);
    return f;
  }
};

// The fields that fields() declares, with a T's initial values.
template <class T>
const std::vector<FieldRecord>& fields_of() {
  static const std::vector<FieldRecord> all = [] {
    T made{};
    ListFields v;
    fields(v, made);
    return std::move(v.found);
  }();
  return all;
}

// The handle of a visitor that checks nothing.
class Silent {
 public:
  Silent() = default;
  // `left_out`: the value of a key that is not written in `out`.
  Silent(OrderedJson& out, const char* key, OrderedJson left_out)
      : out_(&out), key_(key), left_out_(std::move(left_out)) {}
  Silent& unit(const char*) { return *this; }
  Silent& since(const char*) { return *this; }
  Silent& range(double, double, const char* = nullptr) { return *this; }
  Silent& at_least(double, const char* = nullptr) { return *this; }
  Silent& positive(const char* = "") { return *this; }
  Silent& must(bool, const char*) { return *this; }
  Silent& needed(const Where&) { return *this; }
  Silent& with(const char*) { return *this; }
  Silent& required() { return *this; }
  // The key is written even where it has its default.
  Silent& always() {
    if (out_ && !left_out_.is_null()) (*out_)[key_] = left_out_;
    return *this;
  }

 private:
  OrderedJson* out_ = nullptr;
  const char* key_ = nullptr;
  OrderedJson left_out_;
};

// Keys alone.
class KeysOfFields {
 public:
  template <class T>
  Silent required(const char* key, T&&, const char*, const Where& = {}) {
    return keys.push_back(key), Silent();
  }
  template <class T>
  Silent field(const char* key, T&&, const char*, const Where& = {}) {
    return keys.push_back(key), Silent();
  }
  template <class Body>
  Silent section(const char* key, bool, const char*, Body, bool = true, const Where& = {}) {
    return keys.push_back(key), Silent();
  }
  Silent other(const char* key, FieldKind, const char*, const Where& = {}) {
    return keys.push_back(key), Silent();
  }
  template <class T>
  Silent elsewhere(const char* key, const char*, const Where& = {}) {
    return keys.push_back(key), Silent();
  }
  template <class Make>
  Silent elsewhere(const char* key, Make, const char*) {
    return keys.push_back(key), Silent();
  }
  void schema(const char*) {
    keys.push_back("$schema");
    keys.push_back("schema");
  }
  std::vector<const char*> keys;
};
template <class T>
const std::vector<const char*>& keys_of() {
  static const std::vector<const char*> all = [] {
    T made{};
    KeysOfFields v;
    fields(v, made);
    return std::move(v.keys);
  }();
  return all;
}

class ReadFields {
 public:
  explicit ReadFields(const Reader& r) : r_(r) {}
  class Handle {
   public:
    Handle(const Reader& r, const char* key, std::optional<double> number)
        : r_(r), key_(key), number_(number) {}
    Handle& unit(const char*) { return *this; }
    Handle& since(const char*) { return *this; }
    Handle& range(double least, double most, const char* sentence = nullptr);
    Handle& at_least(double least, const char* sentence = nullptr);
    Handle& positive(const char* sentence) { return must(!number_ || *number_ > 0, sentence); }
    // Asked of a key that is given only.
    Handle& must(bool holds, const char* sentence) {
      if (!holds && r_.has(key_)) r_.at(key_).fail(sentence);
      return *this;
    }
    Handle& needed(const Where& w) {
      if (!r_.has(key_) && w.holds(r_)) r_.at(key_);
      return *this;
    }
    Handle& with(const char* other) {
      if (r_.has(key_) && !r_.has(other)) r_.at(other);
      return *this;
    }
    Handle& always() { return *this; }
    Handle& required() {
      if (!r_.has(key_)) r_.at(key_);
      return *this;
    }

   private:
    const Reader& r_;
    const char* key_;
    std::optional<double> number_;
  };
  template <class T>
  Handle required(const char* key, T&& member, const char*, const Where& only = {}) {
    return allowed(key, only) ? read(key, member) : Handle(r_, key, {});
  }
  template <class T>
  Handle field(const char* key, T&& member, const char*, const Where& only = {}) {
    allowed(key, only);
    return r_.has(key) ? read(key, member) : Handle(r_, key, {});
  }
  template <class Body>
  Handle section(const char* key, bool required, const char*, Body body, bool = true,
                 const Where& only = {}) {
    if (allowed(key, only) && (required || r_.has(key))) {
      const Reader at = r_.at(key);
      KeysOfFields known;
      body(known);
      at.only(known.keys);
      ReadFields inner(at);
      body(inner);
    }
    return Handle(r_, key, {});
  }
  Handle other(const char* key, FieldKind, const char*, const Where& only = {}) {
    allowed(key, only);
    return Handle(r_, key, {});
  }
  template <class T>
  Handle elsewhere(const char* key, const char*, const Where& only = {}) {
    allowed(key, only);
    return Handle(r_, key, {});
  }
  template <class Make>
  Handle elsewhere(const char* key, Make, const char*) {
    return Handle(r_, key, {});
  }
  void schema(const char* name) { r_.schema(name); }

 private:
  // Whether the key may be given here. Throws where it is, and may not.
  bool allowed(const char* key, const Where& only) const {
    if (!only.key || only.holds(r_)) return true;
    if (r_.has(key)) only.refuse(r_, key);
    return false;
  }
  template <class T>
  Handle read(const char* key, T& member) {
    const Reader at = r_.at(key);
    Codec<std::remove_cvref_t<T>>::read(at, member);
    std::optional<double> number;
    if (at.json().is_number()) number = at.json().get<double>();
    return Handle(r_, key, number);
  }
  const Reader& r_;
};

class WriteFields {
 public:
  using Handle = Silent;
  // `left_out`: what an optional key is worth where it is not written.
  explicit WriteFields(const std::vector<FieldRecord>& left_out) : left_out_(left_out) {}
  template <class T>
  Handle required(const char* key, T&& member, const char*, const Where& only = {}) {
    const FieldRecord& f = next();
    if (!only.key || written(*f.only)) out[key] = Codec<std::remove_cvref_t<T>>::write(member);
    return {};
  }
  template <class T>
  Handle field(const char* key, T&& member, const char*, const Where& only = {}) {
    const FieldRecord& f = next();
    if (only.key && !written(*f.only)) return {};
    OrderedJson j = Codec<std::remove_cvref_t<T>>::write(member);
    if (j.is_null() || dumps_to(j, f.initially)) return {out, key, std::move(j)};
    out[key] = std::move(j);
    return {};
  }
  template <class Body>
  Handle section(const char* key, bool, const char*, Body body, bool present = true,
                 const Where& only = {}) {
    const FieldRecord& f = next();
    WriteFields inner(f.fields);
    body(inner);
    if (present && (!only.key || written(*f.only))) out[key] = std::move(inner.out);
    return {};
  }
  Handle other(const char*, FieldKind, const char*, const Where& = {}) {
    next();
    return {};
  }
  template <class T>
  Handle elsewhere(const char* key, const char*, const Where& = {}) {
    return other(key, FieldKind::Any, "");
  }
  template <class Make>
  Handle elsewhere(const char* key, Make make, const char*) {
    next();
    if (const auto value = make())
      out[key] = Codec<typename decltype(make())::value_type>::write(*value);
    return {};
  }
  void schema(const char* name) {
    at_ += 2;
    out["schema"] = name;
  }
  OrderedJson out = OrderedJson::object();

 private:
  const FieldRecord& next() { return left_out_[at_++]; }
  bool written(const Condition& c) const;  // what it asks for
  static bool dumps_to(const OrderedJson& j, const std::string& text);
  const std::vector<FieldRecord>& left_out_;
  std::size_t at_ = 0;
};

// REQUIRES of the file: an object with no other keys than fields() declares.
template <class T>
void read_fields(const Reader& r, T& into) {
  r.only(keys_of<T>());
  ReadFields v(r);
  fields(v, into);
}
// The same of a whole file, which says in "schema" what it is: `name`, as fields() does.
template <class T>
void read_file_fields(const Reader& r, T& into, const char* name) {
  r.schema(name);
  read_fields(r, into);
}
template <class T>
OrderedJson write_fields(const T& from) {
  WriteFields v(fields_of<T>());
  fields(v, const_cast<T&>(from));  // a writer changes nothing
  return std::move(v.out);
}

// ---- structs and containers

template <class T>
struct Codec {  // a struct with fields()
  static void read(const Reader& r, T& into) { read_fields(r, into); }
  static OrderedJson write(const T& from) { return write_fields(from); }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Section;
    f.fields = fields_of<T>();
  }
};
template <class T>
struct Codec<std::optional<T>> {
  static void read(const Reader& r, std::optional<T>& into) { Codec<T>::read(r, into.emplace()); }
  static OrderedJson write(const std::optional<T>& v) {
    return v ? Codec<T>::write(*v) : OrderedJson();
  }
  static void list(FieldRecord& f) { Codec<T>::list(f); }
};
template <class T>
struct Codec<std::vector<T>> {
  static void read(const Reader& r, std::vector<T>& into) {
    into.clear();
    for (const Reader& item : r.items()) Codec<T>::read(item, into.emplace_back());
  }
  static OrderedJson write(const std::vector<T>& v) {
    OrderedJson j = OrderedJson::array();
    for (const T& item : v) j.push_back(Codec<T>::write(item));
    return j;
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::List;
    Codec<T>::list(f.fields.emplace_back());
  }
};
template <class T>
struct Codec<std::map<std::string, T>> {
  static void read(const Reader& r, std::map<std::string, T>& into) {
    for (const auto& [name, member] : r.members()) Codec<T>::read(member, into[name]);
  }
  static OrderedJson write(const std::map<std::string, T>& v) {
    OrderedJson j = OrderedJson::object();
    for (const auto& [name, member] : v) j[name] = Codec<T>::write(member);
    return j;
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Named;
    Codec<T>::list(f.fields.emplace_back());
  }
};
}  // namespace ddpsim::io
