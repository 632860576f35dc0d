#pragma once
/// \file
/// ListPager: cuts keys, offered in byte order, into pages with prefix, delimiter and continuation,
/// by S3's rules. Pure.
#include <string>
#include <string_view>

#include "headrace/store.h"

namespace headrace {

class ListPager {
 public:
  /// `request` must outlive the pager. A continuation is "k" + the last key or "p" + the last
  /// common prefix of a page.
  explicit ListPager(const ListRequest& request) : request_(request) {}
  /// kInvalidArgument when the continuation is none of ours.
  Status check() const;

  /// True when no key that starts with `stem` belongs on this page or a later one: it lies outside
  /// the prefix, was on an earlier page, or is covered by the common prefix that was added last.
  bool skips_all_below(std::string_view stem) const;
  /// Whether the key (a whole one) is still to be listed.
  bool wants(std::string_view key) const;
  /// The common prefix that the key rolls up into; empty when it stands for itself.
  std::string_view rolled_up(std::string_view key) const;

  /// Adds a key that is still to be listed, or what it rolls up into; passes over others. False as
  /// below.
  bool add(ObjectInfo&& info);
  /// Adds one; false when the page is full: it was not added, and there is a further page.
  bool add_object(ObjectInfo&& info);
  bool add_common_prefix(std::string_view prefix);
  ListPage take() { return std::move(page_); }

 private:
  bool take_place(char kind, std::string_view name);

  const ListRequest& request_;
  ListPage page_;
  std::string last_;  // as a continuation
};

/// `what` begins the message: "LIST s3://bucket/a/".
Status check_page_size(const ListRequest& request, std::string_view what);

/// `page` as the answer to `request`. kCorrupt when it goes on where it began: listing would never
/// end. (Longer circles are for those to find who go from page to page.)
Result<ListPage> next_page(Result<ListPage> page, const ListRequest& request);

}  // namespace headrace
