#pragma once
/// \file
/// XML as the vendors send and take it. Pure; the text is bounded by the caller.
///
/// Place: below s3/, gcs/ and azure/.
#include <pugixml.hpp>
#include <string>
#include <string_view>

namespace headrace::vendor {

/// Reads an answer. What stands before the first '<' is passed over: S3 keeps slow answers alive by
/// spaces, Azure begins with a byte order mark. False when it is not well-formed; what was read so
/// far stays in `document`.
bool load_xml(std::string_view body, pugi::xml_document& document);

/// The root of that name; an empty node when the answer is another document, or not well-formed.
/// `document` keeps what was read.
pugi::xml_node load_root(std::string_view body, const char* name, pugi::xml_document& document);

/// The <Error> of an answer; also of one that is cut off, as far as it goes.
pugi::xml_node load_error(std::string_view body, pugi::xml_document& document);

/// True for a document whose root is <Error>: some calls send it with status 200.
bool is_error_body(std::string_view body);

/// False for text that XML 1.0 cannot hold: control characters, and bytes that are not UTF-8.
bool fits_xml(std::string_view text) noexcept;
/// Appends `text` for the inside of an element. Blanks but spaces go as references: parsers turn a
/// bare CR into a line feed. \pre fits_xml(text).
void append_escaped(std::string_view text, std::string& out);

/// ETags always have quotes here; some servers and listings leave them out in XML.
std::string with_quotes(std::string_view etag);

}  // namespace headrace::vendor
