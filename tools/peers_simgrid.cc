// RING of tools/peers in SimGrid: an actor per host, a message per host and step. Not part of the
// build: tools/peers compiles it where libsimgrid-dev is installed.
//   peers_simgrid HOSTS BYTES BYTES_PER_SECOND LATENCY_SECONDS
// prints a JSON object: version, simulated seconds, and the wall time from the first link to the
// last message.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>
#include <simgrid/version.h>

namespace s4u = simgrid::s4u;

namespace {

// 2(n-1) times: send a part to the next host, receive one of the host before.
void ring(s4u::Mailbox* mine, s4u::Mailbox* next, int steps, std::uint64_t bytes) {
  int part = 0;
  for (int step = 0; step < steps; ++step) {
    s4u::CommPtr sent = next->put_async(&part, bytes);
    mine->get<int>();
    sent->wait();
  }
}

// Each host by a link of its own, both ways at once, to a switch that takes no time.
std::vector<s4u::Host*> star(int hosts, double bandwidth, double latency) {
  s4u::NetZone* zone = s4u::create_star_zone("star");
  std::vector<s4u::Host*> made;
  for (int i = 0; i < hosts; ++i) {
    std::string name = "host" + std::to_string(i);
    made.push_back(zone->create_host(name, 1e9)->seal());
    const s4u::SplitDuplexLink* link = zone->create_split_duplex_link(name, bandwidth);
    link->get_link_up()->set_latency(latency / 2)->seal();
    link->get_link_down()->set_latency(latency / 2)->seal();
    zone->add_route(made.back()->get_netpoint(), nullptr, nullptr, nullptr,
                    {{link, s4u::LinkInRoute::Direction::UP}}, true);
  }
  zone->seal();
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  s4u::Engine engine(&argc, argv);
  if (argc != 5) {
    std::fprintf(stderr, "peers_simgrid HOSTS BYTES BYTES_PER_SECOND LATENCY_SECONDS\n");
    return 2;
  }
  int n = std::atoi(argv[1]);
  // Without these its model of TCP adds latency and other traffic to each message.
  for (const char* setting :
       {"network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0"})
    s4u::Engine::set_config(setting);

  auto begin = std::chrono::steady_clock::now();
  std::vector<s4u::Host*> hosts = star(n, std::atof(argv[3]), std::atof(argv[4]));
  auto bytes = static_cast<std::uint64_t>(std::atof(argv[2]) / n + 0.5);
  for (int i = 0; i < n; ++i)
    s4u::Actor::create("rank", hosts[i], ring, s4u::Mailbox::by_name(std::to_string(i)),
                       s4u::Mailbox::by_name(std::to_string((i + 1) % n)), 2 * (n - 1), bytes);
  engine.run();
  std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  std::printf("{\"version\": \"%d.%d\", \"simulated_s\": %.12g, \"wall_s\": %.9g}\n",
              SIMGRID_VERSION_MAJOR, SIMGRID_VERSION_MINOR, s4u::Engine::get_clock(), wall.count());
}
