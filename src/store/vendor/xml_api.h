#pragma once
/// \file
/// Documents that S3's interface and Google's XML API have in common: text in, values out, and
/// back. Pure; the text is bounded by the caller.
///
/// Place: below s3/ and gcs/.
#include <optional>
#include <pugixml.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"
#include "headrace/store.h"
#include "store/http_protocol.h"

namespace headrace::vendor {

/// What HttpProtocol::check_answer() says of calls that send an <Error> with status 200: what
/// `protocol` makes of the error.
Status check_error_body(HttpProtocol& protocol, const HttpCall& call, const HttpAnswer& answer);

/// What an entry of a listing says of the object's version; nullopt: the entry is no good.
using VersionOf = std::optional<std::string> (*)(const pugi::xml_node& entry);

/// A ListBucketResult made with list-type=2 and encoding-type=url. Keys and prefixes lose
/// `root_prefix`; the key that equals it is left out. Errors: kCorrupt.
Result<ListPage> read_list(const pugi::xml_node& root, std::string_view root_prefix,
                           VersionOf version_of);

/// One page of a ListMultipartUploadsResult made with encoding-type=url. Keys lose `root_prefix`;
/// uploads elsewhere are left out: some stores take no prefix here. Errors: kCorrupt.
struct UploadPage {
  std::vector<PendingUpload> uploads;
  std::string next_key;  ///< Both empty on the last page.
  std::string next_upload_id;
};
Result<UploadPage> read_uploads(const pugi::xml_node& root, std::string_view root_prefix);

/// Whether the answer says that more follows it.
bool is_truncated(const pugi::xml_node& root) noexcept;

/// The body of "complete multipart upload". `opening` is the root element's start tag;
/// `checksum_element` holds the parts' checksums, empty: they stay out.
std::string format_complete(std::string_view opening, std::span<const UploadedPart> parts,
                            std::string_view checksum_element);
/// That of "delete multiple objects" (whole keys), with `opening` before the first. \pre fits_xml()
/// of all.
std::string format_delete(std::string_view opening, std::span<const std::string> keys);

}  // namespace headrace::vendor
