// What the collectives of a job cost, each kind of them priced once: a price walks over every link
// that the collective loads.
#pragma once

#include <map>
#include <tuple>

#include "sim/collective/price.h"
#include "sim/model/program.h"

namespace ddpsim::predict {

class Prices {
 public:
  // REQUIRES: both outlive it.
  Prices(const collective::Communicator& comm, const Profile& profile, Level level)
      : comm_(comm), profile_(profile), level_(level) {}

  // REQUIRES: op communicates.
  const collective::Price& of(const Op& op) {
    auto key = std::make_tuple(op.kind.operation, op.bytes, op.dtype, op.group);
    auto it = prices_.find(key);
    if (it == prices_.end())
      it = prices_
               .emplace(key, collective::price(collective::of_group(comm_, op.group), profile_,
                                               level_, op.kind.operation, {op.bytes}, op.dtype))
               .first;
    return it->second;
  }

 private:
  const collective::Communicator& comm_;
  const Profile& profile_;
  Level level_;
  std::map<std::tuple<Operation, std::int64_t, DType, std::uint8_t>, collective::Price> prices_;
};

}  // namespace ddpsim::predict
