// Every file that ddpsim reads, by its fields: JSON Schema (draft 2020-12) of it, and its fields
// one by one, as people name them.
#pragma once

#include <string>
#include <vector>

#include "sim/io/codecs.h"
#include "sim/io/schema/record.h"

namespace ddpsim::io {

struct FileKind {
  const char* name;    // "cluster"
  const char* schema;  // "ddpsim.cluster/1"
  const char* title;
  const std::vector<FieldRecord>& (*fields)();
  bool extends = false;  // a file may say only what differs from another
};
const std::vector<FileKind>& file_kinds();
const FileKind* file_kind(const std::string& name);  // nullptr: there is none

// The field at a path of keys, of places in lists and of names that the file makes up; nullptr:
// there is none.
const FieldRecord* field_at(const std::vector<FieldRecord>& fields,
                            const std::vector<std::string>& path);

OrderedJson json_schema(const FileKind& kind);

// A field by its path: "cluster.inside.pcie.latency", "plan.bucket_cap_mb". Elements of lists and
// names that a file makes up are "[]" and "*".
struct FieldPath {
  const char* file;  // the kind of its file
  std::string path;
  const FieldRecord* field;
};
// The fields of a question's files come first, as `--set` takes them; a section stands before its
// fields.
std::vector<FieldPath> field_paths();

// "whole number of bytes, 1 or more", "one of ring, tree".
std::string in_words(const FieldRecord& f);

}  // namespace ddpsim::io
