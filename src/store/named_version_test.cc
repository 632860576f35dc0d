#include "store/named_version.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(NamedVersion, AnAnswerAboutAnotherVersionIsNone) {
  ObjectDetails told;
  EXPECT_TRUE(check_named_version(nullptr, "").ok());
  EXPECT_TRUE(check_named_version(&told, "").ok());
  EXPECT_TRUE(check_named_version(&told, "null").ok()) << "from before there were versions";
  EXPECT_EQ(check_named_version(nullptr, "v1").code(), Code::kUnsupported);
  EXPECT_EQ(check_named_version(&told, "v1").code(), Code::kUnsupported);
  told.version_id = "v1";
  EXPECT_TRUE(check_named_version(&told, "v1").ok());
  EXPECT_TRUE(check_named_version(&told, "").ok());
  EXPECT_EQ(check_named_version(&told, "v2").code(), Code::kUnsupported);
  EXPECT_EQ(check_named_version(&told, "null").code(), Code::kUnsupported);
}

}  // namespace
}  // namespace headrace
