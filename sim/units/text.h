// Text that a file or a command line brought, on its way to a terminal, a table or a spreadsheet.
#pragma once

#include <string>
#include <string_view>

namespace ddpsim {

// Every byte that is not part of valid UTF-8 becomes U+FFFD, so that JSON can hold it.
std::string valid_utf8(std::string_view text);
bool is_utf8(std::string_view text);
// Valid UTF-8 in which no character moves a cursor, changes a colour or the direction of writing:
// control characters (C0, DEL, C1) and those of bidirectional writing become spaces.
std::string printable(std::string_view text);
// The same of a page, whose lines, tabs and colours (C0) are its own.
std::string printable_page(std::string_view page);
// JSON in which such characters are written as \uXXXX: the same value, and none acts on a terminal.
std::string printable_json(std::string_view json);

}  // namespace ddpsim
