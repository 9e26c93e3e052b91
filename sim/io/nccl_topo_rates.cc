#include "sim/io/nccl_topo_rates.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/units/convert.h"

namespace ddpsim::io {
namespace {

struct PcieRate {
  const char* speed;   // as in /sys
  double gb_per_lane;  // GB/s
};
// 8b/10b, 128b/130b, and 242 of 256 bytes of a flit.
constexpr PcieRate kPcie[] = {{"2.5", 0.25},           {"5", 0.5},
                              {"8", 128.0 / 130},      {"16", 2 * 128.0 / 130},
                              {"32", 4 * 128.0 / 130}, {"64", 8 * 242.0 / 256}};
constexpr double kPcieOtherwise = 128.0 / 130;
constexpr int kWidthOtherwise = 16;
constexpr std::int64_t kMostLikelyGigabits = 1'000;  // a smaller speed was meant in Gb/s

}  // namespace

void note_once(std::vector<std::string>& notes, const std::string& text) {
  if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
}

std::string doubt_of_speed(const std::string& nic, std::int64_t speed) {
  const std::string name = "NIC " + nic.substr(0, 40);
  if (speed == kNetOtherwise)
    return name +
           " is of speed 10000 (10 Gb/s), which NCCL also writes where it does not know the speed, "
           "as of virtual machines; if it is another: --set cluster.link.bandwidth=100Gb/s";
  if (speed < kMostLikelyGigabits)
    return fmt::format("{} is of speed {}, which is of Mb/s as NCCL writes it: {} Gb/s", name,
                       speed, static_cast<double>(speed) / kMegaPerGiga);
  return {};
}

double nvlink_gb(int sm) {
  return sm >= 100 ? 50 : sm == 86 ? 14.0625 : sm >= 70 ? 25 : 20;
}

double pcie_gb(const XmlFile& xml, pugi::xml_node at, std::vector<std::string>& notes) {
  std::string speed = xml.text(at, "link_speed");
  std::string word = speed.substr(0, speed.find(' '));
  if (word.ends_with(".0")) word.resize(word.size() - 2);
  double lane = 0;
  for (const PcieRate& r : kPcie)
    if (word == r.speed) lane = r.gb_per_lane;
  if (lane == 0) {
    lane = kPcieOtherwise;
    note_once(notes, "where link_speed is not said, 8 GT/s is taken, as NCCL does");
  }
  std::int64_t width = xml.integer(at, "link_width", 0, 64).value_or(0);
  if (width == 0) {
    width = kWidthOtherwise;
    note_once(notes, "where link_width is not said, 16 lanes are taken, as NCCL does");
  }
  return lane * static_cast<double>(width);
}

double cpu_gb(const XmlFile& xml, pugi::xml_node cpu, std::vector<std::string>& notes) {
  std::string arch = xml.text(cpu, "arch");
  std::string vendor = xml.text(cpu, "vendor");
  std::int64_t family = xml.integer(cpu, "familyid", INT32_MIN, INT32_MAX).value_or(0);
  std::int64_t model = xml.integer(cpu, "modelid", INT32_MIN, INT32_MAX).value_or(0);
  if (arch == "ppc64") return 32;
  if (arch == "arm64") return 6;
  if (vendor == "AuthenticAMD") return 16;
  if (vendor == "CentaurHauls" || vendor == "  Shanghai  ")
    return family == 7 && model == 0x5b ? 9 : 6;
  if (vendor == "GenuineIntel")
    return family != 6 ? 6 : model >= 0xcf ? 40 : model >= 0x8f ? 22 : model >= 0x55 ? 10 : 6;
  note_once(notes, "where a CPU's arch and vendor are not said, 10 GB/s between CPUs are taken");
  return 10;
}

std::string cpu_make(const XmlFile& xml, pugi::xml_node cpu) {
  const std::string arch = xml.text(cpu, "arch");
  if (arch == "ppc64") return "power";
  if (arch == "arm64") return "arm";
  const std::string vendor = xml.text(cpu, "vendor");
  return vendor == "AuthenticAMD" ? "amd" : vendor == "GenuineIntel" ? "intel" : "";
}

bool same_switch(const XmlFile& xml, pugi::xml_node outer, pugi::xml_node inner) {
  auto id = [&](pugi::xml_node n, const char* name) {
    return xml.integer(n, name, 0, 0xffff, 16).value_or(0);
  };
  auto generation = [&](pugi::xml_node n, std::int64_t level) {
    if (id(n, "vendor") != 0x1000 || id(n, "subsystem_vendor") != 0x1000) return 0;
    if (id(n, "device") == 0xc010 && (id(n, "subsystem_device") & 0xf000) == 0xa000) return 4;
    if (id(n, "device") == 0xc030 && (id(n, "subsystem_device") & 0xf000) == level * 0x1000)
      return 5;
    return 0;
  };
  return generation(outer, 0) != 0 && generation(outer, 0) == generation(inner, 1);
}

}  // namespace ddpsim::io
