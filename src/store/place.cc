#include "store/place.h"

#include <utility>

#include "store/azure/azure_config.h"
#include "store/url.h"

namespace headrace {
namespace {

std::string place_of_url(const std::string& text) {
  auto url = parse_store_url(text);
  if (!url) return text;
  if (azure::is_azure_url(*url)) {
    auto location = azure::parse_azure_location(*url);
    if (!location) return url->root;
    return "az://" + location->account + "/" + location->container +
           (location->path.empty() ? "" : "/" + location->path);
  }
  if (url->scheme == "gcs") return "gs" + url->root.substr(url->root.find("://"));
  return url->root;
}

}  // namespace

std::string place_of(const Store& store) {
  return store.origin() + " " + place_of_url(store.url()) + "/";
}

}  // namespace headrace
