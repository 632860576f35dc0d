#pragma once
/// \file
/// The hub's listings of a repository's files: a page as JSON, where the next one is. Pure.
#include <string>
#include <string_view>
#include <vector>

#include "headrace/store.h"
#include "http/response.h"
#include "http/uri.h"

namespace headrace::hf {

struct TreePage {
  std::vector<ObjectInfo> files;     ///< Their keys are whole paths in the repository.
  std::vector<std::string> folders;  ///< Whole paths, without a slash at the end.
  http::QueryList next;              ///< The query of the next page; empty: this was the last.
};

/// A version as the hub's Linked-ETags have it: the content's id in quotes.
std::string version_of_id(std::string_view id);

/// An array of files and folders, and the answer's Link field. Errors: kCorrupt (not such a thing).
Result<TreePage> parse_tree(std::string_view body, std::string_view link);

/// The query of the URL that a Link field names as "next"; empty: it names none. Errors: kCorrupt.
Result<http::QueryList> next_query(std::string_view link);

}  // namespace headrace::hf
