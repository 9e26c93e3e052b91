// descend: constants of a form that is not linear in them, from samples. Pure and deterministic.
#pragma once

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

namespace ddpsim::calib {

struct Bounded {
  double* value = nullptr;  // > 0
  double least = 0;
  double most = 0;
};

// Multiplies and divides each value by a step that shrinks, and keeps what makes `loss` smaller: a
// search without derivatives, because the loss of samples in waves has steps and kinks. Pairs of
// values go in opposite directions, too, because a rate and a share of it trade against each other.
// Ends when a step of 0.05 % helps nowhere.
inline double descend(const std::vector<Bounded>& free, const std::function<double()>& loss) {
  double best = loss();
  auto attempt = [&](std::initializer_list<std::pair<const Bounded*, double>> moves) {
    std::vector<double> before;
    bool inside = true;
    for (const auto& [b, factor] : moves) {
      before.push_back(*b->value);
      *b->value *= factor;
      inside = inside && *b->value >= b->least && *b->value <= b->most;
    }
    if (inside)
      if (double now = loss(); now < best) {
        best = now;
        return true;
      }
    std::size_t i = 0;
    for (const auto& [b, factor] : moves) *b->value = before[i++];
    return false;
  };
  for (double step = 1.6; step > 1.0005; step = std::sqrt(step))
    for (int sweep = 0; sweep < 40; ++sweep) {
      bool better = false;
      for (const Bounded& b : free) better |= attempt({{&b, step}}) || attempt({{&b, 1 / step}});
      for (std::size_t i = 0; i < free.size(); ++i)
        for (std::size_t j = i + 1; j < free.size(); ++j)
          better |= attempt({{&free[i], step}, {&free[j], 1 / step}}) ||
                    attempt({{&free[i], 1 / step}, {&free[j], step}});
      if (!better) break;
    }
  return best;
}

}  // namespace ddpsim::calib
