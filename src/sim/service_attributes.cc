// GetObjectAttributes.
#include <algorithm>
#include <array>

#include "base/list_item.h"
#include "base/strings.h"
#include "http/date.h"
#include "http/fields.h"
#include "sim/service.h"

namespace headrace::sim {
namespace {

constexpr std::array<std::string_view, 5> kAttributes = {"ETag", "Checksum", "ObjectParts",
                                                         "StorageClass", "ObjectSize"};

/// The attributes asked for, in one list or in several fields. Errors: kInvalidArgument.
S3Code read_wishes(std::string_view fields, std::string& out) {
  http::Field field;
  while (http::next_field(fields, field)) {
    if (!http::equals_ignoring_case(field.name, "x-amz-object-attributes")) continue;
    std::string_view list = field.value;
    while (!list.empty()) {
      const std::string_view name = take_item(list);
      if (std::find(kAttributes.begin(), kAttributes.end(), name) == kAttributes.end()) {
        return S3Code::kInvalidArgument;
      }
      out += std::string(name) + ",";
    }
  }
  return out.empty() ? S3Code::kInvalidArgument : S3Code::kNone;
}

void append_checksum(const ObjectSums& sums, std::string& out) {
  if (sums.field.empty()) return;
  out += "<Checksum>";
  append_sum_element(sums.field, sums.value, out);
  append_xml_element("ChecksumType", sums.is_composite ? "COMPOSITE" : "FULL_OBJECT", out);
  out += "</Checksum>";
}

struct PartPage {
  std::uint64_t after = 0;  ///< Part number.
  std::uint64_t max_count = 1000;
};

void append_parts(const ObjectSums& sums, const PartPage& page, std::string& out) {
  const std::uint64_t count = sums.part_sizes.size();
  const std::uint64_t begin = std::min(page.after, count);
  const std::uint64_t end = begin + std::min(page.max_count, count - begin);
  out += "<ObjectParts>";
  append_xml_element("PartsCount", std::to_string(count), out);
  append_xml_element("PartNumberMarker", std::to_string(page.after), out);
  append_xml_element("NextPartNumberMarker", std::to_string(end), out);
  append_xml_element("MaxParts", std::to_string(page.max_count), out);
  append_xml_element("IsTruncated", end < count ? "true" : "false", out);
  for (std::uint64_t i = begin; i < end; ++i) {
    out += "<Part>";
    append_xml_element("PartNumber", std::to_string(i + 1), out);
    append_xml_element("Size", std::to_string(sums.part_sizes[i]), out);
    if (!sums.part_values.empty()) append_sum_element(sums.field, sums.part_values[i], out);
    out += "</Part>";
  }
  out += "</ObjectParts>";
}

}  // namespace

S3Code Service::get_attributes(const http::RequestHead& head, Exchange& exchange) {
  std::shared_ptr<const OpenFile> file;
  if (const S3Code code = open_object(exchange.target, file); code != S3Code::kNone) return code;
  std::string wishes;
  if (const S3Code code = read_wishes(head.fields, wishes); code != S3Code::kNone) return code;
  const auto wants = [&](std::string_view name) { return http::list_contains(wishes, name); };
  const ObjectSums sums = sums_from_text(file->sums);
  PartPage page;
  page.after = parse_decimal<std::uint64_t>(head.header("x-amz-part-number-marker")).value_or(0);
  page.max_count =
      std::min(parse_decimal<std::uint64_t>(head.header("x-amz-max-parts")).value_or(1000),
               std::uint64_t{1000});
  std::string out(kXmlHead);
  out += "<GetObjectAttributesResponse";
  out += kXmlNamespace;
  // Without the quotes that it has elsewhere.
  if (wants("ETag")) append_xml_element("ETag", file->etag.substr(1, file->etag.size() - 2), out);
  if (wants("Checksum")) append_checksum(sums, out);
  if (wants("ObjectParts") && !sums.part_sizes.empty()) append_parts(sums, page, out);
  if (wants("StorageClass")) {
    append_xml_element("StorageClass", name_of(file->info.tag.storage_class), out);
  }
  if (wants("ObjectSize")) {
    append_xml_element("ObjectSize", std::to_string(file->info.size_bytes), out);
  }
  out += "</GetObjectAttributesResponse>";
  const std::chrono::sys_seconds modified(
      std::chrono::seconds(file->info.modified_ns / 1'000'000'000));
  exchange.response.fields += "Last-Modified: " + http::format_http_date(modified) + "\r\n";
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

}  // namespace headrace::sim
