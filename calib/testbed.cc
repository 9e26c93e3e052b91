// Star: host h's e0 <-> port p<h> of bridge b0. Racks: one bridge a rack, u<r> <-> c<r> joins it to
// the core bridge. tbf shapes what leaves an end: e0 host up, p<h> host down, u<r> rack up, c<r>
// rack down.
#include "calib/testbed.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calib/memory_file.h"

namespace ddpsim::calib {
namespace {

constexpr int kMtu = 9000;  // jumbo frames: 1 Gbit/s repeats within 0.1 %, with 1500 it does not
constexpr const char* kLimit =
    "32mb";  // of tbf's queue: more than all connections together may have under way, so lossless
constexpr int kInitialWindow =
    32;  // segments: a quarter of a megabyte, so that no connection starts slowly

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

void write_to(const std::string& path, const std::string& text) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) fail(path);
  auto n = ::write(fd, text.data(), text.size());
  ::close(fd);
  if (n != static_cast<ssize_t>(text.size())) fail(path);
}

// As write_to, for what an older kernel may lack.
void try_write(const std::string& path, const std::string& text) {
  try {
    write_to(path, text);
  } catch (const std::runtime_error&) {
  }
}

// Becomes root of a user namespace of its own unless it is root already.
void become_root() {
  if (::geteuid() == 0) return;
  auto uid = ::geteuid();
  auto gid = ::getegid();
  if (::unshare(CLONE_NEWUSER) != 0) fail("user namespaces are not allowed here");
  try_write("/proc/self/setgroups", "deny");
  write_to("/proc/self/uid_map", fmt::format("0 {} 1", uid));
  write_to("/proc/self/gid_map", fmt::format("0 {} 1", gid));
}

int new_network() {
  if (::unshare(CLONE_NEWNET) != 0) fail("a network namespace cannot be made");
  int fd =
      ::open("/proc/self/ns/net", O_RDONLY);  // inherited by ip, which reads it as /proc/self/fd/N
  if (fd < 0) fail("/proc/self/ns/net");
  return fd;
}

void join(int fd) {
  if (::setns(fd, CLONE_NEWNET) != 0) fail("a network namespace cannot be entered");
}

// Runs `program -batch -` in a namespace with `lines` on its stdin; throws with what it said.
void batch(int network, const char* program, const std::string& lines) {
  if (lines.empty()) return;
  // Files, not pipes: who is not installed reads nothing, and a pipe's writer is killed for that.
  MemoryFile in(lines);
  MemoryFile out;
  pid_t child = ::fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (network >= 0 && ::setns(network, CLONE_NEWNET) != 0) ::_exit(126);
    ::lseek(in.descriptor(), 0, SEEK_SET);
    ::dup2(in.descriptor(), 0);
    ::dup2(out.descriptor(), 1);
    ::dup2(out.descriptor(), 2);
    std::string path = std::string(std::getenv("PATH") ? std::getenv("PATH") : "") +
                       ":/usr/sbin:/sbin:/usr/bin:/bin";
    ::setenv("PATH", path.c_str(), 1);
    ::execlp(program, program, "-batch", "-", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    throw std::runtime_error(std::string(program) + " is not installed (Debian: iproute2)");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::string said = out.text();
    for (char& c : said)
      if (c == '\n') c = ' ';
    throw std::runtime_error(fmt::format("{} failed: {}", program, said.substr(0, 300)));
  }
}

std::string mac(int host) {
  return fmt::format("02:dd:00:00:{:02x}:{:02x}", host >> 8, host & 255);
}

std::string tbf(const std::string& device, const LinkSpec& l) {
  return fmt::format("qdisc add dev {} root tbf rate {}bit burst {} limit {}\n", device,
                     l.bandwidth.bits_per_s, l.burst.count, kLimit);
}

void quiet_network() {
  try_write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
  try_write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
}

void tune_host() {
  quiet_network();
  // reno repeats within 0.2 %; bbr, the default of some machines, does not.
  write_to("/proc/sys/net/ipv4/tcp_congestion_control", "reno");
  write_to("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0");
  write_to("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
  // No tail loss probes: a burst that waits in a slow link's queue looks lost to them, and is sent
  // again.
  write_to("/proc/sys/net/ipv4/tcp_early_retrans", "0");
  // Room for the largest message, so that no window closes: opening it again takes an
  // acknowledgement, which waits behind the receiver's own data.
  write_to("/proc/sys/net/ipv4/tcp_rmem", "4096 134217728 134217728");
  // What one connection may have under way: more than any link's bandwidth x delay and burst, and
  // the same for all, so that a shared link is shared evenly.
  write_to("/proc/sys/net/ipv4/tcp_wmem", "4096 800000 800000");
  // And how much of that may wait in the host's own queue: acknowledgements wait there behind it.
  // With the default (4 MB) a slow host's incoming data ran dry while its outgoing data kept their
  // acknowledgements back.
  write_to("/proc/sys/net/ipv4/tcp_limit_output_bytes", "131072");
}

}  // namespace

Problem emulation_problem(const Cluster& c) {
  if (c.pattern != Pattern::Star && c.pattern != Pattern::Racks)
    return {"/pattern", "hosts are made for patterns star and racks"};
  if (c.hosts > 64) return {"/hosts", "at most 64 hosts on one machine"};
  if (c.devices_per_host != 1 || c.nics_per_host != 1)
    return {"/devices_per_host", "an emulated host has one device and one NIC"};
  std::vector<std::pair<std::string, const LinkSpec*>> links{{"/link", &c.link}};
  if (c.pattern == Pattern::Racks) links.push_back({"/uplink", &c.uplink});
  for (const auto& [path, l] : links) {
    if (l->latency.ps > 0)
      return {path + "/latency",
              "the kernel's shaper adds no latency; leave it out, the profile has the hosts' own"};
    if (l->burst.count < 128 * 1024)
      return {path + "/burst",
              "a shaped link is a token bucket of at least 128KiB (two of the kernel's largest "
              "packets: with one, it loses tokens): give burst and peak, the rate at which a burst "
              "passes"};
    if (l->bandwidth.bits_per_s < 1'000'000) return {path + "/bandwidth", "at least 1 Mb/s"};
  }
  return {};
}

std::string privilege_problem() {
  int out[2];
  if (::pipe(out) != 0) return "no pipe";
  pid_t child = ::fork();
  if (child < 0) return "no process can be started";
  if (child == 0) {
    std::string why;
    try {
      become_root();
      new_network();
      batch(-1, "ip", "link add t0 type veth peer name t1\n");
      batch(-1, "tc", "qdisc add dev t0 root tbf rate 1gbit burst 131072 limit 32mb\n");
      batch(-1, "ip", "link add tb type bridge\n");
      tune_host();
    } catch (const std::exception& e) {
      why = e.what();
    }
    (void)!::write(out[1], why.data(), why.size());
    ::_exit(0);
  }
  ::close(out[1]);
  std::string why;
  char block[256];
  for (ssize_t n; (n = ::read(out[0], block, sizeof block)) > 0;)
    why.append(block, static_cast<std::size_t>(n));
  ::close(out[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (why.empty() && !WIFEXITED(status)) return "what tries to make hosts was killed";
  return why;
}

std::string Testbed::address(int host) {
  return fmt::format("10.213.{}.{}", host / 200, host % 200 + 1);
}

TestbedScript testbed_script(const Cluster& c, const std::vector<std::string>& netns) {
  TestbedScript s;
  int racks = c.pattern == Pattern::Racks ? c.racks : 1;
  int per_rack = (c.hosts + racks - 1) / racks;
  auto up = [&](const std::string& device) {
    s.ip_switch += fmt::format("link set {} mtu {} up\n", device, kMtu);
  };
  for (int r = 0; r < racks; ++r) {
    s.ip_switch += fmt::format("link add b{} type bridge\n", r);
    up(fmt::format("b{}", r));
  }
  if (c.pattern == Pattern::Racks) {
    s.ip_switch += "link add core type bridge\n";
    up("core");
    for (int r = 0; r < racks; ++r) {
      s.ip_switch += fmt::format(
          "link add u{0} type veth peer name c{0}\nlink set u{0} master b{0}\nlink set c{0} master "
          "core\n",
          r);
      up(fmt::format("u{}", r));
      up(fmt::format("c{}", r));
      s.tc_switch += tbf(fmt::format("u{}", r), c.uplink) + tbf(fmt::format("c{}", r), c.uplink);
    }
  }
  for (int h = 0; h < c.hosts; ++h) {
    LinkSpec link = c.link;
    for (const SlowLink& slow : c.slow_links)
      if (slow.host == HostId::at(h)) link.bandwidth = slow.bandwidth;
    std::string port = fmt::format("p{}", h);
    s.ip_switch += fmt::format(
        "link add {} type veth peer name e0 address {} netns {}\nlink set {} master b{}\n", port,
        mac(h), netns[h], port, h / per_rack);
    up(port);
    s.tc_switch += tbf(port, link);
    std::string ip = fmt::format("link set lo up\nlink set e0 mtu {} up\naddr add {}/16 dev e0\n",
                                 kMtu, Testbed::address(h));
    ip += fmt::format(
        "route change 10.213.0.0/16 dev e0 proto kernel scope link src {} initcwnd {} initrwnd "
        "{}\n",
        Testbed::address(h), kInitialWindow, kInitialWindow);
    for (int other = 0; other < c.hosts; ++other)
      if (other != h)
        ip += fmt::format("neigh add {} lladdr {} dev e0 nud permanent\n", Testbed::address(other),
                          mac(other));
    s.ip_host.push_back(std::move(ip));
    s.tc_host.push_back(tbf("e0", link));
  }
  return s;
}

Testbed::Testbed(const Cluster& c) {
  become_root();
  std::vector<std::string> paths;
  for (int h = 0; h < c.hosts; ++h) {
    hosts_.push_back(new_network());
    paths.push_back(fmt::format("/proc/self/fd/{}", hosts_.back()));
    tune_host();
  }
  switch_ = new_network();
  quiet_network();
  TestbedScript s = testbed_script(c, paths);
  batch(switch_, "ip", s.ip_switch);
  batch(switch_, "tc", s.tc_switch);
  for (std::size_t h = 0; h < hosts_.size(); ++h) {
    batch(hosts_[h], "ip", s.ip_host[h]);
    batch(hosts_[h], "tc", s.tc_host[h]);
  }
}

Testbed::~Testbed() {
  for (int fd : hosts_) ::close(fd);
  if (switch_ >= 0) ::close(switch_);
}

void Testbed::enter(int host) const {
  join(hosts_[host]);
}

}  // namespace ddpsim::calib
