// As store/s3/s3_xml.cc, with generations for versions. An entry without a generation is an error:
// a read could not say which version it means.
#include "store/gcs/gcs_xml.h"

#include <pugixml.hpp>

#include "base/strings.h"
#include "store/vendor/xml.h"

namespace headrace::gcs {
namespace {

/// The root of that name. Errors: kCorrupt.
Result<pugi::xml_node> load_root(std::string_view body, const char* name,
                                 pugi::xml_document& document) {
  const auto root = vendor::load_root(body, name, document);
  if (!root) {
    return Status(Code::kCorrupt, std::string("the store's answer is not a ") + name +
                                      "; check that the endpoint is Google Cloud Storage");
  }
  return root;
}

std::optional<std::string> version_of(const pugi::xml_node& entry) {
  std::string generation = entry.child_value("Generation");
  if (generation.empty()) return std::nullopt;
  return generation;
}

}  // namespace

Result<ListPage> parse_list(std::string_view body, std::string_view root_prefix) {
  pugi::xml_document document;
  HEADRACE_TRY_ASSIGN(const pugi::xml_node root, load_root(body, "ListBucketResult", document));
  return vendor::read_list(root, root_prefix, version_of);
}

Result<std::string> parse_upload_id(std::string_view body) {
  pugi::xml_document document;
  HEADRACE_TRY_ASSIGN(const pugi::xml_node root,
                      load_root(body, "InitiateMultipartUploadResult", document));
  std::string id = root.child_value("UploadId");
  if (id.empty()) return Status(Code::kCorrupt, "the store's answer has no UploadId");
  return id;
}

std::string format_complete(std::span<const UploadedPart> parts) {
  return vendor::format_complete("<CompleteMultipartUpload>", parts, {});
}

std::string format_delete(std::span<const std::string> keys) {
  return vendor::format_delete("<Delete>", keys);
}

Result<std::vector<DeleteFailure>> parse_delete(std::string_view body) {
  pugi::xml_document document;
  HEADRACE_TRY_ASSIGN(const pugi::xml_node root, load_root(body, "DeleteResult", document));
  std::vector<DeleteFailure> failures;
  for (const pugi::xml_node& node : root.children("Error")) {
    failures.push_back(
        {node.child_value("Key"), node.child_value("Code"), node.child_value("Message")});
  }
  return failures;
}

Result<PartPage> parse_parts(std::string_view body) {
  pugi::xml_document document;
  HEADRACE_TRY_ASSIGN(const pugi::xml_node root, load_root(body, "ListPartsResult", document));
  PartPage page;
  for (const pugi::xml_node& node : root.children("Part")) {
    const auto number = parse_decimal<std::uint32_t>(node.child_value("PartNumber"));
    const auto size = parse_decimal<std::uint64_t>(node.child_value("Size"));
    std::string etag = node.child_value("ETag");
    if (!number || !size || etag.empty())
      return Status(Code::kCorrupt, "a part without number, size or ETag");
    page.parts.push_back({*number, std::move(etag), *size});
  }
  if (vendor::is_truncated(root)) {
    page.next = root.child_value("NextPartNumberMarker");
    if (page.next.empty()) return Status(Code::kCorrupt, "truncated list of parts without marker");
  }
  return page;
}

Result<vendor::UploadPage> parse_uploads(std::string_view body, std::string_view root_prefix) {
  pugi::xml_document document;
  HEADRACE_TRY_ASSIGN(const pugi::xml_node root,
                      load_root(body, "ListMultipartUploadsResult", document));
  auto page = vendor::read_uploads(root, root_prefix);
  if (page && page->next_key.empty() && vendor::is_truncated(root))
    return Status(Code::kCorrupt, "truncated list of uploads without marker");
  return page;
}

}  // namespace headrace::gcs
