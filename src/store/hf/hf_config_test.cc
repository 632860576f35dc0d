#include "store/hf/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "http/uri.h"

namespace headrace::hf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class HfConfigTest : public testing::Test {
 protected:
  Result<HfConfig> make(const std::string& url) {
    auto parsed = parse_store_url(url);
    if (!parsed) return std::move(parsed).error();
    return make_hf_config(options_, *parsed, environment_, [this](const std::string& path) {
      const auto it = files_.find(path);
      return it == files_.end() ? std::nullopt : std::optional(it->second);
    });
  }
  HfConfig config_of(const std::string& url) {
    auto config = make(url);
    EXPECT_TRUE(config) << url << ": " << (config ? "" : config.error().message());
    return config ? *std::move(config) : HfConfig();
  }

  StoreOptions options_;
  Environment environment_;
  std::map<std::string, std::string> files_;
};

TEST_F(HfConfigTest, SplitsRepositoryRevisionAndFolder) {
  const HfConfig plain = config_of("hf://datasets/org/name");
  EXPECT_EQ(plain.endpoint.host, "huggingface.co");
  EXPECT_TRUE(plain.endpoint.use_tls);
  EXPECT_EQ(plain.api_path, "/api/datasets/org/name");
  EXPECT_EQ(plain.file_path, "/datasets/org/name/resolve");
  EXPECT_EQ(plain.page_url, "https://huggingface.co/datasets/org/name");
  EXPECT_EQ(plain.revision, "main");
  EXPECT_EQ(plain.prefix, "");

  const HfConfig model = config_of("hf://org/a.b-c_d@v1.0/x/y/");
  EXPECT_EQ(model.api_path, "/api/models/org/a.b-c_d");
  EXPECT_EQ(model.file_path, "/org/a.b-c_d/resolve");
  EXPECT_EQ(model.revision, "v1.0");
  EXPECT_EQ(model.prefix, "x/y/");
  EXPECT_EQ(model.root_url, "hf://org/a.b-c_d@v1.0/x/y");
}

TEST_F(HfConfigTest, OtherKindsAndRepositoriesWithoutOrganisation) {
  const HfConfig space = config_of("hf://spaces/org/app/assets");
  EXPECT_EQ(space.api_path, "/api/spaces/org/app");
  EXPECT_EQ(space.file_path, "/spaces/org/app/resolve");
  EXPECT_EQ(space.prefix, "assets/");
  EXPECT_EQ(config_of("hf://datasets/squad").api_path, "/api/datasets/squad");
  EXPECT_EQ(config_of("hf://gpt2").file_path, "/gpt2/resolve");
  const HfConfig old = config_of("hf://gpt2@v1/onnx");
  EXPECT_EQ(old.api_path + " " + old.revision + " " + old.prefix, "/api/models/gpt2 v1 onnx/");
  // As the hub's own tools try first.
  EXPECT_EQ(config_of("hf://datasets/squad/train").api_path, "/api/datasets/squad/train");
}

TEST_F(HfConfigTest, RevisionsMayHaveSlashes) {
  const auto parts = [this](const std::string& rest) {
    const HfConfig config = config_of("hf://datasets/o/n" + rest);
    return config.revision + " " + config.prefix;
  };
  EXPECT_EQ(parts("@refs/convert/parquet/default"), "refs/convert/parquet default/");
  EXPECT_EQ(parts("@refs/pr/7"), "refs/pr/7 ");
  EXPECT_EQ(parts("@refs%2Fpr%2F7/a"), "refs/pr/7 a/");
  EXPECT_EQ(parts("@feature/a"), "feature a/");
  EXPECT_EQ(parts("/a@b"), "main a@b/");
}

TEST_F(HfConfigTest, RefusesWhatNamesNoRepository) {
  for (const char* url :
       {"hf://datasets", "hf://spaces", "hf://datasets/@main", "hf://datasets/o/n@",
        "hf://datasets/o/n@/a", "hf://datasets/o/n@refs/pr", "hf://datasets/o/n@%", "hf://o/n?x=1",
        "hf://datasets/o/n/a/../b", "hf://datasets/o/n/a//b"}) {
    auto config = make(url);
    ASSERT_FALSE(config) << url;
    EXPECT_EQ(config.error().code(), Code::kInvalidArgument) << url;
    EXPECT_THAT(std::string(config.error().message()), HasSubstr(http::without_secrets(url)))
        << url;
  }
  EXPECT_EQ(make("hf://buckets/o/n").error().code(), Code::kUnsupported);
}

TEST_F(HfConfigTest, EndpointOfOptionOrEnvironment) {
  environment_.variables["HF_ENDPOINT"] = "https://mirror:8443/hub/";
  HfConfig config = config_of("hf://datasets/o/n");
  EXPECT_EQ(config.host_field, "mirror:8443");
  EXPECT_EQ(config.api_path, "/hub/api/datasets/o/n");
  EXPECT_EQ(config.page_url, "https://mirror:8443/hub/datasets/o/n");
  EXPECT_EQ(config.endpoint_source, "HF_ENDPOINT");
  options_.endpoint = "https://other";
  EXPECT_EQ(config_of("hf://datasets/o/n").host_field, "other");
  options_.endpoint = "other";
  EXPECT_EQ(make("hf://datasets/o/n").error().code(), Code::kInvalidArgument);
}

TEST_F(HfConfigTest, TheTokenIsThatOfTheHubsOwnTools) {
  const auto token = [this] {
    const HfConfig config = config_of("hf://datasets/o/n");
    return config.token + " of " + config.token_source;
  };
  EXPECT_EQ(token(), " of anonymous");
  environment_.variables["HOME"] = "/home/u";
  files_["/home/u/.cache/huggingface/token"] = "hf_home\n";
  EXPECT_EQ(token(), "hf_home of /home/u/.cache/huggingface/token");
  files_["/xdg/huggingface/token"] = "hf_xdg";
  environment_.variables["XDG_CACHE_HOME"] = "/xdg";
  EXPECT_EQ(token(), "hf_xdg of /xdg/huggingface/token");
  files_["/hf/token"] = "hf_hf";
  environment_.variables["HF_HOME"] = "/hf";
  EXPECT_EQ(token(), "hf_hf of /hf/token");
  files_["/elsewhere"] = "hf_path";
  environment_.variables["HF_TOKEN_PATH"] = "/elsewhere";
  EXPECT_EQ(token(), "hf_path of /elsewhere");
  environment_.variables["HUGGING_FACE_HUB_TOKEN"] = "hf_old";
  EXPECT_EQ(token(), "hf_old of HUGGING_FACE_HUB_TOKEN");
  environment_.variables["HF_TOKEN"] = " hf_new ";
  EXPECT_EQ(token(), "hf_new of HF_TOKEN");
  EXPECT_THAT(config_of("hf://o/n").searched, ElementsAre("HF_TOKEN: a token"));
  options_.anonymous = true;
  EXPECT_EQ(token(), " of anonymous");
}

TEST_F(HfConfigTest, SwitchesOfTheHubsOwnTools) {
  environment_.variables["HF_TOKEN"] = "hf_new";
  environment_.variables["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "0";
  EXPECT_EQ(config_of("hf://o/n").token, "hf_new");
  environment_.variables["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "true";
  EXPECT_EQ(config_of("hf://o/n").token, "");
  EXPECT_EQ(config_of("hf://o/n").token_source, "anonymous");
  environment_.variables["TRANSFORMERS_OFFLINE"] = "1";
  const Status offline = make("hf://o/n").error().clone();
  EXPECT_EQ(offline.code(), Code::kUnsupported);
  EXPECT_THAT(std::string(offline.message()), HasSubstr("TRANSFORMERS_OFFLINE is set"));
}

TEST_F(HfConfigTest, ATildeIsTheHomeOfTheUser) {
  environment_.variables = {{"HOME", "/home/u"}, {"HF_HOME", "~/hf"}};
  files_["/home/u/hf/token"] = "hf_home";
  EXPECT_EQ(config_of("hf://o/n").token_source, "/home/u/hf/token");
}

TEST_F(HfConfigTest, ATokenIsNotShownAndNotSentInTheClear) {
  environment_.variables["HF_TOKEN"] = "hf_secret with blanks";
  Status status = make("hf://datasets/o/n").error().clone();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
  environment_.variables["HF_TOKEN"] = "hf_secret";
  options_.endpoint = "http://hub";
  status = make("hf://datasets/o/n").error().clone();
  EXPECT_EQ(status.code(), Code::kDenied);
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
  options_.endpoint = "http://127.0.0.1:80";
  EXPECT_EQ(config_of("hf://datasets/o/n").token, "hf_secret");
}

TEST(HfKey, PathsThatAServerWouldChangeAreRefused) {
  EXPECT_TRUE(check_hf_key("a/b c%20.txt").ok());
  for (const char* key : {"", "/a", "a//b", "./a", "a/../b", ".."}) {
    EXPECT_EQ(check_hf_key(key).code(), Code::kInvalidArgument) << key;
  }
  EXPECT_EQ(check_hf_key(std::string_view("a\0b", 3)).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace::hf
