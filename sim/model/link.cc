#include "sim/model/link.h"

namespace ddpsim {

Problem check_link(const LinkSpec& l, const std::string& path) {
  if (l.bandwidth.bits_per_s <= 0)
    return {path + "/bandwidth", "a link's bandwidth is positive, for example \"100Gb/s\""};
  if (l.bandwidth.bits_per_s < 1'000)
    return {path + "/bandwidth", "less than 1 kb/s is not a link"};
  if (l.bandwidth.bits_per_s > 1'000'000'000'000'000)
    return {path + "/bandwidth", "more than 1,000 Tb/s is not a link"};
  if (l.latency > kSecond) return {path + "/latency", "a link's latency is below a second"};
  if ((l.burst.count > 0) != (l.peak.bits_per_s > 0))
    return {path, "burst and peak make a token bucket together; give both or neither"};
  if (l.peak.bits_per_s > 0 && l.peak < l.bandwidth)
    return {path + "/peak", "the peak rate is at least the bandwidth"};
  if (l.transport.empty())
    return {path + "/transport", "a transport needs a name, one of the profile's \"transports\""};
  return {};
}

}  // namespace ddpsim
