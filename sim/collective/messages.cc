#include "sim/collective/messages.h"

#include <algorithm>

#include "sim/collective/message_tasks.h"

namespace ddpsim::collective {

using engine::TaskGraph;
using engine::TaskId;

std::vector<TaskId> join(TaskGraph& g, const std::vector<std::vector<TaskId>>& parts) {
  std::vector<TaskId> out;
  for (const auto& list : parts) {
    TaskId t = g.add_fixed({});
    for (std::size_t i = 0; i < list.size(); ++i)
      if (std::find(list.begin(), list.begin() + i, list[i]) == list.begin() + i)
        g.add_edge(list[i], t);
    out.push_back(t);
  }
  return out;
}

std::vector<TaskId> add_messages(const Communicator& c, const MessagePlay& play) {
  return std::visit(
      [&](const auto& l) {
        if constexpr (requires { l.add_messages(c, play); })
          if (c.ranks() > 1 && play.size.count > 0) return l.add_messages(c, play);
        return launched(play.graph, launch_time(c, play.profile), play.arrive);
      },
      c.library);
}

}  // namespace ddpsim::collective
