#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "auth/fake_world.h"
#include "store/identity.h"

namespace headrace::gcs {
namespace {

TEST(GcsIdentity, AsksTheMetadataServerWithoutAProxy) {
  auth::FakeWorld world;
  world.environment.variables["GCE_METADATA_HOST"] = "meta.example:8080";
  const std::string account =
      "http://meta.example:8080/computeMetadata/v1/instance/service-accounts/default/";
  world.web->answers["GET " + account + "email"] = {200, {}, "robot@p.example"};
  StoreOptions store;
  store.url = "gs://bucket";
  store.clock = &world.clock;
  const auto url = parse_store_url(store.url);
  ASSERT_TRUE(url);
  const IdentityOptions options;
  Identity found;
  ASSERT_TRUE(
      identify({store, *url, world.environment, options, world.web, world.reader()}, found).ok());
  EXPECT_EQ(found.id, "robot@p.example");
  ASSERT_FALSE(world.web->requests.empty());
  for (const auth::WebRequest& request : world.web->requests)
    EXPECT_TRUE(request.is_local) << request.url << ": a proxy would be asked for it";
}

}  // namespace
}  // namespace headrace::gcs
