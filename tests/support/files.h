// What tests of files and of damaged inputs share.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/support.h"

namespace ddpsim::test {

// A folder of the test's own, which goes with it.
class InFolder : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  static std::string raw(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void put(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // In the folder; its path.
  std::string made(const std::string& name, const std::string& bytes) const {
    put(at(name), bytes);
    return at(name);
  }
  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("ddpsim_test_" + std::to_string(::getpid()));
};

// A random place in a document, mostly far from the root.
inline io::Json& somewhere(io::Json& j, Random& random) {
  io::Json* at = &j;
  while (at->is_structured() && !at->empty() && (at == &j || random.below(8) != 0)) {
    auto child = at->begin();
    std::advance(child, static_cast<std::ptrdiff_t>(random.below(at->size())));
    at = &*child;
  }
  return *at;
}

}  // namespace ddpsim::test
