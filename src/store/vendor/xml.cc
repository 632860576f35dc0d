#include "store/vendor/xml.h"

#include <cstdint>

namespace headrace::vendor {

bool load_xml(std::string_view body, pugi::xml_document& document) {
  const std::size_t start = body.find('<');
  if (start == std::string_view::npos) return false;
  body.remove_prefix(start);
  return static_cast<bool>(document.load_buffer(body.data(), body.size(),
                                                pugi::parse_default | pugi::parse_ws_pcdata_single,
                                                pugi::encoding_utf8));
}

pugi::xml_node load_root(std::string_view body, const char* name, pugi::xml_document& document) {
  return load_xml(body, document) ? document.child(name) : pugi::xml_node();
}

pugi::xml_node load_error(std::string_view body, pugi::xml_document& document) {
  load_xml(body, document);
  return document.child("Error");
}

bool is_error_body(std::string_view body) {
  // The cheap look first: every answer of some calls passes here.
  if (body.find("<Error") == std::string_view::npos) return false;
  pugi::xml_document document;
  return !load_error(body, document).empty();
}

bool fits_xml(std::string_view text) noexcept {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x20 && lead != '\t' && lead != '\n' && lead != '\r') return false;
    if (lead < 0x80) {
      ++i;
      continue;
    }
    // UTF-8 as RFC 3629 has it, less the two points that XML leaves out (fffe, ffff).
    const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || i + size > text.size()) return false;
    std::uint32_t point = lead & (0xffU >> (size + 1));
    for (std::size_t k = 1; k < size; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      point = point << 6 | (next & 0x3f);
    }
    const bool is_surrogate = point >= 0xd800 && point < 0xe000;
    const bool is_overlong = (size == 3 && point < 0x800) || (size == 4 && point < 0x10000);
    if (is_surrogate || is_overlong || point > 0x10ffff || point == 0xfffe || point == 0xffff)
      return false;
    i += size;
  }
  return true;
}

void append_escaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\r':  // parsers turn a bare one into a line feed
        out += "&#13;";
        break;
      case '\n':
        out += "&#10;";
        break;
      case '\t':
        out += "&#9;";
        break;
      default:
        out.push_back(c);
    }
  }
}

std::string with_quotes(std::string_view etag) {
  if (etag.empty() || etag.ends_with('"')) return std::string(etag);
  return "\"" + std::string(etag) + "\"";
}

}  // namespace headrace::vendor
