#include "store/azure/azure_xml.h"

#include <algorithm>
#include <pugixml.hpp>

#include "base/strings.h"
#include "http/date.h"
#include "http/fields.h"
#include "http/uri.h"
#include "store/vendor/xml.h"

namespace headrace::azure {
namespace {

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, "the service's answer is not a " + std::string(what) +
                                    "; check that the endpoint is a Blob service");
}

/// Names with characters that XML cannot hold are escaped, and say so (since version 2021-02-12).
Result<std::string> name_of(const pugi::xml_node& node, std::string_view root_prefix) {
  const pugi::xml_node element = node.child("Name");
  std::string name = element.child_value();
  if (std::string_view(element.attribute("Encoded").value()) == "true") {
    auto decoded = http::decode(name);
    if (!decoded)
      return Status(Code::kCorrupt,
                    "listing with a badly escaped name: " + std::string(decoded.error().message()));
    name = *std::move(decoded);
  }
  if (!std::string_view(name).starts_with(root_prefix)) {
    return Status(Code::kCorrupt,
                  "listing with the name \"" + name + "\", which was not asked for");
  }
  name.erase(0, root_prefix.size());
  return name;
}

/// An empty blob that only says that there is a directory.
bool is_directory(const pugi::xml_node& blob, std::uint64_t size_bytes) {
  const pugi::xml_node properties = blob.child("Properties");
  if (std::string_view(properties.child_value("ResourceType")) == "directory") return true;
  if (size_bytes != 0) return false;
  for (const pugi::xml_node& entry : blob.child("Metadata").children()) {
    if (http::equals_ignoring_case(entry.name(), "hdi_isfolder") &&
        http::equals_ignoring_case(entry.child_value(), "true"))
      return true;
  }
  return false;
}

Status add_object(const pugi::xml_node& blob, std::string_view root_prefix, ListPage& page) {
  ObjectInfo object;
  HEADRACE_TRY_ASSIGN(object.key, name_of(blob, root_prefix));
  const pugi::xml_node properties = blob.child("Properties");
  const auto size = parse_decimal<std::uint64_t>(properties.child_value("Content-Length"));
  if (!size) return Status(Code::kCorrupt, "listing with an entry without a size");
  if (object.key.empty() || is_directory(blob, *size)) return {};
  object.size_bytes = *size;
  object.etag = vendor::with_quotes(properties.child_value("Etag"));
  if (const auto modified = http::parse_http_date(properties.child_value("Last-Modified"))) {
    object.modified_unix_s = modified->time_since_epoch().count();
  }
  object.storage_class = properties.child_value("AccessTier");
  page.objects.push_back(std::move(object));
  return {};
}

}  // namespace

ErrorBody parse_error_body(std::string_view body) {
  pugi::xml_document document;
  const pugi::xml_node error = vendor::load_error(body, document);
  return {.code = error.child_value("Code"), .message = error.child_value("Message")};
}

Result<ListPage> parse_list(std::string_view body, std::string_view root_prefix) {
  pugi::xml_document document;
  const auto root = vendor::load_root(body, "EnumerationResults", document);
  if (!root) return corrupt("listing");
  ListPage page;
  for (const pugi::xml_node& node : root.child("Blobs").children()) {
    const std::string_view kind = node.name();
    if (kind == "Blob") HEADRACE_TRY(add_object(node, root_prefix, page));
    if (kind != "BlobPrefix") continue;
    HEADRACE_TRY_ASSIGN(std::string prefix, name_of(node, root_prefix));
    if (!prefix.empty()) page.common_prefixes.push_back(std::move(prefix));
  }
  page.continuation = root.child_value("NextMarker");
  // Accounts with a hierarchical namespace put '/' before all other characters.
  const auto by_key = [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; };
  if (!std::is_sorted(page.objects.begin(), page.objects.end(), by_key))
    std::sort(page.objects.begin(), page.objects.end(), by_key);
  if (!std::is_sorted(page.common_prefixes.begin(), page.common_prefixes.end()))
    std::sort(page.common_prefixes.begin(), page.common_prefixes.end());
  return page;
}

Result<ContainerPage> parse_containers(std::string_view body) {
  pugi::xml_document document;
  const auto root = vendor::load_root(body, "EnumerationResults", document);
  if (!root || !root.child("Containers")) return corrupt("listing of containers");
  ContainerPage page;
  for (const pugi::xml_node& node : root.child("Containers").children("Container")) {
    page.names.emplace_back(node.child_value("Name"));
    if (page.names.back().empty())
      return Status(Code::kCorrupt, "listing with a container without a name");
  }
  page.next = root.child_value("NextMarker");
  return page;
}

Result<std::vector<Block>> parse_block_list(std::string_view body) {
  pugi::xml_document document;
  const auto root = vendor::load_root(body, "BlockList", document);
  if (!root) return corrupt("block list");
  std::vector<Block> blocks;
  for (const char* kind : {"CommittedBlocks", "UncommittedBlocks"}) {
    for (const pugi::xml_node& node : root.child(kind).children("Block")) {
      Block block;
      block.id = node.child_value("Name");
      const auto size = parse_decimal<std::uint64_t>(node.child_value("Size"));
      if (block.id.empty() || !size)
        return Status(Code::kCorrupt, "block list with an entry without name or size");
      block.size_bytes = *size;
      block.is_committed = kind[0] == 'C';
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

std::string format_block_list(std::span<const std::string> block_ids) {
  std::string body = "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>";
  // Base64 has no character that XML would want escaped.
  for (const std::string& id : block_ids) body += "<Latest>" + id + "</Latest>";
  return body + "</BlockList>";
}

}  // namespace headrace::azure
