#pragma once
namespace ddpsim {
inline constexpr const char* kVersion = "0.1.0";
}
