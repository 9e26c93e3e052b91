// Places in a cluster: a host, and a device. Devices are numbered host by host. A rank is none of
// them: it is a position in a list of devices, and has another number for each group it is in.
#pragma once

#include <compare>
#include <string>
#include <vector>

namespace ddpsim {

// Only a constant is a place by itself; a number of the run time is made one by `at`.
template <class Kind>
struct PlaceId {
  int number = 0;

  constexpr PlaceId() = default;
  consteval PlaceId(int n) : number(n) {}
  static constexpr PlaceId at(int n) {
    PlaceId p;
    p.number = n;
    return p;
  }
  constexpr PlaceId& operator++() {
    ++number;
    return *this;
  }
  // One of the first `count`.
  constexpr bool among(int count) const { return number >= 0 && number < count; }
  friend std::string to_string(PlaceId p) { return std::to_string(p.number); }
  friend constexpr auto operator<=>(PlaceId, PlaceId) = default;
  friend constexpr bool operator==(PlaceId, PlaceId) = default;
};

using HostId = PlaceId<struct OfHosts>;
using DeviceId = PlaceId<struct OfDevices>;

// `count` places from `first`, to be gone through.
template <class P>
struct Places {
  struct Iterator {
    P at;
    constexpr P operator*() const { return at; }
    constexpr Iterator& operator++() {
      ++at;
      return *this;
    }
    friend constexpr bool operator==(Iterator, Iterator) = default;
  };
  P first;
  int count = 0;
  constexpr Iterator begin() const { return {first}; }
  constexpr Iterator end() const { return {P::at(first.number + count)}; }
};
template <class P>
constexpr Places<P> each(int count) {
  return {P{}, count};
}

// The first devices of a cluster, in order.
inline std::vector<DeviceId> first_devices(int count) {
  std::vector<DeviceId> out;
  out.reserve(count);
  for (DeviceId d : each<DeviceId>(count)) out.push_back(d);
  return out;
}

}  // namespace ddpsim
