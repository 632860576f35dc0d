#include "headrace/whoami.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/temporary_directory.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class Whoami : public testing::Test {
 protected:
  Whoami() {
    environment_.variables = {{"HOME", home_.path()}, {"AWS_EC2_METADATA_DISABLED", "true"}};
  }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(home_.path() + path).parent_path());
    std::ofstream(home_.path() + path) << text;
  }
  Identity identify(const std::string& url, const IdentityOptions& how = {}) {
    options_.url = url;
    auto identity = describe_identity(options_, environment_, how);
    EXPECT_TRUE(identity.has_value()) << (identity ? "" : identity.error().message());
    return identity ? *std::move(identity) : Identity();
  }

  TemporaryDirectory home_;
  Environment environment_;
  StoreOptions options_;
};

TEST_F(Whoami, KeysOfAProfile) {
  write("/.aws/credentials",
        "[default]\naws_access_key_id=AKIAIOSFODNN7EXAMPLE\naws_secret_access_key=verysecret\n");
  write("/.aws/config", "[default]\nregion=eu-west-1\n");
  const Identity found = identify("s3://bucket/train");
  EXPECT_EQ(found.vendor, "s3");
  EXPECT_EQ(found.credential, "keys");
  EXPECT_EQ(found.id, "AKIA...MPLE");
  EXPECT_THAT(found.credential_source, HasSubstr("/.aws/credentials"));
  EXPECT_EQ(found.problem, "");
  const std::string text = found.explain();
  EXPECT_THAT(text, AllOf(HasSubstr("eu-west-1  (profile \"default\" in "),
                          HasSubstr("bucket.s3.eu-west-1.amazonaws.com"), HasSubstr("looked at"),
                          Not(HasSubstr("verysecret"))));
}

TEST_F(Whoami, NoCredentialsAreAProblemWithAllPlaces) {
  const Identity found = identify("s3://bucket");
  EXPECT_EQ(found.credential, "none");
  EXPECT_THAT(found.problem, HasSubstr("no credentials found. Looked at: "));
  EXPECT_THAT(found.searched, Contains(HasSubstr("AWS_EC2_METADATA_DISABLED")));
  options_.anonymous = true;
  EXPECT_EQ(identify("s3://bucket").problem, "");
  EXPECT_EQ(identify("s3://bucket").credential, "anonymous");
}

TEST_F(Whoami, MistakesInFilesAreProblems) {
  write("/.aws/config", "[default]\nrole_arn=arn:x\n");
  EXPECT_THAT(identify("s3://bucket").problem, HasSubstr("source_profile or credential_source"));
  write("/.aws/config", "nonsense");
  EXPECT_THAT(identify("s3://bucket").problem, HasSubstr("line 1"));
  options_.anonymous = true;
  EXPECT_EQ(identify("s3://bucket").problem, "");
}

TEST_F(Whoami, ProgramsAreRunOnlyWhenFetching) {
  write("/tool",
        "#!/bin/sh\necho '{\"Version\":1,\"AccessKeyId\":\"ASIAIOSFODNN7PROCESS\","
        "\"SecretAccessKey\":\"verysecret\",\"Expiration\":\"2099-01-01T00:00:00Z\"}'\n");
  std::filesystem::permissions(home_.path() + "/tool", std::filesystem::perms::owner_all);
  write("/.aws/config", "[default]\ncredential_process=" + home_.path() + "/tool\n");
  IdentityOptions how;
  how.fetch = false;
  EXPECT_EQ(identify("s3://bucket", how).id, "");
  const Identity found = identify("s3://bucket");
  EXPECT_EQ(found.credential, "process");
  EXPECT_EQ(found.id, "ASIA...CESS");
  EXPECT_THAT(found.explain(), HasSubstr("expires     Thu, 01 Jan 2099 00:00:00 GMT"));
}

TEST_F(Whoami, AnOwnEndpointIsNamedWithItsSource) {
  environment_.variables["AWS_ENDPOINT_URL_S3"] = "http://127.0.0.1:9000";
  EXPECT_THAT(identify("s3://bucket").explain(),
              HasSubstr("endpoint    http://127.0.0.1:9000  (AWS_ENDPOINT_URL_S3)"));
  options_.endpoint = "http://127.0.0.2:9000";
  EXPECT_THAT(identify("s3://bucket").explain(), HasSubstr("127.0.0.2:9000  (endpoint option)"));
}

TEST_F(Whoami, OtherVendors) {
  EXPECT_EQ(identify("gs://bucket").vendor, "gcs");
  EXPECT_EQ(identify("https://example.com/data").credential, "anonymous");
  EXPECT_EQ(identify(home_.path()).credential, "not needed");
  environment_.variables["AZURE_STORAGE_ACCOUNT"] = "account";
  environment_.variables["AZURE_STORAGE_KEY"] = "dmVyeXNlY3JldA==";
  const Identity azure = identify("az://account/container");
  EXPECT_EQ(azure.vendor, "azure");
  EXPECT_EQ(azure.credential, "account key");
  EXPECT_THAT(azure.explain(), Not(HasSubstr("dmVyeXNlY3JldA")));
}

TEST_F(Whoami, ASignatureInTheUrlIsNotShown) {
  const Identity found =
      identify("https://account.blob.core.windows.net/container?sv=2024-01-01&sig=verysecret");
  EXPECT_EQ(found.credential, "sas");
  EXPECT_THAT(found.explain(), Not(HasSubstr("verysecret")));
}

TEST_F(Whoami, UserAndQueryOfAWebUrlAreNotShown) {
  for (const char* url : {"http://bob:verysecret@127.0.0.1:1/x?sig=verysecret",
                          "http://bob:verysecret%zz@127.0.0.1:1/x"}) {
    const Identity found = identify(url);
    EXPECT_THAT(found.explain() + found.url,
                AllOf(HasSubstr("127.0.0.1:1/x"), Not(HasSubstr("verysecret"))));
    options_.url = url;
    auto store = open_store(options_, environment_);
    EXPECT_THAT(store ? "" : store.error().message(), Not(HasSubstr("verysecret")));
  }
}

TEST_F(Whoami, TheCheckListsTheRoot) {
  IdentityOptions how;
  how.check = true;
  EXPECT_EQ(identify(home_.path(), how).can_list, true);
  const Identity missing = identify("s3://bucket", how);
  EXPECT_EQ(missing.can_list, false);
  EXPECT_THAT(missing.check, HasSubstr("no credentials found"));
}

TEST_F(Whoami, BadArgumentsAreErrors) {
  options_.url = "ftp://x/y";
  EXPECT_EQ(describe_identity(options_, environment_).error().code(), Code::kUnsupported);
  options_.url = "";
  EXPECT_EQ(describe_identity(options_, environment_).error().code(), Code::kInvalidArgument);
  options_.url = "s3://bad bucket";
  EXPECT_EQ(describe_identity(options_, environment_).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace
