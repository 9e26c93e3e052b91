#include "sim/model/ids.h"

#include <type_traits>

#include <gtest/gtest.h>

#include "sim/topology/fabric.h"
#include "tests/support/support.h"

namespace ddpsim {
namespace {

// Neither becomes the other or a number by itself, so that no table of ranks takes a device.
static_assert(!std::is_convertible_v<DeviceId, int> && !std::is_convertible_v<HostId, int>);
static_assert(!std::is_constructible_v<DeviceId, HostId> &&
              !std::is_constructible_v<HostId, DeviceId>);

TEST(Ids, DevicesAreNumberedHostByHost) {
  Cluster c = test::cluster("hgx-h100");
  c.hosts = 3;
  const topology::Fabric f(c);
  std::vector<DeviceId> all;
  for (HostId h : each<HostId>(c.hosts))
    for (DeviceId d : f.devices_of(h)) {
      EXPECT_EQ(f.host_of(d), h);
      EXPECT_EQ(f.device_of(h, f.local_of(d)), d);
      all.push_back(d);
    }
  EXPECT_EQ(all, first_devices(24));
  EXPECT_EQ(to_string(all.back()), "23");
  EXPECT_TRUE(all.back().among(24));
  EXPECT_FALSE(all.back().among(23));
  EXPECT_FALSE(DeviceId::at(-1).among(24));
}

TEST(Ids, RanksAreOnOneHostWhateverTheirOrder) {
  Cluster c = test::cluster("hgx-h100");
  c.hosts = 2;
  const topology::Fabric f(c);
  EXPECT_TRUE(topology::on_one_host(f, {8}));
  EXPECT_TRUE(topology::on_one_host(f, {15, 8, 9}));
  EXPECT_FALSE(topology::on_one_host(f, {0, 7, 8}));
  EXPECT_FALSE(topology::on_one_host(f, {8, 7}));
}

}  // namespace
}  // namespace ddpsim
