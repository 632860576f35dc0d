// Written by hand because the names of days and months are English in every locale, which
// strftime() and strptime() do not promise, and because nothing is allocated for a date in a
// request. Fixed positions: the formats have fixed widths, and what differs by a character is
// refused rather than guessed. Of the three forms in RFC 9110 (section 5.6.7) only the one that
// may be sent is read.
#include "http/date.h"

#include <array>

namespace headrace::http {
namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

struct Parts {
  unsigned year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, weekday = 0;
};

Parts split(WallTime time) noexcept {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const auto second_of_day = static_cast<unsigned>((time - day).count());
  Parts parts;
  parts.year = static_cast<unsigned>(static_cast<int>(date.year()));
  parts.month = static_cast<unsigned>(date.month());
  parts.day = static_cast<unsigned>(date.day());
  parts.hour = second_of_day / 3600;
  parts.minute = second_of_day / 60 % 60;
  parts.second = second_of_day % 60;
  parts.weekday = std::chrono::weekday(day).c_encoding();
  return parts;
}

std::optional<WallTime> join(const Parts& p) noexcept {
  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(p.year)),
                                         std::chrono::month(p.month), std::chrono::day(p.day));
  // 60 is a leap second; it has no time of its own here.
  if (!date.ok() || p.hour > 23 || p.minute > 59 || p.second > 60) return std::nullopt;
  return std::chrono::sys_days(date) + std::chrono::hours(p.hour) + std::chrono::minutes(p.minute) +
         std::chrono::seconds(p.second);
}

void put(char* out, unsigned value, int digits) noexcept {
  for (int i = digits; i-- > 0; value /= 10) out[i] = static_cast<char>('0' + value % 10);
}

/// Reads `digits` digits at `at`; false when there are other characters or too few.
bool get(std::string_view text, std::size_t at, std::size_t digits, unsigned& out) noexcept {
  if (text.size() < at + digits) return false;
  out = 0;
  for (char c : text.substr(at, digits)) {
    if (c < '0' || c > '9') return false;
    out = out * 10 + static_cast<unsigned>(c - '0');
  }
  return true;
}

}  // namespace

void write_http_date(WallTime time, char out[29]) noexcept {
  const Parts p = split(time);
  std::string_view("Sun, 06 Nov 1994 08:49:37 GMT").copy(out, 29);
  kDays[p.weekday].copy(out, 3);
  put(&out[5], p.day, 2);
  kMonths[p.month - 1].copy(&out[8], 3);
  put(&out[12], p.year, 4);
  put(&out[17], p.hour, 2);
  put(&out[20], p.minute, 2);
  put(&out[23], p.second, 2);
}

std::string format_http_date(WallTime time) {
  std::string out(29, ' ');
  write_http_date(time, out.data());
  return out;
}

std::optional<WallTime> parse_http_date(std::string_view text) noexcept {
  Parts p;
  if (text.size() != 29 || text.substr(3, 2) != ", " || text[7] != ' ' || text[11] != ' ' ||
      text[16] != ' ' || text[19] != ':' || text[22] != ':' || text.substr(25) != " GMT") {
    return std::nullopt;
  }
  for (unsigned m = 0; m < 12; ++m) {
    if (text.substr(8, 3) == kMonths[m]) p.month = m + 1;
  }
  const bool is_good = get(text, 5, 2, p.day) && get(text, 12, 4, p.year) &&
                       get(text, 17, 2, p.hour) && get(text, 20, 2, p.minute) &&
                       get(text, 23, 2, p.second);
  if (!is_good) return std::nullopt;
  return join(p);
}

std::string format_iso_date(WallTime time) {
  const Parts p = split(time);
  std::string out = "1994-11-06T08:49:37.000Z";
  put(&out[0], p.year, 4);
  put(&out[5], p.month, 2);
  put(&out[8], p.day, 2);
  put(&out[11], p.hour, 2);
  put(&out[14], p.minute, 2);
  put(&out[17], p.second, 2);
  return out;
}

std::optional<WallTime> parse_iso_date(std::string_view text) noexcept {
  Parts p;
  if (text.size() < 20 || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' ||
      text[16] != ':' || text.back() != 'Z') {
    return std::nullopt;
  }
  const std::string_view fraction = text.substr(19, text.size() - 20);
  if (!fraction.empty() &&
      (fraction.front() != '.' ||
       fraction.find_first_not_of("0123456789", 1) != std::string_view::npos)) {
    return std::nullopt;
  }
  const bool is_good = get(text, 0, 4, p.year) && get(text, 5, 2, p.month) &&
                       get(text, 8, 2, p.day) && get(text, 11, 2, p.hour) &&
                       get(text, 14, 2, p.minute) && get(text, 17, 2, p.second);
  if (!is_good) return std::nullopt;
  return join(p);
}

void write_amz_date(WallTime time, char out[16]) noexcept {
  const Parts p = split(time);
  put(out, p.year, 4);
  put(out + 4, p.month, 2);
  put(out + 6, p.day, 2);
  out[8] = 'T';
  put(out + 9, p.hour, 2);
  put(out + 11, p.minute, 2);
  put(out + 13, p.second, 2);
  out[15] = 'Z';
}

std::optional<WallTime> parse_amz_date(std::string_view text) noexcept {
  Parts p;
  if (text.size() != 16 || text[8] != 'T' || text[15] != 'Z') return std::nullopt;
  const bool is_good = get(text, 0, 4, p.year) && get(text, 4, 2, p.month) &&
                       get(text, 6, 2, p.day) && get(text, 9, 2, p.hour) &&
                       get(text, 11, 2, p.minute) && get(text, 13, 2, p.second);
  if (!is_good) return std::nullopt;
  return join(p);
}

}  // namespace headrace::http
