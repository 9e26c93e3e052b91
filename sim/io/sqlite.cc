#include "sim/io/sqlite.h"

#include <sqlite3.h>

#include "sim/io/descriptors.h"
#include "sim/model/error.h"

namespace ddpsim::io {
namespace {

sqlite3* database(void* handle) {
  return static_cast<sqlite3*>(handle);
}
sqlite3_stmt* prepared(void* statement) {
  return static_cast<sqlite3_stmt*>(statement);
}

}  // namespace

Sqlite::Sqlite(const std::string& path) : path_(path) {
  Input in = open_input(path);
  Descriptor descriptor(in.descriptor);
  note_read(in.id);
  sqlite3* opened = nullptr;
  int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr);
  handle_ = opened;
  if (code != SQLITE_OK) {
    std::string why = sqlite3_errmsg(opened);
    sqlite3_close(opened);
    throw InputError{path, "cannot be opened: " + why};
  }
  // A file from elsewhere: its views and triggers get no functions with effects.
  sqlite3_db_config(opened, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
}

Sqlite::~Sqlite() {
  sqlite3_close(database(handle_));
}

void Sqlite::fail() const {
  throw InputError{path_, std::string("cannot be read as SQLite (") +
                              sqlite3_errmsg(database(handle_)) +
                              "): it breaks off or is damaged; fetch it again, or export it again"};
}

std::vector<std::string> Sqlite::columns(const std::string& table) const {
  std::vector<std::string> out;
  Rows rows(*this,
            "SELECT c.name FROM sqlite_master AS t, pragma_table_info(t.name) AS c "
            "WHERE t.type = 'table' AND t.name = '" +
                table + "' COLLATE NOCASE");
  while (rows.next()) out.push_back(rows.text(0));
  return out;
}

Sqlite::Rows::Rows(const Sqlite& of, const std::string& sql,
                   const std::vector<std::int64_t>& numbers)
    : of_(of) {
  sqlite3_stmt* made = nullptr;
  if (sqlite3_prepare_v2(database(of.handle_), sql.c_str(), -1, &made, nullptr) != SQLITE_OK)
    of.fail();
  statement_ = made;
  for (std::size_t k = 0; k < numbers.size(); ++k)
    sqlite3_bind_int64(made, static_cast<int>(k) + 1, numbers[k]);
}

Sqlite::Rows::~Rows() {
  sqlite3_finalize(prepared(statement_));
}

bool Sqlite::Rows::next() {
  int code = sqlite3_step(prepared(statement_));
  if (code != SQLITE_ROW && code != SQLITE_DONE) of_.fail();
  return code == SQLITE_ROW;
}

std::int64_t Sqlite::Rows::integer(int column, std::int64_t if_null) const {
  if (sqlite3_column_type(prepared(statement_), column) == SQLITE_NULL) return if_null;
  return sqlite3_column_int64(prepared(statement_), column);
}

std::string Sqlite::Rows::text(int column) const {
  const unsigned char* t = sqlite3_column_text(prepared(statement_), column);
  return t ? std::string(reinterpret_cast<const char*>(t)) : std::string();
}

}  // namespace ddpsim::io
