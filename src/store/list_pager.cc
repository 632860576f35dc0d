#include "store/list_pager.h"

namespace headrace {

Status ListPager::check() const {
  const std::string& token = request_.continuation;
  if (token.empty() || token[0] == 'k' || token[0] == 'p') return {};
  return Status(Code::kInvalidArgument, "the continuation is not from this store");
}

bool ListPager::skips_all_below(std::string_view stem) const {
  const std::string_view prefix = request_.prefix;
  if (!stem.starts_with(prefix) && !prefix.starts_with(stem)) return true;
  const std::string_view token = request_.continuation;
  if (!token.empty()) {
    const std::string_view name = token.substr(1);
    if (token[0] == 'p' && stem.starts_with(name)) return true;
    if (stem < name && !name.starts_with(stem)) return true;
  }
  return !page_.common_prefixes.empty() && stem.starts_with(page_.common_prefixes.back());
}

bool ListPager::wants(std::string_view key) const {
  if (!key.starts_with(request_.prefix)) return false;
  const std::string_view token = request_.continuation;
  if (!token.empty()) {
    const std::string_view name = token.substr(1);
    if (key <= name || (token[0] == 'p' && key.starts_with(name))) return false;
  }
  return page_.common_prefixes.empty() || !key.starts_with(page_.common_prefixes.back());
}

std::string_view ListPager::rolled_up(std::string_view key) const {
  if (request_.delimiter.empty()) return {};
  const std::size_t at = key.find(request_.delimiter, request_.prefix.size());
  return at == std::string_view::npos ? std::string_view()
                                      : key.substr(0, at + request_.delimiter.size());
}

Status check_page_size(const ListRequest& request, std::string_view what) {
  if (request.page_size >= 1 && request.page_size <= 1000) return {};
  return Status(Code::kInvalidArgument, std::string(what) + ": page_size must be 1 to 1000");
}

bool ListPager::add(ObjectInfo&& info) {
  if (!wants(info.key)) return true;
  const std::string_view common = rolled_up(info.key);
  return common.empty() ? add_object(std::move(info)) : add_common_prefix(common);
}

bool ListPager::take_place(char kind, std::string_view name) {
  if (page_.objects.size() + page_.common_prefixes.size() == request_.page_size) {
    page_.continuation = last_;
    return false;
  }
  last_.assign(1, kind).append(name);
  return true;
}

bool ListPager::add_object(ObjectInfo&& info) {
  if (!take_place('k', info.key)) return false;
  page_.objects.push_back(std::move(info));
  return true;
}

bool ListPager::add_common_prefix(std::string_view prefix) {
  if (!take_place('p', prefix)) return false;
  page_.common_prefixes.emplace_back(prefix);
  return true;
}

Result<ListPage> next_page(Result<ListPage> page, const ListRequest& request) {
  if (page && !page->continuation.empty() && page->continuation == request.continuation)
    return Status(Code::kCorrupt, "the store continues twice at the same place");
  return page;
}

}  // namespace headrace
