#include "auth/azure_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::auth {
namespace {

using testing::HasSubstr;
using testing::Not;
using Kind = AzureIdentity::Kind;

constexpr const char* kTag = "7783-7084-3265-9085-8269-3286-77\n";

AzureSettings resolve(std::map<std::string, std::string> variables,
                      const std::optional<std::string>& chassis_tag = std::nullopt) {
  Environment environment;
  environment.variables = std::move(variables);
  auto settings = resolve_azure_settings("account", environment, [&](const std::string& path) {
    return path == "/sys/class/dmi/id/chassis_asset_tag" ? chassis_tag : std::nullopt;
  });
  EXPECT_TRUE(settings) << settings.error().message();
  return settings ? *std::move(settings) : AzureSettings();
}

TEST(AzureSettings, TakesTheAccountKey) {
  for (const char* name :
       {"AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY"}) {
    const AzureSettings found = resolve({{name, "a2V5"}});
    EXPECT_EQ(found.account_key, "a2V5") << name;
    EXPECT_THAT(found.credentials_source, HasSubstr(name));
  }
}

TEST(AzureSettings, PassesOverAKeyOfAnotherAccount) {
  const AzureSettings found =
      resolve({{"AZURE_STORAGE_ACCOUNT", "other"}, {"AZURE_STORAGE_KEY", "a2V5"}});
  EXPECT_EQ(found.account_key, "");
  const Status status = found.missing_credentials();
  EXPECT_EQ(status.code(), Code::kDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is for the account other"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("a2V5")));
}

TEST(AzureSettings, PrefersTheConnectionStringThenKeyThenSas) {
  std::map<std::string, std::string> all = {
      {"AZURE_STORAGE_CONNECTION_STRING", "AccountName=account;AccountKey=Y29ubg=="},
      {"AZURE_STORAGE_KEY", "a2V5"},
      {"AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=2"}};
  EXPECT_EQ(resolve(all).account_key, "Y29ubg==");
  all.erase("AZURE_STORAGE_CONNECTION_STRING");
  EXPECT_EQ(resolve(all).account_key, "a2V5");
  all.erase("AZURE_STORAGE_KEY");
  EXPECT_EQ(resolve(all).sas, "sv=1&sig=2");
}

TEST(AzureSettings, FindsTheIdentityThatIsConfigured) {
  std::map<std::string, std::string> all = {
      {"AZURE_TENANT_ID", "t"},          {"AZURE_CLIENT_ID", "c"},
      {"AZURE_CLIENT_SECRET", "s"},      {"AZURE_FEDERATED_TOKEN_FILE", "/token"},
      {"IDENTITY_ENDPOINT", "http://i"}, {"IDENTITY_HEADER", "h"}};
  AzureSettings found = resolve(all, kTag);
  ASSERT_TRUE(found.identity);
  EXPECT_EQ(found.identity->kind, Kind::kClientSecret);
  EXPECT_EQ(found.identity->authority, "https://login.microsoftonline.com");
  all.erase("AZURE_CLIENT_SECRET");
  all["AZURE_AUTHORITY_HOST"] = "https://login.chinacloudapi.cn/";
  found = resolve(all, kTag);
  EXPECT_EQ(found.identity->kind, Kind::kWorkload);
  EXPECT_EQ(found.identity->authority, "https://login.chinacloudapi.cn");
  all.erase("AZURE_FEDERATED_TOKEN_FILE");
  found = resolve(all, kTag);
  EXPECT_EQ(found.identity->kind, Kind::kAppService);
  EXPECT_EQ(found.identity->client_id, "c");
  all.erase("IDENTITY_HEADER");
  found = resolve(all, kTag);
  EXPECT_EQ(found.identity->kind, Kind::kMachine);
  EXPECT_EQ(found.identity->endpoint, "http://169.254.169.254");
}

TEST(AzureSettings, AsksNoMetadataServiceOffAzure) {
  for (const auto& tag : {std::optional<std::string>(), std::optional<std::string>("Dell\n")}) {
    const AzureSettings found = resolve({}, tag);
    EXPECT_FALSE(found.identity);
    EXPECT_THAT(std::string(found.missing_credentials().message()),
                HasSubstr("no virtual machine of Azure"));
  }
}

TEST(AzureSettings, FindsTheEndpoint) {
  EXPECT_EQ(resolve({{"AZURE_STORAGE_BLOB_ENDPOINT", "http://h:1/account/"}}).endpoint.text,
            "http://h:1/account");
  EXPECT_EQ(resolve({{"AZURE_STORAGE_SERVICE_ENDPOINT", "http://h:2"}}).endpoint.text,
            "http://h:2");
  EXPECT_EQ(resolve({{"AZURE_STORAGE_CONNECTION_STRING",
                      "BlobEndpoint=http://h:3;SharedAccessSignature=sv=1&sig=x"},
                     {"AZURE_STORAGE_BLOB_ENDPOINT", "http://h:1"}})
                .endpoint.text,
            "http://h:3");
}

TEST(AzureSettings, PassesOverTheEndpointOfAnotherAccount) {
  AzureSettings found = resolve({{"AZURE_STORAGE_ACCOUNT", "other"},
                                 {"AZURE_STORAGE_BLOB_ENDPOINT", "http://proxy.example"}});
  EXPECT_EQ(found.endpoint.text, "");
  EXPECT_THAT(found.searched, testing::Contains(HasSubstr("AZURE_STORAGE_BLOB_ENDPOINT: is for the "
                                                          "account other")));
  for (const char* name : {"AZURE_STORAGE_BLOB_ENDPOINT", "AZURE_STORAGE_SERVICE_ENDPOINT"}) {
    for (const char* other : {"http://other.blob.core.Windows.net",
                              "https://other-secondary.blob.core.windows.net:443/",
                              "https://accounta.blob.core.usgovcloudapi.net"})
      EXPECT_EQ(resolve({{name, other}}).endpoint.text, "") << other;
    for (const char* ours :
         {"http://account.blob.core.windows.net", "https://account-secondary.blob.core.windows.net",
          "https://account.privatelink.blob.core.windows.net",
          "http://Account.Blob.Core.Windows.Net", "http://other.example:1"})
      EXPECT_EQ(resolve({{name, ours}}).endpoint.text, ours);
  }
  found = resolve({{"AZURE_STORAGE_ACCOUNT", "other"},
                   {"AZURE_STORAGE_BLOB_ENDPOINT", "http://other.blob.core.windows.net"},
                   {"AZURE_STORAGE_CONNECTION_STRING",
                    "BlobEndpoint=https://account.blob.core.windows.net;AccountKey=a2V5"}});
  EXPECT_EQ(found.endpoint.text, "https://account.blob.core.windows.net");
  EXPECT_EQ(found.account_key, "a2V5");
}

TEST(AzureSettings, PassesOverTheSasOfAnotherAccountsEndpoint) {
  const AzureSettings found = resolve(
      {{"AZURE_STORAGE_CONNECTION_STRING",
        "BlobEndpoint=https://other.blob.core.windows.net;SharedAccessSignature=sv=1&sig=x"}});
  EXPECT_EQ(found.endpoint.text, "");
  EXPECT_EQ(found.sas, "");
  EXPECT_THAT(found.searched, testing::Contains(HasSubstr("is for the account other")));
}

TEST(AzureConnectionString, ReadsItsForms) {
  auto plain = parse_azure_connection_string(
      "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5PT0=;"
      "EndpointSuffix=core.chinacloudapi.cn;");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->account, "acc");
  EXPECT_EQ(plain->account_key, "a2V5PT0=");
  EXPECT_EQ(plain->endpoint, "https://acc.blob.core.chinacloudapi.cn");
  auto sas = parse_azure_connection_string(
      "BlobEndpoint=https://acc.blob.core.windows.net;SharedAccessSignature=sv=1&sig=a%3D");
  ASSERT_TRUE(sas);
  EXPECT_EQ(sas->sas, "sv=1&sig=a%3D");
  auto emulator = parse_azure_connection_string("UseDevelopmentStorage=true");
  ASSERT_TRUE(emulator);
  EXPECT_EQ(emulator->account, kAzureDevelopmentAccount);
  EXPECT_EQ(emulator->endpoint, "http://127.0.0.1:10000/devstoreaccount1");
}

TEST(AzureConnectionString, RefusesWhatIsNoneWithoutRepeatingIt) {
  for (const char* bad : {"sEcReT", "AccountKey=sEcReT", "AccountName=a;sEcReT"}) {
    auto parsed = parse_azure_connection_string(bad);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(parsed.error().message()), Not(HasSubstr("sEcReT")));
  }
  Environment environment;
  environment.variables = {{"AZURE_STORAGE_CONNECTION_STRING", "nothing"}};
  auto settings = resolve_azure_settings("account", environment,
                                         [](const std::string&) { return std::nullopt; });
  ASSERT_FALSE(settings);
  EXPECT_THAT(std::string(settings.error().message()),
              HasSubstr("AZURE_STORAGE_CONNECTION_STRING"));
}

}  // namespace
}  // namespace headrace::auth
