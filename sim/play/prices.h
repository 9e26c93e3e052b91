// What the collectives of a job cost, each kind of them priced once: a price walks over every link
// that the collective loads.
#pragma once

#include <map>
#include <optional>
#include <tuple>

#include "sim/collective/price.h"
#include "sim/model/program.h"

namespace ddpsim::predict {

class Prices {
 public:
  // REQUIRES: both outlive it.
  Prices(const collective::Communicator& comm, const Profile& profile, Level level)
      : comm_(comm), profile_(profile), level_(level) {
    for (const collective::Communicator& group : comm.groups)
      if (group.backend() != comm.backend()) of_hosts_ = collective::between_hosts(profile);
  }

  // Of a group of Program::groups: what its collectives are priced by.
  const Profile& profile_of(std::uint8_t group) const {
    return of_group(comm_, group).backend() == comm_.backend() ? profile_ : *of_hosts_;
  }

  // REQUIRES: op communicates.
  const collective::Price& of(const Op& op) {
    auto key = std::make_tuple(op.kind.operation, op.bytes, op.dtype, op.group);
    auto it = prices_.find(key);
    if (it == prices_.end())
      it = prices_
               .emplace(key, collective::price(collective::of_group(comm_, op.group),
                                               profile_of(op.group), level_, op.kind.operation,
                                               {op.bytes}, op.dtype))
               .first;
    return it->second;
  }

 private:
  const collective::Communicator& comm_;
  const Profile& profile_;
  std::optional<Profile> of_hosts_;  // where a group has another backend
  Level level_;
  std::map<std::tuple<Operation, std::int64_t, DType, std::uint8_t>, collective::Price> prices_;
};

}  // namespace ddpsim::predict
