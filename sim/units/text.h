// Text that a file or a command line brought, on its way to a terminal, a table or a spreadsheet.
#pragma once

#include <string>
#include <string_view>

namespace ddpsim {

// Every byte that is not part of valid UTF-8 becomes U+FFFD, so that JSON can hold it.
std::string valid_utf8(std::string_view text);
bool is_utf8(std::string_view text);
// Valid UTF-8 in which no character moves a cursor, changes a colour or the direction of writing:
// control characters (C0, DEL, C1) and bidirectional overrides become spaces.
std::string printable(std::string_view text);

}  // namespace ddpsim
