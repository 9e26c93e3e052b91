// Natural logarithm and exponential function from +, -, * and / alone, so that every machine's last
// bit is the same; relative error below 1e-14.
#pragma once

namespace ddpsim {

double natural_logarithm(double x);  // REQUIRES: x > 0 and finite
// 0 below -700, infinite above 700.
double natural_exponential(double x);

}  // namespace ddpsim
