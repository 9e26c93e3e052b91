// A profile may say only what differs from another: "extends" names a shipped base or profile, or a
// file beside its own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/io/files.h"
#include "sim/io/json_reader.h"
#include "sim/model/profile.h"

namespace ddpsim::io {

// The files of which a document is made, by their names in errors: itself, what it extends, what
// that extends. Empty where a file extends none.
using Layers = std::vector<std::pair<std::string, Json>>;

struct Opened {
  Json document;  // the last of `layers`, patched by each before it (RFC 7396: null removes a key)
  Layers layers;
};
// The document of a file, of any kind; `file`: its name in errors. Throws InputError at
// FILE#/extends if a file extends what is not there, no profile, or itself.
Opened open_json(const Home& home, const std::string& path, const std::string& file);
// An error of the document, at the file that says what it is about.
InputError blamed(const InputError& e, const Layers& layers);
template <class Read>
auto at_its_file(const Layers& layers, const Read& read) {
  try {
    return read();
  } catch (const InputError& e) {
    throw blamed(e, layers);
  }
}
// read_profile of the file.
Profile open_profile(const Home& home, const std::string& path, const std::string& file);

}  // namespace ddpsim::io
