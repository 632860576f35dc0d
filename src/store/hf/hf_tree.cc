#include "store/hf/hf_tree.h"

#include <nlohmann/json.hpp>

namespace headrace::hf {
namespace {

using nlohmann::json;

Status corrupt(const char* what) { return Status(Code::kCorrupt, what); }

const json* member(const json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

const std::string* text_of(const json& object, const char* name) {
  const json* value = member(object, name);
  return value != nullptr ? value->get_ptr<const std::string*>() : nullptr;
}

/// In large file storage: the id and size of the content, not of the pointer to it.
Result<ObjectInfo> file_of(const json& entry, const std::string& path) {
  const json* const large = member(entry, "lfs");
  const json& content = large != nullptr && large->is_object() ? *large : entry;
  const std::string* const id = text_of(content, "oid");
  const json* const size = member(content, "size");
  if (id == nullptr || id->empty() || size == nullptr || !size->is_number_unsigned())
    return corrupt("a file without id or size");
  ObjectInfo info;
  info.key = path;
  info.size_bytes = size->get<std::uint64_t>();
  info.etag = version_of_id(*id);
  return info;
}

}  // namespace

std::string version_of_id(std::string_view id) {
  if (id.starts_with("sha256:")) id.remove_prefix(7);
  return "\"" + std::string(id) + "\"";
}

Result<TreePage> parse_tree(std::string_view body, std::string_view link) {
  const json document = json::parse(body, nullptr, false);
  if (!document.is_array()) return corrupt("the answer is not a JSON array");
  TreePage page;
  for (const json& entry : document) {
    const std::string* const path = entry.is_object() ? text_of(entry, "path") : nullptr;
    const std::string* const type = path != nullptr ? text_of(entry, "type") : nullptr;
    if (type == nullptr || path->empty()) return corrupt("an entry without path or type");
    if (*type == "directory") {
      page.folders.push_back(*path);
    } else if (*type == "file") {
      HEADRACE_TRY_ASSIGN(ObjectInfo file, file_of(entry, *path));
      page.files.push_back(std::move(file));
    }
  }
  HEADRACE_TRY_ASSIGN(page.next, next_query(link));
  return page;
}

Result<http::QueryList> next_query(std::string_view link) {
  // <https://host/path?cursor=x>; rel="next", <...>; rel="..." (RFC 8288)
  while (!link.empty()) {
    const std::size_t open = link.find('<');
    if (open == std::string_view::npos) return http::QueryList();
    const std::size_t close = link.find('>', open);
    if (close == std::string_view::npos) return corrupt("a Link field that ends in its URL");
    const std::string_view url = link.substr(open + 1, close - open - 1);
    link.remove_prefix(close + 1);
    const std::string_view parameters = link.substr(0, link.find('<'));
    if (parameters.find("rel=\"next\"") == std::string_view::npos &&
        parameters.find("rel=next") == std::string_view::npos)
      continue;
    const std::size_t question = url.find('?');
    if (question == std::string_view::npos) return corrupt("the next page has the URL of this one");
    auto query = http::parse_query(url.substr(question + 1));
    if (!query || query->empty()) return corrupt("the next page's URL makes no sense");
    return query;
  }
  return http::QueryList();
}

}  // namespace headrace::hf
