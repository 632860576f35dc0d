#include "store/hf/hf_store.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "store/hf/hf_listings.h"
#include "store/hf/hf_protocol.h"
#include "store/hf/hf_tree.h"
#include "store/read_only_store.h"

namespace headrace::hf {
namespace {

// Of a million files, 1,000 a request one after the other.
constexpr std::chrono::minutes kListTime{20};

constexpr const char* kReadOnly =
    "repositories of the Hugging Face hub can only be read; push with the hub's own tools";

constexpr StoreTraits kTraits{.can_write = false, .object_sums = ObjectSums::kNotNeeded};

class HfStore final : public ReadOnlyStore {
 public:
  HfStore(std::shared_ptr<HfProtocol> protocol, std::shared_ptr<TransferEngine> engine,
          std::shared_ptr<HfListings> listings)
      : ReadOnlyStore(std::move(engine), kReadOnly),
        protocol_(std::move(protocol)),
        listings_(std::move(listings)) {}

  Result<std::unique_ptr<Store>> new_handle() override {
    return std::unique_ptr<Store>(std::make_unique<HfStore>(protocol_, engine(), listings_));
  }

  Result<ObjectInfo> head(const std::string& key, const CallOptions& call) override {
    const std::string what = "HEAD " + object_url(key);
    if (Status bad = check_hf_key(key); !bad.ok()) return std::move(bad).annotate(what);
    if (!call.version_id.empty()) return no_versions().annotate(what);
    const std::string path = protocol_->full_key(key);
    auto info = listings_->file(path);
    if (!info) {
      HEADRACE_TRY_ASSIGN(std::vector<ObjectInfo> found, ask_for(path, what, call));
      const auto it = std::find_if(found.begin(), found.end(),
                                   [&path](const ObjectInfo& file) { return file.key == path; });
      if (it == found.end())
        return Status(Code::kNotFound, what + ": no such file in this revision");
      info = *std::move(it);
    }
    info->key = key;
    return *std::move(info);
  }

  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override {
    const std::string what =
        "LIST " + (request.prefix.empty() ? url() : object_url(request.prefix));
    if (request.page_size < 1 || request.page_size > 1000)
      return Status(Code::kInvalidArgument, what + ": page_size must be 1 to 1000");
    const std::string whole = protocol_->full_key(request.prefix);
    const std::string folder = whole.substr(0, whole.rfind('/') + 1);
    const bool is_deep = request.delimiter != "/";
    auto listing = listings_->find(folder, is_deep);
    if (listing == nullptr) {
      HEADRACE_TRY_ASSIGN(listing, list_whole(folder, is_deep, what, call));
      listings_->put(folder, is_deep, listing);
    }
    auto page = page_of(*listing, protocol_->config().prefix, request);
    if (!page) return std::move(page).error().annotate(what);
    return page;
  }

  const StoreTraits& traits() const noexcept override { return kTraits; }
  const std::string& url() const noexcept override { return protocol_->config().root_url; }

 private:
  /// What the hub has under one path: one file, or none.
  Result<std::vector<ObjectInfo>> ask_for(const std::string& path, const std::string& what,
                                          const CallOptions& call) {
    HttpCall http;
    http.method = "POST";
    http.path = "paths-info";
    http.headers = {{"content-type", "application/json"}};
    http.body = nlohmann::json{{"paths", {path}}, {"expand", false}}.dump(
        -1, ' ', false, nlohmann::json::error_handler_t::replace);
    http.what = what;
    HEADRACE_TRY_ASSIGN(TreePage page, engine()->call(http, call, [](const HttpAnswer& answer) {
      return parse_tree(answer.body, {});
    }));
    return std::move(page.files);
  }

  /// All pages of a folder, in byte order. Folders that are not there have nothing in them.
  Result<std::shared_ptr<const Listing>> list_whole(const std::string& folder, bool is_deep,
                                                    const std::string& what, CallOptions call) {
    call.deadline = engine()->deadline_of(call, kListTime);
    Listing listing;
    std::set<http::QueryList> seen;
    for (http::QueryList next; next.empty() || seen.insert(next).second;) {
      auto page = list_page(folder, is_deep, std::exchange(next, {}), what, call);
      if (!page && page.error().code() == Code::kNotFound && !folder.empty())
        return nothing_in(what, std::move(page).error(), call);
      if (!page) return std::move(page).error();
      std::move(page->files.begin(), page->files.end(), std::back_inserter(listing));
      if (!is_deep) add_folders(page->folders, listing);
      if (page->next.empty()) return sorted(std::move(listing));
      next = std::move(page->next);
    }
    return Status(Code::kCorrupt, what + ": the hub continues twice at the same place");
  }

  Result<TreePage> list_page(const std::string& folder, bool is_deep, http::QueryList next,
                             const std::string& what, const CallOptions& call) {
    HttpCall http;
    http.path = "tree" + (folder.empty() ? "" : "/" + folder.substr(0, folder.size() - 1));
    http.query = std::move(next);
    if (http.query.empty() && is_deep) http.query = {{"recursive", "true"}};
    http.what = what;
    return engine()->call(http, call, [](const HttpAnswer& answer) -> Result<TreePage> {
      http::ResponseHead head;
      HEADRACE_TRY_ASSIGN(const std::size_t bytes, http::parse_response_head(answer.head, head));
      static_cast<void>(bytes);
      return parse_tree(answer.body, head.header("link"));
    });
  }

  /// Whether it was the folder alone that was not found: the repository is asked, too.
  Result<std::shared_ptr<const Listing>> nothing_in(const std::string& what, Status missing,
                                                    const CallOptions& call) {
    auto root = list_page({}, false, {}, what, call);
    if (root) return std::make_shared<const Listing>();
    if (root.error().code() == Code::kNotFound) return missing;
    return std::move(root).error();
  }

  static void add_folders(const std::vector<std::string>& folders, Listing& listing) {
    for (const std::string& folder : folders) {
      ObjectInfo info;
      info.key = folder + "/";
      listing.push_back(std::move(info));
    }
  }

  static std::shared_ptr<const Listing> sorted(Listing listing) {
    std::sort(listing.begin(), listing.end(),
              [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; });
    return std::make_shared<const Listing>(std::move(listing));
  }

  const std::shared_ptr<HfProtocol> protocol_;
  const std::shared_ptr<HfListings> listings_;
};

}  // namespace

Result<std::unique_ptr<Store>> open_hf_store(const StoreOptions& options, const StoreUrl& url,
                                             const Environment& environment,
                                             std::shared_ptr<auth::WebClient> web) {
  HEADRACE_TRY_ASSIGN(HfConfig config,
                      make_hf_config(options, url, environment, auth::local_file_reader()));
  const Clock& clock = options.clock != nullptr ? *options.clock : system_clock();
  auto protocol = std::make_shared<HfProtocol>(std::move(config), std::move(web), clock);
  HEADRACE_TRY_ASSIGN(auto engine, TransferEngine::create(protocol, options, environment));
  return std::unique_ptr<Store>(std::make_unique<HfStore>(std::move(protocol), std::move(engine),
                                                          std::make_shared<HfListings>()));
}

}  // namespace headrace::hf
