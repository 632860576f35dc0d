// Answers come from any server that calls itself S3, so each document must have the root that was
// asked for; store/vendor/xml_api.cc sees to the keys.
//
// Keys in answers are escaped as in forms where the server says so (EncodingType), since XML 1.0
// cannot hold all of them. Keys in requests cannot be escaped so: fits_xml() says which go in a
// DeleteObjects.
#include "store/s3/s3_xml.h"

#include <pugixml.hpp>

#include "base/strings.h"
#include "http/date.h"
#include "http/uri.h"
#include "store/s3/s3_checksum.h"
#include "store/vendor/xml.h"

namespace headrace::s3 {
namespace {

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, "the store's answer is not a " + std::string(what) +
                                    "; check that the endpoint is an S3 store");
}

std::optional<std::string> version_of(const pugi::xml_node& entry) {
  return vendor::with_quotes(entry.child_value("ETag"));
}

}  // namespace

ErrorBody parse_error_body(std::string_view body) {
  pugi::xml_document document;
  const pugi::xml_node error = vendor::load_error(body, document);
  return {.code = error.child_value("Code"),
          .message = error.child_value("Message"),
          .region = error.child_value("Region"),
          .endpoint = error.child_value("Endpoint"),
          .request_id = error.child_value("RequestId")};
}

Result<ListPage> parse_list(std::string_view body, std::string_view root_prefix) {
  pugi::xml_document document;
  const auto root = vendor::load_root(body, "ListBucketResult", document);
  if (!root) return corrupt("listing");
  return vendor::read_list(root, root_prefix, version_of);
}

Result<BucketPage> parse_buckets(std::string_view body) {
  pugi::xml_document document;
  const auto root = vendor::load_root(body, "ListAllMyBucketsResult", document);
  if (!root) return corrupt("listing of buckets");
  BucketPage page;
  for (const pugi::xml_node& bucket : root.child("Buckets").children("Bucket")) {
    BucketInfo info;
    info.name = bucket.child_value("Name");
    if (const auto created = http::parse_iso_date(bucket.child_value("CreationDate")))
      info.created_unix_s = created->time_since_epoch().count();
    page.buckets.push_back(std::move(info));
  }
  page.continuation = root.child_value("ContinuationToken");
  return page;
}

Result<std::string> parse_upload_id(std::string_view body) {
  pugi::xml_document document;
  const auto root = vendor::load_root(body, "InitiateMultipartUploadResult", document);
  std::string id = root.child_value("UploadId");
  if (id.empty()) return corrupt("multipart upload");
  return id;
}

Result<std::string> parse_result_etag(std::string_view body) {
  pugi::xml_document document;
  if (!vendor::load_xml(body, document)) return corrupt("result of a copy or upload");
  for (const char* name : {"CompleteMultipartUploadResult", "CopyObjectResult"}) {
    if (const pugi::xml_node root = document.child(name))
      return vendor::with_quotes(root.child_value("ETag"));
  }
  return corrupt("result of a copy or upload");
}

Result<UploadedPart> parse_copied_part(std::string_view body, ChecksumKind kind) {
  pugi::xml_document document;
  const auto root = vendor::load_root(body, "CopyPartResult", document);
  UploadedPart part;
  part.etag = vendor::with_quotes(root.child_value("ETag"));
  if (part.etag.empty()) return corrupt("result of a copy");
  const std::string element(checksum_element(kind));
  if (!element.empty()) part.checksum = root.child_value(element.c_str());
  return part;
}

Result<std::string> parse_tags(std::string_view body) {
  pugi::xml_document document;
  const auto root = vendor::load_root(body, "Tagging", document);
  if (!root) return corrupt("list of tags");
  std::string tags;
  for (const pugi::xml_node& tag : root.child("TagSet").children("Tag")) {
    if (!tags.empty()) tags.push_back('&');
    http::append_encoded(tag.child_value("Key"), http::Slash::kEscape, tags);
    tags.push_back('=');
    http::append_encoded(tag.child_value("Value"), http::Slash::kEscape, tags);
  }
  return tags;
}

std::string format_complete(std::span<const UploadedPart> parts, ChecksumKind kind) {
  return vendor::format_complete(
      "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", parts,
      checksum_element(kind));
}

Result<PartPage> parse_parts(std::string_view body, ChecksumKind kind) {
  pugi::xml_document document;
  const auto root = vendor::load_root(body, "ListPartsResult", document);
  if (!root) return corrupt("list of parts");
  const std::string element(checksum_element(kind));
  PartPage page;
  for (const pugi::xml_node& node : root.children("Part")) {
    UploadedPart part;
    const auto number = parse_decimal<std::uint32_t>(node.child_value("PartNumber"));
    part.etag = vendor::with_quotes(node.child_value("ETag"));
    if (!number || part.etag.empty()) return corrupt("list of parts");
    part.part_number = *number;
    part.size_bytes = parse_decimal<std::uint64_t>(node.child_value("Size")).value_or(0);
    if (!element.empty()) part.checksum = node.child_value(element.c_str());
    page.parts.push_back(std::move(part));
  }
  if (vendor::is_truncated(root)) {
    page.next_marker =
        parse_decimal<std::uint32_t>(root.child_value("NextPartNumberMarker")).value_or(0);
    if (page.next_marker == 0 && !page.parts.empty())
      page.next_marker = page.parts.back().part_number;
  }
  return page;
}

Result<vendor::UploadPage> parse_uploads(std::string_view body, std::string_view root_prefix) {
  pugi::xml_document document;
  const auto root = vendor::load_root(body, "ListMultipartUploadsResult", document);
  if (!root) return corrupt("list of uploads");
  return vendor::read_uploads(root, root_prefix);
}

std::string format_delete(std::span<const std::string> keys) {
  return vendor::format_delete(
      "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>", keys);
}

Result<std::vector<DeleteFailure>> parse_delete(std::string_view body) {
  pugi::xml_document document;
  std::vector<DeleteFailure> failures;
  const auto root = vendor::load_root(body, "DeleteResult", document);
  if (!root) return corrupt("result of a deletion");
  for (const pugi::xml_node& node : root.children("Error")) {
    DeleteFailure failure;
    failure.key = node.child_value("Key");
    failure.error.code = node.child_value("Code");
    failure.error.message = node.child_value("Message");
    failures.push_back(std::move(failure));
  }
  return failures;
}

}  // namespace headrace::s3
